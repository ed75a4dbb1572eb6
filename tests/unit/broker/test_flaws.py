"""Flaws that an embedded broker has if it is told to, as clients see them.

Without them it has none of these; that a real server has is shown where each flaw says. Two of
them are held by the very tests that run on real servers: `contract/test_restart.py` has
`hides_committed`, `faults/test_crash_loop.py` has `forgets_streams`.
"""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Final

import pytest
from grpclib.const import Status

from liftbridge_aio import AckPolicy, Client, ClientOptions, StartAt, StreamReset
from liftbridge_aio.broker import (
    BrokerPanicked,
    BrokerState,
    EmbeddedBroker,
    EmbeddedCluster,
    Flaws,
)
from liftbridge_aio.broker.flaws import LOST_ANSWERS, REPLAY_SECONDS
from liftbridge_aio.wire import proto, rpc
from support.faults import QUICK, eventually, read_all
from support.groups.group_calls import NO_GROUP, Group
from support.markdown import ROOT
from support.raw import End, Wire

MOST_TRIES: Final = 100
"""Calls of which one is answered, and one not, but for a chance in 10 to the 12."""
TIMED_OUT: Final = "raft operation timed out"


def wire_to(broker: EmbeddedBroker) -> Wire:
    return Wire(broker.host, broker.port)


def test_each_flaw_names_what_shows_it_on_a_real_server() -> None:
    source = (ROOT / "liftbridge_aio" / "broker" / "flaws.py").read_text()
    shown = source.count("Real: `")
    assert shown == len(fields(Flaws))


@pytest.mark.parametrize("exists", [False, True])
async def test_an_answer_is_lost_though_the_group_was_joined(exists: bool) -> None:
    """The first join makes the group, whose failures a real server words in another way."""
    async with EmbeddedBroker(flaws=Flaws(loses_answers=True)) as broker:
        wire = wire_to(broker)
        await wire.create("s")
        group = Group(wire, "g")
        if exists:
            await group.join("another", "s")
        for number in range(MOST_TRIES):
            request = proto.JoinConsumerGroupRequest(
                group_id="g" if exists else f"g{number}", consumer_id=f"m{number}", streams=["s"]
            )
            try:
                await wire.call(rpc.JOIN_CONSUMER_GROUP, request, timeout=0.1)
            except Exception as error:  # noqa: BLE001 - compared below
                lost = End(error.status, error.message or "")  # type: ignore[attr-defined]
                break
        if exists:
            assert lost == End(Status.INTERNAL, f"Failed to join consumer group: {TIMED_OUT}")
        else:
            assert lost == End(Status.FAILED_PRECONDITION, TIMED_OUT)
        again = await wire.refusal(rpc.JOIN_CONSUMER_GROUP, request, timeout=0.1)
        assert again.text == "consumer is already a member of the consumer group"
        wire.close()


async def test_streams_are_made_though_answers_are_lost() -> None:
    count = round(10 / LOST_ANSWERS)
    async with (
        EmbeddedBroker(flaws=Flaws(loses_answers=True)) as broker,
        Client(broker.address, options=ClientOptions(backoff=QUICK)) as client,
    ):
        names = [f"s{number}" for number in range(count)]
        await asyncio.gather(*(client.create_stream(name) for name in names))
        assert set(names) < set((await client.fetch_metadata()).streams)
        await asyncio.gather(*(client.delete_stream(name) for name in names))
        assert not set(names) & set((await client.fetch_metadata()).streams)


async def test_acked_messages_are_lost_and_their_offsets_given_anew() -> None:
    """As in `acked_by_all_lost.py`: a follower starts while the leader is dead, and leads next."""
    async with (
        EmbeddedCluster(flaws=Flaws(cuts_committed=True)) as cluster,
        Client(*cluster.addresses, options=ClientOptions(backoff=QUICK)) as client,
    ):
        await client.create_stream("s", replication_factor=3)
        for number in range(3):
            await client.publish("s", b"%d" % number, ack_policy=AckPolicy.ALL)
        leader, survivor = cluster.leader_of("s"), cluster.leader_of("__cursors")
        [cut] = cluster.nodes.keys() - {leader, survivor}  # it leads nothing, so it is chosen
        async with client.subscribe("s", start=StartAt.earliest()) as reader:
            assert [(await anext(reader)).value for _ in range(3)] == [b"0", b"1", b"2"]
            await cluster.stop_node(leader)
            await cluster.stop_node(cut)
            await cluster.start_node(cut)
            await cluster.wait_until(lambda: cluster.leader_of("s") == cut)
            await cluster.wait_until(lambda: cluster.replica(survivor, "s").newest_offset == -1)
            ack = await client.publish("s", b"anew", ack_policy=AckPolicy.ALL)
            assert ack is not None
            assert ack.offset == 0
            with pytest.raises(StreamReset):
                await anext(reader)
        await cluster.start_node(leader)
        await cluster.wait_until(lambda: cluster.replica(leader, "s").newest_offset == 0)
        assert [message.value for message in await read_all(client, "s")] == [b"anew"]


async def test_a_coordinator_forgets_its_groups_when_it_starts() -> None:
    async with EmbeddedBroker(consumer_timeout=1.0, flaws=Flaws(forgets_groups=True)) as broker:
        await eventually(lambda: broker.statistics().streams)  # its own, so it takes decisions
        wire = wire_to(broker)
        await wire.create("s", partitions=2)
        group = Group(wire, "g")
        await group.join("m", "s")
        shares = await group.shares("m")
        wire.close()
        await broker.restart()
        wire = wire_to(broker)
        group = Group(wire, "g")
        assert (await wire.stream("s")).partitions
        assert await group.fetch_refusal("m", 0) == NO_GROUP
        assert not await group.exists()
        await asyncio.sleep(REPLAY_SECONDS)  # longer than a silent member is kept
        assert await group.shares("m") == shares
        wire.close()


async def test_every_other_start_ends_by_a_panic() -> None:
    broker = EmbeddedBroker(flaws=Flaws(panics_at_start=True))
    for _ in range(2):
        starting = asyncio.create_task(broker.start())
        await eventually(lambda: broker.state is BrokerState.RUNNING)
        wire = wire_to(broker)
        assert (await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())).brokers
        wire.close()
        with pytest.raises(BrokerPanicked):
            await starting
        assert broker.state is BrokerState.STOPPED
        async with broker, Client(broker.address) as client:
            await client.create_stream("s", exist_ok=True)
            await client.publish("s", b"")
