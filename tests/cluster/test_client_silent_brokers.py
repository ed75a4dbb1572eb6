"""Brokers that take connections and never answer, or answer that they know nothing yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from cluster.support import EARLIEST
from faults.support import BOUND, QUICK, Recorder, eventually, take, within
from liftbridge_aio import (
    AckTimeout,
    Client,
    ClientOptions,
    PublishOutcomeUnknown,
    RequestTimeout,
)
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.status import CallFailure
from liftbridge_aio.testing import FaultProxy
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.rpc import FETCH_METADATA


@asynccontextmanager
async def behind_proxies(
    nodes: int,
) -> AsyncIterator[tuple[EmbeddedCluster, dict[str, FaultProxy]]]:
    """A cluster, and a proxy in front of each broker by the broker's own address."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EmbeddedCluster(nodes=nodes))
        yield (
            cluster,
            {
                address: await stack.enter_async_context(FaultProxy(address))
                for address in cluster.addresses
            },
        )


@pytest.fixture
async def proxies() -> AsyncIterator[dict[str, FaultProxy]]:
    """One in front of each broker of a cluster, by the broker's own address."""
    async with behind_proxies(2) as (_, found):
        yield found


@asynccontextmanager
async def frozen_leader(
    stream: str,
) -> AsyncIterator[tuple[Client, EmbeddedCluster, FaultProxy, Recorder]]:
    """A client whose link to the leader of a stream just broke for its silence.

    Yields:
        The client, the cluster, the proxy of the leader, and what the client told.
    """
    async with behind_proxies(3) as (cluster, proxies):
        recorder = Recorder()
        options = ClientOptions(
            hook=recorder,
            backoff=QUICK,
            health_interval=0.3,
            health_timeout=0.2,
            address_map=lambda advertised: proxies[advertised].address,
        )
        seeds = [proxy.address for proxy in proxies.values()]
        async with Client(*seeds, options=options) as client:
            await client.create_stream(stream, replication_factor=3)
            leader = cluster.leader_of(stream)
            await client.fetch_partition_metadata(stream, 0)
            silent = proxies[cluster.nodes[leader].address]
            silent.freeze()
            await eventually(lambda: silent.address in [each.address for each in recorder.down])
            yield client, cluster, silent, recorder


async def test_whoever_falls_silent_is_left_for_another(
    proxies: dict[str, FaultProxy], stream_name: str
) -> None:
    recorder = Recorder()
    options = ClientOptions(
        hook=recorder,
        backoff=QUICK,
        health_interval=0.6,
        health_timeout=0.5,
        ack_timeout=0.5,
        address_map=lambda advertised: proxies[advertised].address,
    )
    seeds = [proxy.address for proxy in proxies.values()]
    by_address = dict(zip(seeds, proxies.values(), strict=True))

    def in_use() -> list[str]:
        """The addresses of publish sessions, in the order of connecting."""
        return [event.address for event in recorder.up if event.purpose == "publish"]

    async with Client(*seeds, options=options) as client:
        await client.create_stream(stream_name, replication_factor=2)

        async def until_acked() -> None:
            while True:
                try:
                    await client.publish(stream_name, b"value")
                except PublishOutcomeUnknown:
                    continue
                return

        await client.publish(stream_name, b"value")
        for number in range(3):
            current = in_use()[number]
            for address, proxy in by_address.items():
                proxy.freeze() if address == current else proxy.thaw()
            with pytest.raises(AckTimeout):
                await client.publish(stream_name, b"value")
            await within(BOUND, until_acked())
    first, second, *then = in_use()
    assert {first, second} == set(seeds)
    assert then == [first, second]


async def test_nobody_is_asked_first_whose_link_broke_for_its_silence(stream_name: str) -> None:
    """It takes connections still, and would be waited for again."""
    async with frozen_leader(stream_name) as (client, cluster, proxy, recorder):
        leader = cluster.leader_of(stream_name)
        cluster.freeze(leader)
        await eventually(lambda: cluster.leader_of(stream_name) != leader)
        known = len(recorder.up)
        for _ in range(5):
            await client.fetch_metadata()
            state = await client.fetch_partition_metadata(stream_name, 0)
            assert state.leader == cluster.leader_of(stream_name)
        assert proxy.address not in [event.address for event in recorder.up[known:]]

        cluster.thaw(leader)
        proxy.thaw()
        cluster.move_leader(stream_name, 0, leader)
        await eventually(lambda: cluster.leader_of(stream_name) == leader)
        assert (await client.fetch_partition_metadata(stream_name, 0)).leader == leader


