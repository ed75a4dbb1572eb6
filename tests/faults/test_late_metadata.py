"""An answer about the cluster that comes late is out of date: it is asked for once more."""

from __future__ import annotations

import asyncio

from liftbridge_aio import Client, ClientOptions, Hook, StartAt
from liftbridge_aio.broker import EmbeddedCluster
from liftbridge_aio.telemetry import Resubscribed
from support.faults import BOUND, QUICK, Recorder, eventually, within

LATE = 1.1
"""Seconds; a real server takes three where a peer is dead."""


class Seen(Hook):
    """A hook that records the subscriptions that resume."""

    def __init__(self) -> None:
        self.resubscribed_at: asyncio.Future[Resubscribed] = asyncio.Future()

    def resubscribed(self, event: Resubscribed) -> None:
        if not self.resubscribed_at.done():
            self.resubscribed_at.set_result(event)


async def test_a_reader_does_not_ask_the_old_leader_after_it() -> None:
    seen = Seen()
    async with EmbeddedCluster(nodes=3) as cluster:
        options = ClientOptions(backoff=QUICK, hook=seen)
        async with Client(*cluster.addresses, options=options) as client:
            await client.create_stream("s", replication_factor=3)
            await client.publish("s", b"first")
            async with client.subscribe("s", start=StartAt.earliest()) as messages:
                assert (await within(BOUND, anext(messages))).value == b"first"
                old = cluster.leader_of("s")
                delays = [
                    node.faults.delay("FetchMetadata", LATE, at="reply")
                    for node in cluster.nodes.values()
                ]
                await cluster.nodes[old].faults.cut_links(carrying="Subscribe")
                # One of them is asked, and has written down who leads before that changes.
                waits = [asyncio.ensure_future(delay.wait()) for delay in delays]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=BOUND)
                for wait in waits:
                    wait.cancel()
                new = next(node for node in cluster.nodes if node != old)
                cluster.move_leader("s", 0, new)
                event = await within(BOUND, seen.resubscribed_at)
                assert (event.address, event.attempts) == (cluster.nodes[new].address, 1)


async def test_who_waits_for_a_dead_peer_is_asked_again_before_that_is_over() -> None:
    """A server stops waiting when its call is reset, and has the rest ready (W28)."""
    recorder = Recorder()
    options = ClientOptions(backoff=QUICK, hook=recorder)
    async with (
        EmbeddedCluster(nodes=2) as cluster,
        Client(*cluster.addresses, options=options) as client,
    ):
        await client.fetch_metadata()
        used = recorder.up[-1].address
        [dead] = [node for node in cluster.nodes.values() if node.address == used]
        [living] = [node for node in cluster.nodes.values() if node is not dead]
        dead.faults.refuse_links(times=None)
        await dead.faults.cut_links()
        await eventually(lambda: recorder.down)
        living.faults.delay("FetchMetadata", BOUND)
        await within(3.0, client.fetch_metadata())
        living.faults.assert_all_applied()
