"""A client's statistics of connections, subscriptions and publishes, without a request."""

from __future__ import annotations

from typing import Final

import pytest

from liftbridge_aio import (
    Client,
    ClientStatistics,
    ConnectionStatistics,
    Record,
    StartAt,
    SubscriptionStatistics,
)
from support.clients import EARLIEST, take
from support.raw import BOUND, Wire, eventually
from support.servers.node import Server

pytestmark = pytest.mark.parametrize("data_path", ["lane"], indirect=True)  # nothing of it shows

COUNT: Final = 5


async def filled(client: Client, stream: str, partitions: int = 1) -> None:
    await client.create_stream(stream, partitions=partitions)
    for partition in range(partitions):
        await client.publish_many(stream, [Record(b"x", partition=partition)] * COUNT)


def positions(client: Client) -> list[tuple[int, int | None, int | None]]:
    """Partition, position and lag of all that is read."""
    return [(it.partition, it.position, it.lag) for it in client.statistics().subscriptions]


async def test_each_connection_is_a_record(client: Client, server: Server) -> None:
    assert client.statistics().connections == (
        ConnectionStatistics(server.address, "control", "up", None),
    )
    took = await client.ping()
    [record] = client.statistics().connections
    assert record.round_trip_time is not None
    assert 0 < record.round_trip_time <= took < BOUND


async def test_a_subscription_tells_its_position_and_lag(
    client: Client, server: Server, stream_name: str
) -> None:
    await filled(client, stream_name)
    async with client.subscribe(stream_name, partition=0, start=EARLIEST) as subscription:
        await take(subscription, 2)
        assert client.statistics().subscriptions == (
            SubscriptionStatistics(stream_name, 0, server.address, position=2, lag=COUNT - 2),
        )
        await take(subscription, COUNT - 2)
        assert positions(client) == [(0, COUNT, 0)]
    assert client.statistics().subscriptions == ()


async def test_reading_new_messages_only_begins_without_lag(
    client: Client, stream_name: str
) -> None:
    await filled(client, stream_name)
    async with client.subscribe(stream_name, partition=0):
        assert positions(client) == [(0, COUNT, 0)]


async def test_a_paused_subscription_falls_behind(client: Client, stream_name: str) -> None:
    await filled(client, stream_name)
    async with client.subscribe(stream_name, partition=0, start=EARLIEST) as subscription:
        await take(subscription, COUNT)
        subscription.pause()
        await client.publish_many(stream_name, [b"y"] * COUNT)

        async def has_come() -> bool:
            return positions(client) == [(0, COUNT, COUNT)]

        await eventually(has_come)
        subscription.resume()
        await take(subscription, COUNT)
        assert positions(client) == [(0, 2 * COUNT, 0)]


async def test_nothing_is_made_up(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    async with client.subscribe(stream_name, partition=0, start=EARLIEST):
        assert positions(client) == [(0, None, None)]
    await client.publish(stream_name, b"")
    async with client.subscribe(stream_name, partition=0, start=StartAt.offset(0), reverse=True):
        assert positions(client) == [(0, 0, None)]  # whoever reads backwards has no lag


async def test_a_subscription_that_began_on_an_empty_log_has_a_lag(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    async with client.subscribe(stream_name, partition=0, start=EARLIEST) as subscription:
        await client.publish_many(stream_name, [b"x"] * COUNT)

        async def has_come() -> bool:
            return subscription.statistics().buffered == COUNT

        await eventually(has_come)
        await anext(subscription)
        assert positions(client) == [(0, 1, COUNT - 1)]


async def test_partitions_read_as_one_are_told_apart(client: Client, stream_name: str) -> None:
    await filled(client, stream_name, partitions=2)
    async with client.subscribe(stream_name, start=EARLIEST) as subscription:
        await subscription.seek({0: 1, 1: 3})
        assert sorted(positions(client)) == [(0, 1, COUNT - 1), (1, 3, COUNT - 3)]


async def test_what_groups_read_counts_too(client: Client, stream_name: str) -> None:
    await filled(client, stream_name)
    async with client.group(f"of-{stream_name}", [stream_name], start=EARLIEST) as group:
        async for _ in group:
            break
        assert positions(client) == [(0, 1, COUNT - 1)]


async def test_a_log_created_anew_owes_nothing_to_the_former(
    client: Client, wire: Wire, stream_name: str
) -> None:
    await filled(client, stream_name)
    async with client.subscribe(stream_name, partition=0):
        assert positions(client) == [(0, COUNT, 0)]
    await wire.delete(stream_name)
    await wire.create(stream_name)

    async def renewed() -> bool:
        async with client.subscribe(stream_name, partition=0, start=StartAt.offset(0)):
            return positions(client) == [(0, 0, None)]

    await eventually(renewed)


async def test_a_client_that_is_not_connected_has_nothing(server: Server) -> None:
    client = Client(server.address)
    assert client.statistics() == ClientStatistics((), (), None)
    async with client:
        publisher = client.statistics().publisher
        assert publisher is not None
        assert publisher.in_flight == 0
    assert client.statistics() == ClientStatistics((), (), publisher)
