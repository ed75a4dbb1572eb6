"""The metadata of brokers, streams and partitions; and the health service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import health, proto, rpc
from support.raw import End, Wire, eventually
from support.servers.node import LiftbridgeNode, Server


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
