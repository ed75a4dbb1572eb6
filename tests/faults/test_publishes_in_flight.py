"""10,000 publishes are on their way when something breaks: each of them ends, and in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import (
    Ack,
    AckTimeout,
    Client,
    ClientOptions,
    PublishOutcomeUnknown,
    PublishTimeout,
)
from liftbridge_aio.testing import FaultProxy
from support.faults import (
    BOUND,
    QUICK,
    Options,
    Outcomes,
    Recorder,
    eventually,
    in_flight,
    outcomes_of,
    read_all,
    unless_offsets_repeat,
)
from support.lone_servers import LoneServer
from support.servers.node import Server

pytestmark = pytest.mark.real_time

MANY = 10_000
SOME = 2_000
"""The number of messages for tests in which more would show nothing new."""
LATER = SOME + 200
SLACK = 1.5
"""Seconds that a loaded machine may be late."""

Futures = list[asyncio.Future[Ack]]


async def submit(client: Client, stream: str, count: int = MANY) -> Futures:
    """Publish numbers from 0 up; all of them are in flight when this returns."""
    await client.publish(stream, b"first")  # so that the broker is known to know the stream
    futures = [await client.publish_async(stream, b"%d" % number) for number in range(count)]
    assert in_flight(client) == count
    return futures


def acked_so_far(client: Client) -> int:
    figures = client.statistics().publisher
    return 0 if figures is None else figures.acked


async def check_against_the_log(client: Client, stream: str, outcomes: Outcomes) -> None:
    """Check that the log agrees with the futures, and that acked messages are in order.

    Those with an unknown outcome may be stored late: their bytes may still be on the way, in the
    old connection, when the new one stands.
    """
    stored = [message.value for message in await read_all(client, stream)]
    for number, ack in outcomes.acked.items():
        assert stored[ack.offset] == b"%d" % number
    times = Counter(stored)
    assert max(times[value] for value in times if value.isdigit()) == 1
    assert not [number for number in outcomes.refused if b"%d" % number in times]
    offsets = [ack.offset for _, ack in sorted(outcomes.acked.items())]
    assert offsets == sorted(offsets)


async def works_again(client: Client, stream: str) -> None:
    """The window is empty and new messages go through."""
    assert in_flight(client) == 0
    async with asyncio.timeout(BOUND):
        while True:
            # The last fault may not have been noticed yet.
            with contextlib.suppress(PublishOutcomeUnknown):
                await client.publish(stream, b"last")
                break
    assert in_flight(client) == 0


async def test_a_cut(proxy: FaultProxy, client: Client, stream_name: str) -> None:
    """Unacknowledged messages on the wire are unknown at once; unsent ones are sent later."""
    await client.create_stream(stream_name)
    futures = await submit(client, stream_name)
    await eventually(lambda: acked_so_far(client) > 100)
    await proxy.cut()
    outcomes = await outcomes_of(futures, BOUND)
    assert outcomes.count == MANY
    assert outcomes.acked
    assert outcomes.unknown
    assert not outcomes.refused
    await works_again(client, stream_name)
    await check_against_the_log(client, stream_name, outcomes)


@pytest.fixture
async def impatient(proxy: FaultProxy, options: Options) -> AsyncIterator[Client]:
    """A client behind the proxy that gives its publishes about two seconds."""
    chosen = options(ack_timeout=1.0, publish_timeout=1.0)
    async with Client(proxy.address, options=chosen) as client:
        yield client


async def test_a_half_open_link(
    server: Server, proxy: FaultProxy, impatient: Client, direct: Client, stream_name: str
) -> None:
    """Nothing breaks, nothing comes back: the deadlines end it, written or not.

    The real server's flow-control window holds most messages back, the embedded broker's none.
    """
    count = SOME if server.kind == "embedded" else MANY  # it is slow to digest many afterwards
    await impatient.create_stream(stream_name)
    await impatient.publish(stream_name, b"zeroth")
    proxy.freeze()
    began = asyncio.get_running_loop().time()
    futures = [
        await impatient.publish_async(stream_name, b"%d" % number) for number in range(count)
    ]
    outcomes = await outcomes_of(futures, 1.0 + 1.0 + SLACK)
    took = asyncio.get_running_loop().time() - began
    assert outcomes.count == count
    assert bool(outcomes.refused) is (server.kind != "embedded")
    assert took >= 1.0
    assert not outcomes.acked
    assert {type(error) for error in outcomes.unknown.values()} == {AckTimeout}
    assert {type(error) for error in outcomes.refused.values()} <= {PublishTimeout}
    proxy.thaw()
    await works_again(impatient, stream_name)
    await check_against_the_log(direct, stream_name, outcomes)


async def test_a_half_open_link_that_is_found_out(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str, recorder: Recorder
) -> None:
    """The health probe gives the link up, and with it what was written, long before deadlines."""
    await direct.create_stream(stream_name)
    chosen = options(health_interval=0.3, health_timeout=0.2, publish_timeout=20.0)
    async with Client(proxy.address, options=chosen) as client:
        await client.publish(stream_name, b"zeroth")
        proxy.freeze()
        futures = [
            await client.publish_async(stream_name, b"%d" % number) for number in range(SOME)
        ]
        await eventually(lambda: [event for event in recorder.down if event.purpose == "publish"])
        proxy.thaw()
        outcomes = await outcomes_of(futures, BOUND)
        assert outcomes.count == SOME
        assert outcomes.unknown
        assert not outcomes.refused
        await works_again(client, stream_name)
        await check_against_the_log(client, stream_name, outcomes)


async def test_a_killed_server_that_comes_back(crashable: LoneServer, stream_name: str) -> None:
    count = MANY if crashable.kind == "embedded" else MANY // 2  # the disk is slow
    # A real server that has just started loses what comes before its partitions are ready.
    options = ClientOptions(backoff=QUICK, ack_timeout=2.0)
    async with Client(crashable.address, options=options) as client:
        await client.create_stream(stream_name)
        futures = await submit(client, stream_name, count)
        await eventually(lambda: acked_so_far(client) > 100)
        # However quick the server was, some are in flight now: nothing was read since they went.
        more = range(count, count + SOME)
        futures += [await client.publish_async(stream_name, b"%d" % number) for number in more]
        await crashable.crash()
        await crashable.start()
        outcomes = await outcomes_of(futures, BOUND)
        assert outcomes.count == count + SOME
        assert outcomes.acked
        assert outcomes.unknown
        assert not outcomes.refused
        await works_again(client, stream_name)
        with unless_offsets_repeat(crashable, stream_name):
            await check_against_the_log(client, stream_name, outcomes)


async def test_a_killed_server_that_stays_away(crashable: LoneServer, stream_name: str) -> None:
    options = ClientOptions(backoff=QUICK, ack_timeout=1.0, publish_timeout=1.0)
    async with Client(crashable.address, options=options) as client:
        await client.create_stream(stream_name)
        futures = await submit(client, stream_name, SOME)
        await eventually(lambda: acked_so_far(client) > 100)
        await crashable.crash()
        await eventually(lambda: not client.statistics().connections)
        futures += [await client.publish_async(stream_name, b"%d" % n) for n in range(SOME, LATER)]
        outcomes = await outcomes_of(futures, 1.0 + 1.0 + SLACK)
        assert outcomes.count == LATER
        assert {type(error) for error in outcomes.refused.values()} == {PublishTimeout}
        assert outcomes.refused.keys() >= set(range(SOME, LATER))
        await crashable.start()
        await works_again(client, stream_name)
        await check_against_the_log(client, stream_name, outcomes)
