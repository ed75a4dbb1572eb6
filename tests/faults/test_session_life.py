"""The faults that sessions with brokers survive, and the errors that they report at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import pytest

from liftbridge_aio import (
    Ack,
    AckPolicy,
    AckTimeout,
    Client,
    ClientOptions,
    Hook,
    PublishOutcomeUnknown,
    PublishRefused,
    RequestTimeout,
    StreamOptions,
)
from liftbridge_aio._publish.message import PendingPublish
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.broker.cluster import messages
from liftbridge_aio.wire import proto
from support.faults import (
    BOUND,
    QUICK,
    Recorder,
    eventually,
    in_flight,
    outcomes_of,
    read_all,
    within,
)

ENDS: Final = ("UNAVAILABLE", "INTERNAL", "UNKNOWN", "RESOURCE_EXHAUSTED", "CANCELLED", "cut")


async def test_it_outlives_whoever_opened_it(broker: EmbeddedBroker, recorder: Recorder) -> None:
    """Whoever connected, and whoever published first, may be over, timed out or cancelled."""
    client = Client(broker.address, options=ClientOptions(backoff=QUICK, hook=recorder))

    async def connect() -> None:
        async with asyncio.timeout(BOUND):
            await client.connect()
            await client.create_stream("s")

    async def publish_first() -> None:
        async with asyncio.timeout(BOUND):
            await client.publish("s", b"first")
        await asyncio.Event().wait()

    try:
        await asyncio.create_task(connect())
        first = asyncio.create_task(publish_first())
        await eventually(lambda: [event for event in recorder.up if event.purpose == "publish"])
        await within(BOUND, client.flush())
        future = await client.publish_async("s", b"second")
        first.cancel()
        await asyncio.wait([first])
        assert (await within(BOUND, future)).offset == 1
        assert (await within(BOUND, client.publish("s", b"third"))).offset == 2
        assert [event.purpose for event in recorder.up].count("publish") == 1
        assert not recorder.down
    finally:
        await client.aclose()


async def test_whatever_ends_it_another_one_takes_its_place(broker: EmbeddedBroker) -> None:
    """However often, and with whatever the server says."""
    async with Client(broker.address, options=ClientOptions(backoff=QUICK)) as client:
        await client.create_stream("s")
        stored = [b"first"]
        await client.publish("s", b"first")
        for number in range(2 * len(ENDS)):
            end = ENDS[number % len(ENDS)]
            if end == "cut":
                assert await broker.faults.cut_links(carrying="PublishAsync") == 1
            else:
                broker.faults.fail("PublishAsync", at="reply", code=end)  # type: ignore[arg-type]
                with pytest.raises(PublishOutcomeUnknown):
                    await within(BOUND, client.publish("s", b"unknown"))
                stored.append(b"unknown")
            # The cut may be noticed only now.
            with contextlib.suppress(PublishOutcomeUnknown):
                await within(BOUND, client.publish("s", b"again"))
            stored.append(b"again")
            assert in_flight(client) == 0
        assert (await within(BOUND, client.publish("s", b"last"))).offset >= len(ENDS)
        assert {message.value for message in await read_all(client, "s")} == {*stored, b"last"}


async def test_what_was_written_is_told_at_once_and_not_by_its_timer(
    broker: EmbeddedBroker,
) -> None:
    options = ClientOptions(backoff=QUICK, ack_timeout=60.0)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s")
        await client.publish("s", b"first")
        lost = broker.faults.drop("PublishAsync", at="reply", times=10)
        futures = [await client.publish_async("s", b"written") for _ in range(10)]
        await lost.wait()
        await broker.faults.cut_links(carrying="PublishAsync")
        outcomes = await outcomes_of(futures, 5.0)
        assert len(outcomes.unknown) == 10
        assert not [error for error in outcomes.unknown.values() if isinstance(error, AckTimeout)]


async def test_while_acks_do_not_come_one_message_after_the_other_goes_in_order(
    broker: EmbeddedBroker,
) -> None:
    """As without a leader: the first ones are lost then, but the rest is not, and need not wait."""
    options = ClientOptions(backoff=QUICK, ack_timeout=60.0, close_timeout=0.1)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s")
        broker.faults.drop("PublishAsync", at="reply")
        futures = [await client.publish_async("s", b"%d" % n) for n in range(5)]
        outcomes = await outcomes_of(futures[1:], 10.0)
        assert [ack.offset for ack in outcomes.acked.values()] == [1, 2, 3, 4]
        assert not futures[0].done()
        assert [message.value for message in await read_all(client, "s")] == [
            b"%d" % n for n in range(5)
        ]
        futures[0].cancel()


async def test_a_late_ack_releases_all_though_another_message_went_alone() -> None:
    """Else a partition whose acks take a second would carry a message a second."""
    options = ClientOptions(backoff=QUICK, ack_timeout=60.0, close_timeout=0.1)
    async with (
        EmbeddedCluster(nodes=2, max_lag=60.0, leader_timeout=60.0) as cluster,
        Client(*cluster.addresses, options=options) as client,
    ):
        await client.create_stream("s", replication_factor=2)
        leader = cluster.leader_of("s")
        [follower] = set(cluster.nodes) - {leader}
        cluster.hold_replication(follower)
        late = await client.publish_async("s", b"late", ack_policy=AckPolicy.ALL)
        for node in cluster.nodes.values():
            node.faults.drop("PublishAsync", at="reply", times=8, when_reply=is_ack_of_leader)
        rest = [await client.publish_async("s", b"rest") for _ in range(30)]
        [first, *_] = rest
        assert isinstance(first, PendingPublish)
        await eventually(lambda: first.session is not None)
        cluster.release_replication(follower)
        assert (await within(BOUND, late)).offset == 0
        assert len((await outcomes_of(rest[8:], 3.0)).acked) == 22  # alone they take 6 s
        for future in rest[:8]:
            future.cancel()


def is_ack_of_leader(reply: proto.PublishResponse) -> bool:
    """Neither an ack of all replicas nor the refusal of a flush marker."""
    ack = reply.ack
    return ack is not None and ack.stream == "s" and ack.ack_policy is proto.AckPolicy.LEADER


async def test_who_is_refused_while_it_is_asked_for_is_sent_again(broker: EmbeddedBroker) -> None:
    """The broker is slow, and then says that it does not know the stream yet."""
    options = ClientOptions(backoff=QUICK, close_timeout=0.1)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("other")
        await client.publish("other", b"so that there is a session")
        broker.faults.delay("PublishAsync", 1.3, at="request")
        futures = [await client.publish_async("s", b"%d" % n) for n in range(3)]
        assert client._parts is not None
        route = client._parts.publisher._dispatcher.routes["s", 0]
        await eventually(lambda: route.retries)
        await client.create_stream("s")
        outcomes = await outcomes_of(futures, BOUND)
        assert [ack.offset for ack in outcomes.acked.values()] == [0, 1, 2]


class Publishing(Hook):
    """Publishes whenever it hears of an ack."""

    def __init__(self) -> None:
        self.client: Client
        self.tasks: list[asyncio.Task[Ack]] = []

    def published(self, ack: Ack) -> None:
        if ack.offset < 20:
            self.tasks.append(asyncio.create_task(self.client.publish("s", b"by the hook")))


async def test_who_hears_of_an_ack_may_publish(broker: EmbeddedBroker) -> None:
    """As done-callbacks of futures do, and hooks."""
    hook = Publishing()
    async with Client(broker.address, options=ClientOptions(hook=hook)) as client:
        hook.client = client
        await client.create_stream("s")
        again: list[asyncio.Task[Ack]] = []

        def publish_again(_: object) -> None:
            if len(again) < 20:
                again.append(asyncio.create_task(client.publish("s", b"by a callback")))
                again[-1].add_done_callback(publish_again)

        first = await client.publish_async("s", b"first")
        first.add_done_callback(publish_again)
        for tasks in (again, hook.tasks):
            await eventually(lambda: len(tasks) == 20 and all(task.done() for task in tasks))  # noqa: B023
        offsets = [task.result().offset for task in (*again, *hook.tasks)]
        assert sorted(offsets) == list(range(1, 41))


async def test_a_server_that_accepts_no_subscription_is_waited_for_in_bounds(
    broker: EmbeddedBroker,
) -> None:
    """Everything else is answered, and so is the next who asks."""
    async with Client(broker.address, options=ClientOptions(backoff=QUICK)) as client:
        await client.create_stream("s")
        unheard = broker.faults.drop("Subscribe", times=None)
        began = time.monotonic()
        with pytest.raises(RequestTimeout):
            await client.subscribe("s", timeout=0.3).__aenter__()
        assert time.monotonic() - began < 0.3 + 5.0
        unheard.cancel()
        async with client.subscribe("s") as subscription:
            await client.publish("s", b"heard")
            assert (await within(BOUND, anext(subscription))).value == b"heard"


async def test_an_ack_that_says_no_is_no_ack(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers turn such acks into refusals; one that does not is believed all the same (W7)."""
    monkeypatch.setattr(messages, "refusal_of", lambda _: None)
    async with Client(broker.address, options=ClientOptions(backoff=QUICK)) as client:
        await client.create_stream("s", options=StreamOptions(optimistic_concurrency_control=True))
        await client.publish("s", b"first", expected_offset=0)
        refused = await client.publish_async("s", b"refused", expected_offset=7)
        futures = [await client.publish_async("s", b"", expected_offset=n) for n in (1, 2)]
        with pytest.raises(PublishRefused, match="INCORRECT_OFFSET"):
            await within(BOUND, refused)
        assert len((await outcomes_of(futures, BOUND)).acked) == 2
