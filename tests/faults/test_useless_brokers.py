"""Brokers that answer and are of no use: publishing goes on through others, before time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from liftbridge_aio import Client, ClientOptions, PublishOutcomeUnknown, Retry, StreamNotFound
from liftbridge_aio._publish import session as publish_session
from liftbridge_aio._publish import session_pool
from liftbridge_aio._publish.broker_selection import choose_broker
from liftbridge_aio.broker import EmbeddedCluster
from liftbridge_aio.telemetry import Connected
from liftbridge_aio.testing import Direction, FaultProxy
from support.faults import QUICK, Recorder, eventually, within

SOON = 3.0
"""Seconds; far less than a publish may wait (30), or asks again for a stream (5)."""
PARTITIONS = 12
STREAMS = 24


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as cluster:
        yield cluster


async def test_whoever_takes_connections_and_drops_them_is_left(cluster: EmbeddedCluster) -> None:
    """As a proxy or a balancer does whose server is dead."""
    addresses = cluster.addresses
    async with FaultProxy(addresses[0]) as proxy:
        options = ClientOptions(
            backoff=QUICK,
            address_map=lambda told: proxy.address if told == addresses[0] else told,
        )
        async with Client(*addresses[1:], options=options) as client:
            await client.create_stream("s", partitions=PARTITIONS, replication_factor=3)
            proxy.truncate(Direction.TO_CLIENTS, times=None)

            async def acked(partition: int) -> int:
                while True:
                    try:
                        return (await client.publish("s", b"", partition=partition)).offset
                    except PublishOutcomeUnknown:  # written before the connection broke
                        continue

            offsets = await within(SOON, asyncio.gather(*map(acked, range(PARTITIONS))))
            assert max(offsets) <= 2  # it was left after the second connection that broke
            assert proxy.statistics().connections


async def test_whoever_does_not_know_the_stream_yet_is_passed_over(
    cluster: EmbeddedCluster,
) -> None:
    """As a broker that has been started again and has not caught up."""
    async with Client(*cluster.addresses, options=ClientOptions(backoff=QUICK)) as client:
        late = next(iter(cluster.nodes))
        cluster.hold_metadata(late)
        names = [f"s{number}" for number in range(STREAMS)]
        for name in names:
            await client.create_stream(name)
        brokers = (await client.fetch_metadata(names)).brokers
        concerned = [
            name
            for name in names
            if choose_broker(name, 0, brokers)[0] == late != cluster.leader_of(name)
        ]
        assert concerned
        acks = await within(SOON, asyncio.gather(*(client.publish(n, b"") for n in concerned)))
        assert [ack.offset for ack in acks] == [0] * len(concerned)


class OneProxied(NamedTuple):
    """A client that reaches one broker of three through a proxy only."""

    proxy: FaultProxy
    client: Client
    recorder: Recorder

    async def publish_everywhere(self) -> None:
        for partition in range(PARTITIONS):
            await within(SOON, self.client.publish("s", b"", partition=partition, retry=Retry()))

    @property
    def connected(self) -> int:
        """The number of publish connections that it has opened through the proxy."""
        return self.recorder.up.count(Connected(self.proxy.address, "publish"))


@pytest.fixture
async def one_proxied(cluster: EmbeddedCluster) -> AsyncIterator[OneProxied]:
    first = cluster.addresses[0]
    recorder = Recorder()
    async with FaultProxy(first) as proxy:
        options = ClientOptions(
            backoff=QUICK,
            hook=recorder,
            address_map=lambda told: proxy.address if told == first else told,
        )
        async with Client(*cluster.addresses[1:], options=options) as client:
            await client.create_stream("s", partitions=PARTITIONS, replication_factor=3)
            yield OneProxied(proxy, client, recorder)


async def test_a_quiet_link_that_breaks_is_no_reason_to_leave_its_broker(
    one_proxied: OneProxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_session, "_SILENCE", 0.0)
    await one_proxied.publish_everywhere()
    assert one_proxied.connected == 1
    await one_proxied.proxy.cut()
    await eventually(lambda: any(lost.purpose == "publish" for lost in one_proxied.recorder.down))
    await one_proxied.publish_everywhere()
    assert one_proxied.connected == 2


async def test_a_broker_that_was_down_is_tried_again(
    one_proxied: OneProxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_proxied.proxy.refuse()
    await one_proxied.publish_everywhere()
    await one_proxied.proxy.heal()
    await one_proxied.client.fetch_metadata()
    await one_proxied.publish_everywhere()
    assert not one_proxied.connected
    monkeypatch.setattr(session_pool, "_AVOIDED_FOR", 0.0)
    await one_proxied.client.fetch_metadata()
    await one_proxied.publish_everywhere()
    assert one_proxied.connected


async def test_a_stream_that_no_broker_knows_is_not_found_all_the_same(
    cluster: EmbeddedCluster,
) -> None:
    options = ClientOptions(backoff=QUICK, not_found_timeout=0.2)
    async with Client(*cluster.addresses, options=options) as client:
        with pytest.raises(StreamNotFound):
            await within(SOON, client.publish("missing", b"value"))
