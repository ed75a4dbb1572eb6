"""Where a reading begins and ends: positions that move are turned into offsets that stay.

"New" and "latest" mean something else each time a server is asked, so a reading that is resumed
before its first message would lose or repeat. They are looked up once, as is the stop.
"""

from __future__ import annotations

import random
import time
from typing import Final

from .errors import PartitionPaused
from .model import BrokerInfo, PartitionInfo, StartAt, StartPosition, StopPosition
from .net.connection import Connection
from .position import Position, ReversePosition
from .reading_plan import ConsumerIdentity, ReadingPlan
from .reverse_probe import oldest_offset
from .status import CallFailure, Code, Reach, error_from
from .wire import proto
from .wire.rpc import SUBSCRIBE

_NS: Final = 1_000_000_000


def broker_for(plan: ReadingPlan, connection: Connection) -> BrokerInfo:
    """Choose whom to read from: the leader, or any in-sync replica where that is wished (W26).

    Raises:
        CallFailure: nobody is known.
    """
    metadata = connection.metadata.snapshot
    info = metadata.partition(plan.stream, plan.partition)
    if plan.from_isr_replica and info is not None:
        replicas = [metadata.brokers[name] for name in info.isr if name in metadata.brokers]
        if replicas:
            return random.choice(replicas)  # noqa: S311 - for spreading load
    leader = metadata.leader(plan.stream, plan.partition)
    if leader is None:
        text = "the partition has no leader whose address is known"
        raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT)
    return leader


async def resolve(
    plan: ReadingPlan, connection: Connection
) -> tuple[StartAt, Position | ReversePosition]:
    """Fix the start and the position of a reading. Cancelling abandons the questions.

    Raises:
        LiftbridgeError: the leader could not be asked.
    """
    stop = plan.stop.position if plan.stop is not None else StopPosition.ON_CANCEL
    if plan.reverse:
        return await _resolve_reverse(plan, connection)
    state: PartitionInfo | None = None
    if plan.start.position in {StartPosition.NEW_ONLY, StartPosition.LATEST} or stop in {
        StopPosition.LATEST,
        StopPosition.TIMESTAMP,
    }:
        state = await connection.metadata.partition(plan.stream, plan.partition, plan.timeout)
    start = _fixed(plan.start, state)
    stop_offset = stop_timestamp = None
    if plan.stop is not None:
        stop_offset = plan.stop.value
        if state is not None and stop is not StopPosition.OFFSET:
            # Nothing that is committed later can be meant, so the reading ends for certain.
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


async def _resolve_reverse(
    plan: ReadingPlan, connection: Connection
) -> tuple[StartAt, ReversePosition]:
    state = await connection.metadata.partition(plan.stream, plan.partition, plan.timeout)
    if state.paused and not plan.resume:
        raise PartitionPaused("the partition is paused")
    newest = state.high_watermark
    if newest < 0:
        return plan.start, ReversePosition(-1)
    by_offset = plan.start.position is StartPosition.OFFSET
    start = min(plan.start.value, newest) if by_offset else newest
    try:
        lowest = await oldest_offset(connection, broker_for(plan, connection), plan, newest)
    except CallFailure as failure:
        raise error_from(SUBSCRIBE.name, failure) from failure
    stop_timestamp = None
    if plan.stop is not None and plan.stop.position is StopPosition.OFFSET:
        lowest = max(lowest, plan.stop.value)
    elif plan.stop is not None:
        stop_timestamp = plan.stop.value
    position = ReversePosition(start, stop_offset=lowest, stop_timestamp=stop_timestamp)
    return StartAt.offset(start), position


def subscribe_request(
    plan: ReadingPlan, start: StartAt, position: Position | ReversePosition
) -> proto.SubscribeRequest:
    """Make the request that begins a reading, or takes it up where it stands."""
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
        resume=plan.resume,
        reverse=plan.reverse,
        consumer=_consumer(plan.consumer),
    )


def _consumer(identity: ConsumerIdentity | None) -> proto.Consumer | None:
    if identity is None:
        return None
    return proto.Consumer(
        group_id=identity.group, group_epoch=identity.epoch, consumer_id=identity.consumer
    )
