"""The metadata of brokers, streams and partitions; and the health service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import health, proto, rpc
from support.raw import End, Wire, eventually
from support.servers.node import LiftbridgeNode, Server

NEVER = proto.PartitionEventTimestamps()


async def fetch(
    wire: Wire, *streams: str, groups: tuple[str, ...] = ()
) -> proto.FetchMetadataResponse:
    request = proto.FetchMetadataRequest(streams=list(streams), groups=list(groups))
    return await wire.call(rpc.FETCH_METADATA, request, timeout=None)


async def test_the_one_broker_is_where_we_are_connected(wire: Wire, server: Server) -> None:
    [broker] = (await fetch(wire)).brokers
    assert broker.id
    assert (broker.host, broker.port) == (server.host, server.port)


@pytest.fixture
async def quiet_wire(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Wire]:
    """A connection to a server that no other test has used.

    What one test deletes, the counts of a shared server tell of while the next runs.
    """
    if isinstance(server, LiftbridgeNode):
        server = await asyncio.to_thread(request.getfixturevalue("start_real_server"))
    connection = Wire(server.host, server.port)
    yield connection
    connection.close()


async def test_a_broker_counts_the_partitions_it_keeps_and_leads(
    quiet_wire: Wire, stream_name: str
) -> None:
    async def counts_what_is_listed(*, of_ours: int) -> bool:
        reply = await fetch(quiet_wire)
        [broker] = reply.brokers
        listed = {stream.name: stream.partitions for stream in reply.stream_metadata}
        all_partitions = sum(map(len, listed.values()))
        return len(listed.get(stream_name, ())) == of_ours and (
            (broker.partition_count, broker.leader_count) == (all_partitions, all_partitions)
        )

    await quiet_wire.create(stream_name, partitions=3)
    await eventually(partial(counts_what_is_listed, of_ours=3))
    await quiet_wire.delete(stream_name)
    await eventually(partial(counts_what_is_listed, of_ours=0))


async def test_without_names_all_streams_are_listed(wire: Wire, stream_name: str) -> None:
    names = {f"{stream_name}-{number}" for number in range(3)}
    for name in names:
        await wire.create(name)

    listed = [stream.name for stream in (await fetch(wire)).stream_metadata]
    assert names | {"__cursors"} <= set(listed)
    assert len(listed) == len(set(listed))


async def test_names_choose_streams_and_unknown_ones_are_marked(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name)
    await wire.create(f"{stream_name}-not-asked-for")

    reply = await fetch(wire, stream_name, "unknown", groups=("no-group",))
    found = {stream.name: stream for stream in reply.stream_metadata}
    assert set(found) == {stream_name, "unknown"}
    assert found[stream_name].error == proto.StreamMetadataError.OK
    assert found["unknown"] == proto.StreamMetadata(
        name="unknown", error=proto.StreamMetadataError.UNKNOWN_STREAM
    )
    assert reply.group_metadata == [
        proto.ConsumerGroupMetadata(
            group_id="no-group", error=proto.ConsumerGroupMetadataError.UNKNOWN_GROUP
        )
    ]
    assert len(reply.brokers) == 1


async def test_a_stream_tells_its_subject_and_when_it_was_made(
    wire: Wire, stream_name: str
) -> None:
    before = time.time_ns()
    await wire.create(stream_name, subject=f"{stream_name}.subject")
    after = time.time_ns()

    stream = await wire.stream(stream_name)
    assert (stream.name, stream.subject) == (stream_name, f"{stream_name}.subject")
    assert before <= stream.creation_timestamp <= after


async def test_a_partition_tells_its_replicas_and_its_end(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name, partitions=2)
    [broker] = (await fetch(wire)).brokers
    empty = proto.PartitionMetadata(
        id=1,
        leader=broker.id,
        replicas=[broker.id],
        isr=[broker.id],
        high_watermark=-1,
        newest_offset=-1,
        messages_received_timestamps=NEVER,
        pause_timestamps=NEVER,
        readonly_timestamps=NEVER,
    )
    assert await wire.partition(stream_name, 1) == empty

    acks = await wire.publish(stream_name, b"a", b"b", partition=1)
    await wire.stored(stream_name, 2, partition=1)
    filled = await wire.partition(stream_name, 1)
    received = filled.messages_received_timestamps
    assert received is not None
    assert (filled.high_watermark, filled.newest_offset) == (1, 1)
    assert 0 < received.first_timestamp <= acks[0].reception_timestamp
    assert received.first_timestamp < received.latest_timestamp <= acks[1].reception_timestamp


async def test_both_calls_tell_the_same_of_a_partition(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name, partitions=2)
    await wire.publish(stream_name, b"a", partition=1)
    await wire.stored(stream_name, 1, partition=1)
    await wire.set_readonly(stream_name, 1)

    of_stream = (await wire.stream(stream_name)).partitions
    assert set(of_stream) == {0, 1}
    assert of_stream == {n: await wire.partition(stream_name, n) for n in of_stream}
    assert of_stream[1].readonly


@pytest.mark.parametrize("service", ["proto.API", ""])
async def test_a_server_that_answers_is_healthy(wire: Wire, service: str) -> None:
    reply = await wire.call(rpc.HEALTH_CHECK, health.HealthCheckRequest(service=service))
    assert reply.status == health.HealthCheckResponseServingStatus.SERVING


async def test_the_health_of_an_unknown_service_is_unknown(wire: Wire) -> None:
    request = health.HealthCheckRequest(service="no.such.Service")
    end = await wire.refusal(rpc.HEALTH_CHECK, request)
    assert end == End(Status.NOT_FOUND, "unknown service")
