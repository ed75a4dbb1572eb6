"""Brokers that take connections and never answer, or answer that they know nothing yet."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
)
from liftbridge_aio._core.status import CallFailure
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.rpc import FETCH_METADATA
from support.cluster.nodes import EARLIEST
from support.faults import BOUND, QUICK, Recorder, eventually, take, within


async def test_a_leader_that_one_broker_does_not_tell_of_is_asked_for_elsewhere(
    stream_name: str,
) -> None:
    """After it was frozen v1.9.0 may tell of some brokers only, for minutes (W29)."""
    async with (
        EmbeddedCluster(nodes=3) as cluster,
        Client(*cluster.addresses) as founder,
    ):
        await founder.create_stream(stream_name, replication_factor=3)
        await founder.publish(stream_name, b"value")
        cluster.move_leader(stream_name, 0, "n2")
        cluster.hide_broker("n2", from_node="n1")
        async with Client(cluster.nodes["n1"].address, options=ClientOptions(backoff=QUICK)) as one:
            reading = take(one.subscribe(stream_name, start=EARLIEST), 1)
            assert [message.value for message in await within(BOUND, reading)] == [b"value"]
            assert (await one.fetch_partition_metadata(stream_name, 0)).leader == "n2"


async def test_who_is_asked_too_may_not_have_heard_of_the_stream(stream_name: str) -> None:
    """The client keeps one broker's metadata of a stream that another does not know."""
    async with (
        EmbeddedCluster(nodes=3) as cluster,
        Client(cluster.nodes["n1"].address, options=ClientOptions(backoff=QUICK)) as client,
    ):
        cluster.hide_broker("n3", from_node="n1")
        cluster.hold_metadata("n2")
        async with Client(cluster.nodes["n1"].address) as founder:
            names = [f"{stream_name}-{number}" for number in range(15)]
            for name in names:
                await founder.create_stream(name)
        unlisted = [name for name in names if cluster.leader_of(name) == "n3"]
        assert unlisted
        for name in unlisted:
            async with client.subscribe(name, start=EARLIEST):
                assert client.metadata.partition(name, 0) is not None


async def test_who_takes_connections_and_drops_them_gives_no_sign_of_life() -> None:
    """As a balancer does whose server is dead."""
    balancer = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    address = "{}:{}".format(*balancer.sockets[0].getsockname())
    async with balancer, EmbeddedBroker() as broker, Client(broker.address) as client:
        assert client._parts is not None
        router = client._parts.network.router
        assert await router.is_alive(address)  # nothing is known against it
        with pytest.raises(CallFailure):
            await router.call_once(address, FETCH_METADATA, proto.FetchMetadataRequest(), 5.0)
        assert not await router.is_alive(address)
        assert not await router.is_alive(address)
        assert await router.is_alive(broker.address)


async def test_a_leader_that_does_not_know_its_partition_yet_is_waited_for(
    stream_name: str,
) -> None:
    """As one that was restarted; the others know it, so the stream is not gone."""
    patience = ClientOptions(backoff=QUICK, not_found_timeout=0.2)
    async with (
        EmbeddedCluster(nodes=3) as cluster,
        Client(*cluster.addresses, options=patience) as client,
    ):
        [late, *_] = cluster.nodes
        cluster.hold_metadata(late)
        names = [f"{stream_name}-{number}" for number in range(3)]
        for name in names:
            await client.create_stream(name)
        [of_late] = [name for name in names if cluster.leader_of(name) == late]
        tries = Recorder()
        options = replace(patience, hook=tries)
        knowing = [node.address for node_id, node in cluster.nodes.items() if node_id != late]
        async with Client(*knowing, options=options) as reader:
            reading = asyncio.create_task(take(reader.subscribe(of_late, start=EARLIEST), 1))
            began = asyncio.get_running_loop().time()
            await eventually(lambda: tries.tries and tries.tries[-1].attempt > 5)
            await eventually(lambda: asyncio.get_running_loop().time() > began + 0.5)
            cluster.release_metadata(late)
            await eventually(lambda: tries.started)
            await reader.publish(of_late, b"value")
            assert [message.value for message in await reading] == [b"value"]
