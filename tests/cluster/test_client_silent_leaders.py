"""Calls to a leader that fell silent, whose link broke, or that leads no more."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from itertools import groupby

import pytest

from liftbridge_aio import (
    AckTimeout,
    Client,
    ClientOptions,
    ConnectTimeout,
    PublishOutcomeUnknown,
    RequestTimeout,
)
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.testing import FaultProxy
from support.cluster.proxied import behind_proxies, fall_silent, frozen_leader
from support.faults import BOUND, QUICK, Recorder, eventually, within


@pytest.fixture
async def proxies() -> AsyncIterator[dict[str, FaultProxy]]:
    """One in front of each broker of a cluster, by the broker's own address."""
    async with behind_proxies(2) as (_, found):
        yield found


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
        """The addresses of publish sessions in turn, however often each was connected to."""
        return [
            each for each, _ in groupby(e.address for e in recorder.up if e.purpose == "publish")
        ]

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
        for _ in range(3):
            current = in_use()[-1]
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
    async with frozen_leader(stream_name) as (client, cluster, proxies, recorder):
        leader = cluster.leader_of(stream_name)
        cluster.freeze(leader)
        await eventually(lambda: cluster.leader_of(stream_name) != leader)
        known = len(recorder.up)
        for _ in range(5):
            await client.fetch_metadata()
            state = await client.fetch_partition_metadata(stream_name, 0)
            assert state.leader == cluster.leader_of(stream_name)
        assert proxies[leader].address not in [event.address for event in recorder.up[known:]]

        cluster.thaw(leader)
        proxies[leader].thaw()
        cluster.move_leader(stream_name, 0, leader)
        await eventually(lambda: cluster.leader_of(stream_name) == leader)
        assert (await client.fetch_partition_metadata(stream_name, 0)).leader == leader


async def test_others_are_asked_who_leads_while_a_silent_leader_has_its_second(
    stream_name: str,
) -> None:
    """One wait after the other took longer than a call may (W28)."""
    watched = {"health_interval": 0.3, "health_timeout": 0.2}
    async with frozen_leader(stream_name, **watched) as (client, cluster, _, recorder):
        refreshed, broken = len(recorder.refreshes), len(recorder.down)
        asking = asyncio.create_task(client.fetch_partition_metadata(stream_name, 0))
        await eventually(lambda: len(recorder.refreshes) > refreshed)
        assert len(recorder.down) == broken  # so it is asked still
        assert not asking.done()
        _, other, _ = leader_first(cluster, stream_name)
        cluster.move_leader(stream_name, 0, other)
        assert (await within(BOUND, asking)).leader == other


def leader_first(cluster: EmbeddedCluster, stream: str) -> list[str]:
    """The brokers of a cluster, the leader of a stream at the head."""
    return sorted(cluster.nodes, key=lambda node: node != cluster.leader_of(stream))


def given_up(recorder: Recorder, proxy: FaultProxy) -> int:
    """Return how often a leader was not called because it did not answer health checks."""
    text = f"the leader, {proxy.address}, does not answer health checks"
    return sum(text in str(event.error) for event in recorder.tries)


async def test_a_leader_that_is_found_late_is_called(stream_name: str) -> None:
    """Metadata is asked for again and again while the old one is silent."""
    async with frozen_leader(stream_name) as (client, cluster, proxies, recorder):
        old, new, *_ = sorted(
            cluster.nodes, key=lambda node: node != cluster.leader_of(stream_name)
        )
        asking = asyncio.create_task(client.fetch_partition_metadata(stream_name, 0))
        await eventually(lambda: given_up(recorder, proxies[old]) >= 2)
        cluster.move_leader(stream_name, 0, new)
        assert (await within(2.5, asking)).leader == new


async def test_a_new_leader_that_is_silent_too_is_not_called(stream_name: str) -> None:
    """A call would hang there until its time is up, though a third one leads by then."""
    async with frozen_leader(stream_name) as (client, cluster, proxies, recorder):
        first, second, third = leader_first(cluster, stream_name)
        cluster.move_leader(stream_name, 0, second)
        await client.fetch_partition_metadata(stream_name, 0)
        await fall_silent(proxies[second], recorder)
        cluster.move_leader(stream_name, 0, first)
        await client.fetch_metadata()
        cluster.move_leader(stream_name, 0, second)
        asking = asyncio.create_task(client.fetch_partition_metadata(stream_name, 0))
        await eventually(lambda: given_up(recorder, proxies[second]))
        cluster.move_leader(stream_name, 0, third)
        assert (await within(BOUND, asking)).leader == third


async def test_a_silent_leader_that_nobody_follows_is_waited_for(stream_name: str) -> None:
    """A call that it never got is no call of unknown outcome, and is made once it is back."""
    async with frozen_leader(stream_name) as (client, cluster, proxies, recorder):
        proxy = proxies[cluster.leader_of(stream_name)]
        with pytest.raises(ConnectTimeout, match="does not answer health checks"):
            await client.fetch_partition_metadata(stream_name, 0, timeout=0.3)
        asking = asyncio.create_task(client.fetch_partition_metadata(stream_name, 0))
        await eventually(lambda: given_up(recorder, proxy))
        proxy.thaw()
        assert (await within(BOUND, asking)).newest_offset == -1


