"""Does what a plan says: each fault is done, left to work, and healed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from chaos.plan import Kind, Planned
from liftbridge_aio import AckPolicy, Client, ClientOptions, StartAt
from liftbridge_aio.testing import Direction, FaultProxy
from support.servers.cluster import NODE_IDS
from support.servers.ports import free_ports

if TYPE_CHECKING:
    from chaos.scene import Run

LEASE: Final = 1.0
"""Seconds after which followers hold their leader to be dead, see `servers.cluster.TIMING`."""
BOTH_WAYS: Final = (Direction.BOTH, Direction.TO_TARGET, Direction.TO_CLIENTS)
ONE_WAY: Final = (Direction.TO_TARGET, Direction.TO_CLIENTS)
FRESH_CLIENT_TIMEOUT: Final = 15.0


async def inflict(run: Run, planned: Planned) -> str:
    """Do a fault and heal it; what was done, in words."""
    run.stage.dead_refuse = planned.other < 0.5
    return await DEEDS[planned.kind](run, planned)


async def _leader(run: Run, planned: Planned) -> tuple[str, str]:
    """The leader of a partition, and the partition in words."""
    stream, partition = planned.choose(run.partitions())
    leader = await run.stage.leader_of(stream, partition)
    return leader, f"{stream}/{partition}"


async def _kill(run: Run, node: str) -> None:
    await run.stage.kill(node)
    try:
        await run.checkpoint()
    finally:
        await run.stage.start(node)
    await run.whole()
    await run.checkpoint()


async def _kill_leader(run: Run, planned: Planned) -> str:
    node, what = await _leader(run, planned)
    await _kill(run, node)
    return f"{node}, which led {what}"


async def _kill_follower(run: Run, planned: Planned) -> str:
    leader, what = await _leader(run, planned)
    followers = [node for node in NODE_IDS if node != leader]
    node = followers[int(planned.amount * len(followers))]
    await _kill(run, node)
    return f"{node}, which followed {leader} in {what}"


async def _kill_two(run: Run, planned: Planned) -> str:
    leader, what = await _leader(run, planned)
    others = [node for node in NODE_IDS if node != leader]
    second = others[int(planned.amount * len(others))]
    await run.stage.kill(leader, second)
    try:
        await asyncio.sleep(planned.lasts)
    finally:
        await run.stage.start(second, leader)
    await run.checkpoint()
    await run.whole()
    await run.checkpoint()
    return f"{leader}, which led {what}, and {second}, for {planned.lasts:.1f} s"


async def _kill_each(run: Run, planned: Planned) -> str:
    nodes = _in_turn(planned)
    for node in nodes:
        await _kill(run, node)
    return ", then ".join(nodes)


async def _rolling_restart(run: Run, planned: Planned) -> str:
    nodes = _in_turn(planned)
    for node in nodes:
        await run.stage.stop(node)
        await run.stage.start(node)
        await run.checkpoint()
        await run.whole()
    return ", then ".join(nodes)


def _in_turn(planned: Planned) -> list[str]:
    first = int(planned.place * len(NODE_IDS))
    return [*NODE_IDS[first:], *NODE_IDS[:first]]


async def _freeze_leader(run: Run, planned: Planned) -> str:
    node, what = await _leader(run, planned)
    lasts = LEASE + 1 + planned.lasts
    began = time.monotonic()
    await run.stage.freeze(node)
    try:
        await run.checkpoint()
        await asyncio.sleep(max(0.0, began + lasts - time.monotonic()))
    finally:
        await run.stage.thaw(node)
    lasted = time.monotonic() - began
    await run.whole()
    await run.checkpoint()
    return f"{node}, which led {what}, for {lasted:.1f} s"


async def _restart_nats(run: Run, planned: Planned) -> str:
    cluster = run.stage.cluster
    await cluster.stop_nats()
    try:
        await asyncio.sleep(planned.lasts)
    finally:
        await cluster.start_nats()
    await run.checkpoint()
    await run.whole()
    return f"for {planned.lasts:.1f} s"


async def _move_broker(run: Run, planned: Planned) -> str:
    node, what = await _leader(run, planned)
    old = run.stage.proxies[node].address
    await run.stage.kill(node)
    try:
        await run.checkpoint()
        await run.stage.move(node)
    finally:
        await run.stage.start(node)
    # Until all nodes tell the new address, nobody can know it.
    await run.whole(addresses=True)
    await run.checkpoint()
    return f"{node}, which led {what}, from {old} to {run.stage.proxies[node].address}"


@asynccontextmanager
async def _on_proxies(
    planned: Planned, proxies: Mapping[str, FaultProxy]
) -> AsyncIterator[tuple[list[FaultProxy], list[str]]]:
    """The proxies that are to go wrong, mostly one, and their nodes; healed afterwards."""
    nodes = [planned.choose(NODE_IDS)] if planned.other < 0.7 else list(NODE_IDS)
    chosen = [proxies[node] for node in nodes]
    async with AsyncExitStack() as stack:
        for proxy in chosen:
            stack.push_async_callback(proxy.heal)
        yield chosen, nodes


async def _at_proxies(
    run: Run,
    planned: Planned,
    begin: Callable[[FaultProxy], Awaitable[None] | None],
    detail: str = "",
    *,
    watched: bool = False,
) -> str:
    """Let the links of one node or of all go wrong for a while.

    Args:
        run: where.
        planned: for how long, and at which nodes.
        begin: does it to the proxy of one node.
        detail: more words.
        watched: whether clients must work with the other nodes meanwhile.
    """
    until = time.monotonic() + planned.lasts
    async with _on_proxies(planned, run.stage.proxies) as (proxies, nodes):
        for proxy in proxies:
            begun = begin(proxy)
            if begun is not None:
                await begun
        if watched and len(nodes) == 1:
            await run.checkpoint(without=nodes[0])
        await asyncio.sleep(max(0.0, until - time.monotonic()))
    await run.checkpoint()
    return f"at {' and '.join(nodes)} for {planned.lasts:.1f} s{detail}"


async def _at_once(
    run: Run, planned: Planned, strike: Callable[[FaultProxy], Awaitable[None]]
) -> str:
    """Do something to links that is over when it is done."""
    async with _on_proxies(planned, run.stage.proxies) as (proxies, nodes):
        for proxy in proxies:
            await strike(proxy)
    await run.checkpoint()
    return f"at {' and '.join(nodes)}"


def _way(planned: Planned, ways: tuple[Direction, ...]) -> Direction:
    return ways[int(planned.place * 97) % len(ways)]


async def _cut(run: Run, planned: Planned) -> str:
    return await _at_once(run, planned, lambda proxy: proxy.cut())


async def _reset(run: Run, planned: Planned) -> str:
    return await _at_once(run, planned, lambda proxy: proxy.reset())


async def _refuse(run: Run, planned: Planned) -> str:
    async def begin(proxy: FaultProxy) -> None:
        await proxy.refuse()
        await proxy.cut()

    return await _at_proxies(run, planned, begin)


async def _half_open(run: Run, planned: Planned) -> str:
    way = _way(planned, BOTH_WAYS)
    return await _at_proxies(
        run, planned, lambda proxy: proxy.swallow(way), f", {way}", watched=True
    )


async def _stall(run: Run, planned: Planned) -> str:
    way = _way(planned, BOTH_WAYS)
    return await _at_proxies(
        run, planned, lambda proxy: proxy.freeze(way), f", {way}", watched=True
    )


async def _silent(run: Run, planned: Planned) -> str:
    async def begin(proxy: FaultProxy) -> None:
        proxy.freeze()
        await proxy.cut()

    return await _at_proxies(run, planned, begin, watched=True)


async def _throttle(run: Run, planned: Planned) -> str:
    way, limit = _way(planned, BOTH_WAYS), 1000 * 30**planned.place
    detail = f", {way}, {limit:.0f} bytes/s"
    return await _at_proxies(run, planned, lambda proxy: proxy.throttle(limit, way), detail)


async def _delay(run: Run, planned: Planned) -> str:
    way, delay = _way(planned, BOTH_WAYS), 0.05 + 0.5 * planned.amount
    detail = f", {way}, {delay:.2f} s"
    return await _at_proxies(run, planned, lambda proxy: proxy.delay(delay, delay, way), detail)


async def _truncate(run: Run, planned: Planned) -> str:
    way = _way(planned, ONE_WAY)
    return await _at_proxies(run, planned, lambda proxy: proxy.truncate(way, times=3), f", {way}")


async def _goaway(run: Run, planned: Planned) -> str:
    nodes = NODE_IDS if planned.amount > 0.5 else (planned.choose(NODE_IDS),)
    count = sum(run.stage.proxies[node].send_goaway() for node in nodes)
    await run.checkpoint()
    return f"on {count} connections to {' and '.join(nodes)}"


async def _dead_seed(run: Run, planned: Planned) -> str:
    [port] = free_ports(1)
    seed = f"127.0.0.1:{port}"
    node = planned.choose(NODE_IDS)
    await run.checkpoint()
    told = await _until_it_tells_of_all(run)
    went = await run.fresh_client(seed, run.stage.proxies[node].address)
    return f"a new client, told of {seed} first, then of {node}{told}, {went}"


async def _silent_seed(run: Run, planned: Planned) -> str:
    node = planned.choose(NODE_IDS)
    async with FaultProxy(run.stage.cluster.addresses[node]) as silent:
        silent.freeze()
        await run.checkpoint()
        told = await _until_it_tells_of_all(run)
        went = await run.fresh_client(silent.address, run.stage.proxies[node].address)
    return f"a new client, told of a silent one first, then of {node}{told}, {went}"


async def _until_it_tells_of_all(run: Run) -> str:
    """Wait until each node tells of all: from one that does not nobody learns who leads."""
    began = time.monotonic()
    await run.whole(addresses=True)
    waited = time.monotonic() - began
    return f" (all nodes told of all after {waited:.1f} s)" if waited > 1 else ""


async def _slow_reader(run: Run, planned: Planned) -> str:
    go_on = run.hold_up_reader(planned)
    try:
        await asyncio.sleep(1 + planned.lasts)
    finally:
        go_on()
    await run.checkpoint()
    return f"for {1 + planned.lasts:.1f} s"


async def _flip(run: Run, planned: Planned) -> str:
    way = _way(planned, ONE_WAY)
    async with _on_proxies(planned, run.stage.flipping) as (proxies, nodes):
        for proxy in proxies:
            proxy.flip(way, times=5, rate=1 / 256)
        await asyncio.sleep(planned.lasts)
    for proxy in run.stage.flipping.values():
        await proxy.cut()  # the bytes that follow a damaged length make no sense for ever
    run.reopen_flipped_reader()
    await run.checkpoint()
    return f"at {' and '.join(nodes)}, {way}"


DEEDS: Final[Mapping[Kind, Callable[[Run, Planned], Awaitable[str]]]] = {
    Kind.KILL_LEADER: _kill_leader,
    Kind.KILL_FOLLOWER: _kill_follower,
    Kind.KILL_TWO: _kill_two,
    Kind.KILL_EACH: _kill_each,
    Kind.FREEZE_LEADER: _freeze_leader,
    Kind.ROLLING_RESTART: _rolling_restart,
    Kind.NATS_RESTART: _restart_nats,
    Kind.MOVE_BROKER: _move_broker,
    Kind.CUT: _cut,
    Kind.RESET: _reset,
    Kind.REFUSE: _refuse,
    Kind.HALF_OPEN: _half_open,
    Kind.STALL: _stall,
    Kind.SILENT: _silent,
    Kind.THROTTLE: _throttle,
    Kind.DELAY: _delay,
    Kind.TRUNCATE: _truncate,
    Kind.GOAWAY: _goaway,
    Kind.DEAD_SEED: _dead_seed,
    Kind.SILENT_SEED: _silent_seed,
    Kind.SLOW_READER: _slow_reader,
    Kind.FLIP: _flip,
}


async def try_fresh_client(
    seeds: tuple[str, ...], options: ClientOptions, stream: str, value: bytes
) -> str:
    """Connect, publish a message with ack ALL, and read it; how long each took, in words.

    Raises:
        LiftbridgeError: One of these did not work.
        TimeoutError: Not in time.
    """
    times = [time.monotonic()]
    async with asyncio.timeout(FRESH_CLIENT_TIMEOUT), Client(*seeds, options=options) as client:
        times.append(time.monotonic())
        ack = await client.publish(stream, value, ack_policy=AckPolicy.ALL)
        times.append(time.monotonic())
        async with client.subscribe(stream, start=StartAt.offset(ack.offset)) as messages:
            message = await anext(messages)
            assert (message.offset, message.value) == (ack.offset, value)
    times.append(time.monotonic())
    connected, published, read = (after - before for before, after in pairwise(times))
    return f"connected in {connected:.2f} s, published in {published:.2f} s, read in {read:.2f} s"
