"""The client's metadata of the cluster, and its requests for it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from liftbridge_aio import Client, ClientOptions, Metadata, PartitionNotFound, StreamNotFound
from support.marks import ON_ONE_PATH
from support.raw import Wire, eventually
from support.servers.node import Server

pytestmark = ON_ONE_PATH  # it is about calls, which go over the same connections on both


async def test_a_client_knows_its_cluster_once_it_is_connected(
    client: Client, server: Server
) -> None:
    snapshot = client.metadata
    [broker] = snapshot.brokers.values()
    assert broker.address == server.address
    assert snapshot.brokers[broker.id] is broker
    assert snapshot.last_updated is not None
    assert timedelta(0) <= datetime.now(UTC) - snapshot.last_updated < timedelta(seconds=30)


async def test_before_it_is_connected_a_client_knows_nothing(server: Server) -> None:
    client = Client(server.address)
    assert client.metadata == Metadata()
    assert client.metadata.last_updated is None


async def test_a_stream_is_known_once_it_was_asked_for_until_it_is_deleted(
    client: Client, stream_name: str
) -> None:
    assert client.metadata.partition_count(stream_name) is None
    await client.create_stream(stream_name, f"{stream_name}.subject", partitions=3)
    await client.fetch_metadata([stream_name])

    info = client.metadata.streams[stream_name]
    assert (info.name, info.subject) == (stream_name, f"{stream_name}.subject")
    assert client.metadata.partition_count(stream_name) == 3
    assert sorted(info.partitions) == [0, 1, 2]
    assert abs(datetime.now(UTC) - info.creation_time) < timedelta(seconds=30)
    for number in range(3):
        partition = client.metadata.partition(stream_name, number)
        leader = client.metadata.leader(stream_name, number)
        assert partition is not None
        assert leader is not None
        assert partition.id == number
        assert partition.leader == leader.id
        assert partition.replicas == partition.isr == (leader.id,)
        assert not partition.paused
        assert not partition.readonly
    assert client.metadata.partition(stream_name, 3) is None
    assert client.metadata.leader(stream_name, 3) is None

    await client.delete_stream(stream_name)
    assert client.metadata.partition_count(stream_name) is None


async def test_a_snapshot_never_changes(client: Client, stream_name: str) -> None:
    before = client.metadata
    await client.create_stream(stream_name)
    await client.fetch_metadata([stream_name])

    assert client.metadata is not before
    assert stream_name not in before.streams
    assert stream_name in client.metadata.streams
    streams: Any = client.metadata.streams
    with pytest.raises(TypeError):
        streams[stream_name] = None
    partitions: Any = client.metadata.streams[stream_name].partitions
    with pytest.raises(TypeError):
        partitions[0] = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        client.metadata.last_updated = None  # type: ignore[misc]


async def test_fetching_shows_what_others_did(client: Client, wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name, partitions=2)
    assert client.metadata.partition_count(stream_name) is None

    before = client.metadata.last_updated
    fetched = await client.fetch_metadata()
    assert fetched is client.metadata
    assert fetched.partition_count(stream_name) == 2
    assert fetched.last_updated is not None
    assert before is not None
    assert fetched.last_updated > before

    await wire.delete(stream_name)
    assert client.metadata.partition_count(stream_name) == 2

    async def forgotten() -> bool:
        return (await client.fetch_metadata()).partition_count(stream_name) is None

    await eventually(forgotten)


async def test_fetching_some_streams_keeps_what_is_known_of_others(
    client: Client, wire: Wire, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.fetch_metadata([stream_name])
    other = f"{stream_name}-other"
    await wire.create(other, partitions=2)

    fetched = await client.fetch_metadata([other])
    assert fetched.partition_count(other) == 2
    assert fetched.partition_count(stream_name) == 1
    await wire.delete(stream_name)
    assert (await client.fetch_metadata([other])).partition_count(stream_name) == 1
    assert (await client.fetch_metadata([stream_name])).partition_count(stream_name) is None


async def test_unknown_streams_and_groups_are_simply_absent(
    client: Client, stream_name: str
) -> None:
    fetched = await client.fetch_metadata([stream_name], [stream_name])
    assert stream_name not in fetched.streams
    assert stream_name not in fetched.groups


async def test_partition_metadata_follows_the_partition(
    client: Client, server: Server, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    empty = await client.fetch_partition_metadata(stream_name, 1)
    assert (empty.id, empty.high_watermark, empty.newest_offset) == (1, -1, -1)
    assert (empty.messages_received.first, empty.messages_received.latest) == (None, None)
    assert client.metadata.brokers[empty.leader].address == server.address

    acks = [await client.publish(stream_name, b"", partition=1) for _ in range(3)]
    times = [ack.reception_timestamp for ack in acks]
    info = await client.fetch_partition_metadata(stream_name, 1)
    assert (info.high_watermark, info.newest_offset) == (2, 2)
    first, latest = info.messages_received.first, info.messages_received.latest
    assert first is not None
    assert latest is not None
    assert abs(first - times[0]) < 10**9
    assert abs(latest - times[2]) < 10**9
    assert first <= latest

    await client.set_stream_readonly(stream_name, [1])
    assert (await client.fetch_partition_metadata(stream_name, 1)).readonly
    assert not (await client.fetch_partition_metadata(stream_name, 0)).readonly


async def test_partition_metadata_tells_paused_from_resumed(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"")

    await client.pause_stream(stream_name)
    assert (await client.fetch_partition_metadata(stream_name, 0)).paused
    await client.publish(stream_name, b"")
    info = await client.fetch_partition_metadata(stream_name, 0)
    assert not info.paused
    assert info.newest_offset == 1


async def test_partition_metadata_of_what_is_not_there(
    client: Client, impatient: Client, stream_name: str
) -> None:
    with pytest.raises(StreamNotFound) as no_stream:
        await impatient.fetch_partition_metadata(stream_name, 0)
    assert no_stream.value.stream == stream_name
    await client.create_stream(stream_name, partitions=2)
    with pytest.raises(PartitionNotFound) as no_partition:
        await client.fetch_partition_metadata(stream_name, 2)
    assert (no_partition.value.stream, no_partition.value.partition) == (stream_name, 2)


async def test_addresses_can_be_mapped(server: Server, stream_name: str) -> None:
    asked: list[str] = []

    def mapping(address: str) -> str:
        asked.append(address)
        return f"localhost:{address.rpartition(':')[2]}"

    async with Client(server.address, options=ClientOptions(address_map=mapping)) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"")
        connections = client.statistics().connections
    assert set(asked) == {server.address}
    publishing = [each.address for each in connections if each.purpose == "publish"]
    assert publishing == [f"localhost:{server.port}"]
