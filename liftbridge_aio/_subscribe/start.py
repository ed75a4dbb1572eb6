"""Turns the start and stop of a subscription into offsets, and makes its requests.

"New only" and "latest" change with the log, so a subscription that is resumed before its first
message would lose or repeat messages. They are looked up once, as are times and the stop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from liftbridge_aio._core.status import CallFailure, Code, Reach, StreamEnd, error_from, stream_end
from liftbridge_aio.errors import PartitionPaused
from liftbridge_aio.model import BrokerInfo, PartitionInfo, StartAt, StartPosition, StopPosition
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.rpc import SUBSCRIBE

from .core.plan import ConsumerIdentity, ReadingPlan
from .core.position import Position, ReversePosition
from .log_probe import LogProbe
from .log_start import settled_state
from .reverse_reader import oldest_offset
from .time_lookup import offset_at

_NS: Final = 1_000_000_000
_PASSING: Final = frozenset({StreamEnd.LOST, StreamEnd.LOG_CLOSED, StreamEnd.NOT_LEADER})
"""Refusals of subscriptions that the server may accept a moment later."""


def broker_for(plan: ReadingPlan, network: Network) -> BrokerInfo:
    """Return the broker to read from: the leader, or an in-sync replica if the plan says so.

    Raises:
        CallFailure: none is known.
    """
    metadata = network.metadata.snapshot
    info = metadata.partition(plan.stream, plan.partition)
    if plan.from_isr_replica and info is not None:
        replicas = [metadata.brokers[name] for name in info.isr if name in metadata.brokers]
        if replicas:
            return random.choice(replicas)  # noqa: S311 - for spreading load
    leader = metadata.leader(plan.stream, plan.partition)
    if leader is None:
        raise CallFailure(
            Code.UNAVAILABLE, "the partition has no leader whose address is known", Reach.NOT_SENT
        )
    return leader


def log_probe(plan: ReadingPlan, network: Network, address: str) -> LogProbe:
    """Return a probe of the log that is read, at the server of this address."""
    return LogProbe(
        network, address, plan.stream, plan.partition, plan.from_isr_replica, plan.unpause
    )


async def resolve(
    plan: ReadingPlan, network: Network
) -> tuple[StartAt, Position | ReversePosition]:
    """Look up the start and the position. Cancelling abandons the calls.

    Raises:
        LiftbridgeError: the leader did not answer.
    """
    stop = plan.stop.position if plan.stop is not None else StopPosition.ON_CANCEL
    if plan.reverse:
        return await _resolve_reverse(plan, network)
    state: PartitionInfo | None = None
    if stop in {StopPosition.LATEST, StopPosition.TIMESTAMP}:
        state = await settled_state(network, plan.stream, plan.partition, plan.timeout)
    elif plan.start.position in {StartPosition.NEW_ONLY, StartPosition.LATEST}:
        state = await network.metadata.partition(plan.stream, plan.partition, plan.timeout)
    start = _fixed(plan.start, state)
    if start.position is StartPosition.TIMESTAMP:
        start = await _by_time(plan, network, start)
    stop_offset = stop_timestamp = None
    if plan.stop is not None:
        stop_offset = plan.stop.value
        if state is not None and stop is not StopPosition.OFFSET:
            # What is committed later does not count, so the subscription ends for certain.
            stop_offset = state.high_watermark
        if stop is StopPosition.TIMESTAMP:
            stop_timestamp = plan.stop.value
    position = Position(
        start.value if start.position is StartPosition.OFFSET else None,
        stop_offset=stop_offset,
        stop_timestamp=stop_timestamp,
    )
    return start, position


def _fixed(start: StartAt, state: PartitionInfo | None) -> StartAt:
    if start.position is StartPosition.NEW_ONLY and state is not None:
        return StartAt.offset(state.newest_offset + 1)
    if start.position is StartPosition.LATEST and state is not None:
        return StartAt.offset(max(state.newest_offset, 0))
    if start.delta is not None:
        back = int(start.delta.total_seconds() * _NS)
        return StartAt.time(max(time.time_ns() - back, 0))
    return start


async def _resolve_reverse(plan: ReadingPlan, network: Network) -> tuple[StartAt, ReversePosition]:
    state = await settled_state(network, plan.stream, plan.partition, plan.timeout)
    if state.paused and not plan.unpause:
        raise PartitionPaused("the partition is paused")
    newest = state.high_watermark
    if newest < 0:
        return plan.start, ReversePosition(-1)
    by_offset = plan.start.position is StartPosition.OFFSET
    start = min(plan.start.value, newest) if by_offset else newest
    lowest = await _oldest_read_backwards(plan, network, newest)
    stop_timestamp = None
    if plan.stop is not None and plan.stop.position is StopPosition.OFFSET:
        lowest = max(lowest, plan.stop.value)
    elif plan.stop is not None:
        stop_timestamp = plan.stop.value
    position = ReversePosition(start, stop_offset=lowest, stop_timestamp=stop_timestamp)
    return StartAt.offset(start), position


async def _by_time(plan: ReadingPlan, network: Network, start: StartAt) -> StartAt:
    """Return the offset to start at; the time itself if the leader refuses to say.

    Raises:
        PartitionPaused: the partition is paused.
        LiftbridgeError: the leader did not answer.
    """

    async def ask(probe: LogProbe) -> int:
        state = await network.metadata.partition(plan.stream, plan.partition, plan.timeout)
        if state.paused and not plan.unpause:
            raise PartitionPaused("the partition is paused")
        return await offset_at(probe, start.value, state.newest_offset, plan.timeout)

    try:
        return StartAt.offset(await _ask(replace(plan, from_isr_replica=False), network, ask))
    except CallFailure:
        return start  # the subscription is refused with reason


async def _oldest_read_backwards(plan: ReadingPlan, network: Network, newest: int) -> int:
    """Return the offset at which reverse reading ends."""
    try:
        return await _ask(plan, network, lambda probe: oldest_offset(probe, plan, newest))
    except CallFailure as failure:
        raise error_from(SUBSCRIBE.name, failure) from failure


async def _ask(
    plan: ReadingPlan, network: Network, question: Callable[[LogProbe], Awaitable[int]]
) -> int:
    """Ask the server to read from; again while the leader changes, or cleans its log.

    Raises:
        CallFailure: the server refused, or gave no answer in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + plan.timeout
    attempt = 0
    while True:
        attempt += 1
        try:
            address = network.router.address_of(broker_for(plan, network))
            return await question(log_probe(plan, network, address))
        except CallFailure as failure:
            delay = network.router.delay(attempt)
            passing = stream_end(failure, reverse=plan.reverse) in _PASSING
            if not passing or loop.time() + delay > deadline:
                raise
            await asyncio.sleep(delay)
            await network.metadata.refresh([plan.stream])


def subscribe_request(
    plan: ReadingPlan, start: StartAt, position: Position | ReversePosition
) -> proto.SubscribeRequest:
    """Return the request that subscribes at the position."""
    if position.next is not None:
        start = StartAt.offset(position.next)
    stop = None if plan.reverse else position.stop_offset
    return proto.SubscribeRequest(
        stream=plan.stream,
        partition=plan.partition,
        start_position=proto.StartPosition(start.position),
        start_offset=start.value if start.position is StartPosition.OFFSET else 0,
        start_timestamp=start.value if start.position is StartPosition.TIMESTAMP else 0,
        stop_position=(
            proto.StopPosition.STOP_ON_CANCEL if stop is None else proto.StopPosition.STOP_OFFSET
        ),
        stop_offset=stop or 0,
        read_isr_replica=plan.from_isr_replica,
        resume=plan.unpause,
        reverse=plan.reverse,
        consumer=_consumer(plan.consumer),
    )


def _consumer(identity: ConsumerIdentity | None) -> proto.Consumer | None:
    if identity is None:
        return None
    return proto.Consumer(
        group_id=identity.group, group_epoch=identity.epoch, consumer_id=identity.consumer
    )