async def test_others_are_asked_who_leads_while_a_silent_leader_has_its_second(
    stream_name: str,
) -> None:
    """One wait after the other took longer than a call may (W28)."""
    async with frozen_leader(stream_name) as (client, cluster, _, recorder):
        refreshed, broken = len(recorder.refreshes), len(recorder.down)
        asking = asyncio.create_task(client.fetch_partition_metadata(stream_name, 0))
        await eventually(lambda: len(recorder.refreshes) > refreshed)
        assert len(recorder.down) == broken  # so it is asked still
        others = [node for node in cluster.nodes if node != cluster.leader_of(stream_name)]
        cluster.move_leader(stream_name, 0, others[0])
        assert (await within(BOUND, asking)).leader == others[0]


async def test_a_silent_leader_that_nobody_follows_is_waited_for(stream_name: str) -> None:
    """A call that it never got is no call of unknown outcome, and is made once it is back."""
    async with frozen_leader(stream_name) as (client, _, proxy, recorder):
        asking = asyncio.create_task(client.fetch_partition_metadata(stream_name, 0))
        await eventually(lambda: recorder.tries)
        assert "no sign of life" in str(recorder.tries[0].error)
        proxy.thaw()
        assert (await within(BOUND, asking)).newest_offset == -1


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
    """What one broker knows is not forgotten because another does not know it."""
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


async def test_a_call_that_was_sent_and_not_answered_is_never_called_unsent(
    stream_name: str,
) -> None:
    """Though another broker could not be reached before: the stream may have been created."""
    nobody = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    dead = "{}:{}".format(*nobody.sockets[0].getsockname())
    nobody.close()
    options = ClientOptions(call_timeout=0.3, backoff=QUICK)
    async with EmbeddedBroker() as broker:
        for number in range(8):  # whom a client asks first is left to chance
            broker.faults.stall("CreateStream")
            async with Client(dead, broker.address, options=options) as client:
                with pytest.raises(RequestTimeout, match="no answer"):
                    await client.create_stream(f"{stream_name}-{number}")


async def test_who_takes_connections_and_drops_them_gives_no_sign_of_life() -> None:
    """As a balancer does whose server is dead."""
    balancer = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    address = "{}:{}".format(*balancer.sockets[0].getsockname())
    async with balancer, EmbeddedBroker() as broker, Client(broker.address) as client:
        assert client._parts is not None
        router = client._parts.connection.router
        assert await router.answers(address)  # nothing is known against it
        with pytest.raises(CallFailure):
            await router.call_once(address, FETCH_METADATA, proto.FetchMetadataRequest(), 5.0)
        assert not await router.answers(address)
        assert not await router.answers(address)
        assert await router.answers(broker.address)


async def test_a_leader_whose_link_broke_once_still_says_how_its_partition_is(
    stream_name: str,
) -> None:
    """Others are asked who leads only if it is gone; their flag of a pause stays up for ever."""
    recorder = Recorder()
    options = ClientOptions(backoff=QUICK, hook=recorder)
    async with (
        EmbeddedCluster(nodes=3) as cluster,
        Client(*cluster.addresses, options=options) as client,
    ):
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"value")
        await client.pause_stream(stream_name)
        await client.publish(stream_name, b"resumes it")
        leader = cluster.nodes[cluster.leader_of(stream_name)]
        before = await client.fetch_partition_metadata(stream_name, 0)
        await leader.faults.cut_links()
        await eventually(lambda: leader.address in [event.address for event in recorder.down])
        for _ in range(3):
            state = await client.fetch_partition_metadata(stream_name, 0)
            assert (
                (state.paused, state.newest_offset) == (False, before.newest_offset) == (False, 1)
            )


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
