"""Messages of a partition stand in the order of publishing, whatever happens on the way."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from liftbridge_aio import AckPolicy, Client, ClientOptions, PublishTimeout, StreamNotFound
from liftbridge_aio.testing import FaultProxy
from support.faults import (
    BOUND,
    QUICK,
    Options,
    Outcomes,
    eventually,
    in_flight,
    outcomes_of,
    read_all,
)

pytestmark = pytest.mark.real_time


def refusals(client: Client, stream: str, partition: int = 0) -> int:
    """Return how often the broker has refused a publish because it does not know the stream."""
    assert client._parts is not None
    return client._parts.publisher._dispatcher.routes[stream, partition].retries


def assert_in_order(outcomes: Outcomes, published: range) -> None:
    """Assert that acked messages have offsets in the order of publishing.

    Messages with an unknown outcome may be stored late, when the bytes of the old connection
    arrive after those of the new one.
    """
    offsets = [outcomes.acked[n].offset for n in published if n in outcomes.acked]
    assert offsets == sorted(set(offsets))


def at_most(client: Client, count: int) -> bool:
    return in_flight(client) <= count


async def numbers(client: Client, stream: str, partition: int = 0) -> list[int]:
    return [int(message.value) for message in await read_all(client, stream, partition)]


async def test_published_behind_one_that_is_taken_back_before_the_session_stands(
    client: Client, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    unacked = await client.publish_async(stream_name, b"0", ack_policy=AckPolicy.NONE)
    taken_back = await client.publish_async(stream_name, b"1")
    last = await client.publish_async(stream_name, b"2")
    taken_back.cancel()
    assert (await outcomes_of([last], BOUND)).acked
    assert await unacked is None
    assert await numbers(direct, stream_name) == [0, 2]


async def test_published_before_the_stream_is_known(
    client: Client, direct: Client, stream_name: str
) -> None:
    """Right after a creation brokers may not know a stream; nothing is overtaken meanwhile."""
    futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(300)]
    await eventually(lambda: refusals(client, stream_name) >= 3)
    await direct.create_stream(stream_name)
    futures += [await client.publish_async(stream_name, b"%d" % n) for n in range(300, 600)]
    assert len((await outcomes_of(futures, BOUND)).acked) == 600
    assert await numbers(direct, stream_name) == list(range(600))
    assert in_flight(client) == 0


async def test_several_partitions_at_once(client: Client, direct: Client, stream_name: str) -> None:
    futures = [
        await client.publish_async(stream_name, b"%d" % n, partition=n % 3) for n in range(300)
    ]
    await eventually(lambda: min(refusals(client, stream_name, p) for p in range(3)) >= 2)
    await direct.create_stream(stream_name, partitions=3)
    assert len((await outcomes_of(futures, BOUND)).acked) == 300
    for partition in range(3):
        assert await numbers(direct, stream_name, partition) == list(range(partition, 300, 3))


async def test_cut_while_the_stream_is_not_known(
    proxy: FaultProxy, client: Client, direct: Client, stream_name: str
) -> None:
    futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(300)]
    await eventually(lambda: refusals(client, stream_name) >= 2)
    await proxy.cut()
    await direct.create_stream(stream_name)
    outcomes = await outcomes_of(futures, BOUND)
    assert len(outcomes.acked) >= 299  # one may have been on its way alone
    assert not outcomes.refused
    assert_in_order(outcomes, range(300))


async def test_a_short_ack_timeout_does_not_count_before_the_stream_is_known(
    options: Options, proxy: FaultProxy, direct: Client, stream_name: str
) -> None:
    """Messages that were refused are certainly not stored: their outcome is not unknown."""
    patience = 1.0
    async with Client(proxy.address, options=options(ack_timeout=patience)) as client:
        futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(100)]
        now = asyncio.get_running_loop().time
        began = now()
        await eventually(lambda: now() > began + patience and refusals(client, stream_name) >= 30)
        await direct.create_stream(stream_name)
        assert len((await outcomes_of(futures, BOUND)).acked) == 100
        assert await numbers(direct, stream_name) == list(range(100))


async def test_a_stream_that_nobody_creates(
    options: Options, proxy: FaultProxy, stream_name: str
) -> None:
    """All of them end, soon after the time for it, in an error that names the stream."""
    async with Client(proxy.address, options=options(not_found_timeout=0.5)) as client:
        futures = [await client.publish_async(stream_name, b"") for _ in range(300)]
        began = asyncio.get_running_loop().time()
        outcomes = await outcomes_of(futures, 0.5 + 1.5)
        assert asyncio.get_running_loop().time() - began > 0.3
        assert {type(error) for error in outcomes.refused.values()} == {StreamNotFound}
        assert {error.stream for error in outcomes.refused.values()} == {stream_name}
        assert len(outcomes.refused) == 300
        assert in_flight(client) == 0


async def test_deleted_and_created_anew_under_load(
    options: Options, proxy: FaultProxy, direct: Client, stream_name: str
) -> None:
    """The new stream stores its messages in order."""
    await direct.create_stream(stream_name)
    async with Client(proxy.address, options=options(ack_timeout=1.0)) as client:
        await client.publish(stream_name, b"0")
        futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(1, 3000)]
        await eventually(lambda: in_flight(client) < 2900)
        await direct.delete_stream(stream_name)
        await direct.create_stream(stream_name)
        outcomes = await outcomes_of(futures, BOUND)
        assert outcomes.count == 2999
        stored = await numbers(direct, stream_name)
        assert stored == sorted(set(stored))


async def test_with_cuts_each_partition_keeps_its_order(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=4)
    futures = [
        await client.publish_async(stream_name, b"%d" % n, partition=n % 4) for n in range(2000)
    ]
    for goal in (1500, 1000, 500):
        await eventually(partial(at_most, client, goal))
        await proxy.cut()
    outcomes = await outcomes_of(futures, BOUND)
    assert not outcomes.refused
    for partition in range(4):
        stored = await numbers(client, stream_name, partition)
        assert len(stored) == len(set(stored))
        assert_in_order(outcomes, range(partition, 2000, 4))
        assert {n for n in outcomes.acked if n % 4 == partition} <= set(stored)


async def test_queued_while_nobody_could_be_reached(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    """Messages of other partitions do not wait for each other, those of one stand in line."""
    await client.create_stream(stream_name, partitions=2)
    await client.publish(stream_name, b"0", partition=0)
    await proxy.refuse()
    await proxy.cut()
    futures = [
        await client.publish_async(stream_name, b"%d" % n, partition=n % 2) for n in range(1, 500)
    ]
    futures[100].cancel()
    await proxy.accept()
    del futures[100]
    outcomes = await outcomes_of(futures, BOUND)
    assert not outcomes.refused
    for partition in range(2):
        stored = await numbers(client, stream_name, partition)
        assert stored == sorted(set(stored))
        assert 101 not in stored


async def test_the_time_to_reach_anybody_is_bounded(proxy: FaultProxy, stream_name: str) -> None:
    options = ClientOptions(backoff=QUICK, publish_timeout=0.4, address_map=lambda _: proxy.address)
    async with Client(proxy.address, options=options) as client:
        await client.create_stream(stream_name)
        await proxy.refuse()
        await proxy.cut()
        with pytest.raises(PublishTimeout):
            await client.publish(stream_name, b"")