async def test_many_calls_to_a_leader_whose_link_broke_once_wait_for_nobody_else(
    stream_name: str,
) -> None:
    """The first that is tried again shows that it lives; the rest need not ask who leads."""
    async with EmbeddedCluster(nodes=3) as cluster, Client(*cluster.addresses) as client:
        await client.create_stream(stream_name, replication_factor=3)
        await client.fetch_partition_metadata(stream_name, 0)
        leader = cluster.nodes[cluster.leader_of(stream_name)]
        for node in cluster.nodes.values():
            node.faults.delay("FetchMetadata", BOUND, times=None)
        lost = leader.faults.drop("FetchPartitionMetadata", times=4)
        calls = [
            asyncio.create_task(client.fetch_partition_metadata(stream_name, 0, timeout=BOUND))
            for _ in range(4)
        ]
        await lost.wait()
        await leader.faults.cut_links()
        states = await within(BOUND / 3, asyncio.gather(*calls))
        assert {state.leader for state in states} == {cluster.leader_of(stream_name)}


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


@pytest.fixture
def dead() -> Iterator[str]:
    """An address that is taken, so that nobody else comes to listen there, and does not listen."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield "{}:{}".format(*nobody.getsockname())


async def test_a_call_that_was_sent_and_not_answered_is_never_called_unsent(
    dead: str, stream_name: str
) -> None:
    """Though another broker could not be reached before: the stream may have been created."""
    options = ClientOptions(call_timeout=0.3, backoff=QUICK)
    async with EmbeddedBroker() as broker:
        for number in range(8):  # whom a client asks first is left to chance
            broker.faults.stall("CreateStream")
            async with Client(dead, broker.address, options=options) as client:
                with pytest.raises(RequestTimeout, match=r"answer within|DEADLINE"):
                    await client.create_stream(f"{stream_name}-{number}")


async def test_what_was_sent_and_lost_stays_so_though_nobody_is_reached_later(
    stream_name: str,
) -> None:
    """A reply is lost, then the server is gone: the stream was created all the same."""
    async with (
        EmbeddedBroker() as broker,
        FaultProxy(broker.address) as proxy,
        Client(broker.address) as witness,
        Client(
            proxy.address,
            options=ClientOptions(
                call_timeout=1.0, backoff=QUICK, address_map=lambda _: proxy.address
            ),
        ) as client,
    ):
        await client.fetch_metadata()
        lost = broker.faults.drop("CreateStream", at="reply")
        creating = asyncio.create_task(client.create_stream(stream_name))
        await lost.wait()
        await proxy.refuse()
        await proxy.cut()
        with pytest.raises(RequestTimeout):
            await creating
        assert stream_name in (await witness.fetch_metadata()).streams


async def test_a_former_leader_that_refuses_does_not_prove_a_pause(stream_name: str) -> None:
    """The flag in metadata stays up after a resume; the new leader has not been asked yet."""
    async with (
        EmbeddedCluster(nodes=3) as cluster,
        Client(*cluster.addresses, options=ClientOptions(backoff=QUICK)) as client,
    ):
        await client.create_stream(stream_name, replication_factor=3)
        await client.publish(stream_name, b"value")
        await client.pause_stream(stream_name)
        await client.publish(stream_name, b"resumes it")
        await client.fetch_metadata()
        _, new, _ = leader_first(cluster, stream_name)
        cluster.move_leader(stream_name, 0, new)
        await eventually(lambda: cluster.leader_of(stream_name) == new)
        state = await client.fetch_partition_metadata(stream_name, 0)
        assert (state.paused, state.leader) == (False, new)


async def test_whatever_waits_for_servers_says_which_were_not_reached(stream_name: str) -> None:
    options = ClientOptions(call_timeout=0.3, backoff=QUICK)
    async with EmbeddedBroker() as broker, Client(broker.address, options=options) as client:
        broker.faults.refuse_links(times=None)
        await broker.faults.cut_links()
        for call in (
            client.resume_stream(stream_name, timeout=1),
            anext(client.subscribe(stream_name, timeout=1)),
            client.fetch_cursor("mine", stream_name, 0, timeout=1),
            client.set_cursor("mine", stream_name, 0, 1, timeout=1),
            client.fetch_partition_metadata(stream_name, 0, timeout=1),
        ):
            with pytest.raises((ConnectTimeout, RequestTimeout), match=broker.address):
                await call


async def test_a_busy_event_loop_leaves_no_time_and_the_reason_is_told(stream_name: str) -> None:
    options = ClientOptions(call_timeout=0.3, backoff=QUICK)
    async with EmbeddedBroker() as broker, Client(broker.address, options=options) as client:
        broker.faults.refuse_links(times=None)
        await broker.faults.cut_links()
        asyncio.get_running_loop().call_later(0.9, time.sleep, 0.5)
        with pytest.raises((ConnectTimeout, RequestTimeout), match=broker.address):
            await anext(client.subscribe(stream_name, timeout=1))
