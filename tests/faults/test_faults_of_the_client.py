"""A fault of the client's own, wherever it strikes: whoever waits gets an error, nobody hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NoReturn

import pytest
from grpclib.client import Stream

from liftbridge_aio import (
    Client,
    ClientOptions,
    PublishOutcomeUnknown,
    Retry,
    StartAt,
    SubscriptionError,
)
from liftbridge_aio._publish.dispatcher import Dispatcher
from liftbridge_aio._publish.in_flight_table import InFlightTable
from liftbridge_aio._publish.retry import RetryingPublisher
from liftbridge_aio._publish.session import PublishSession
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio._subscribe.core.resubscribe_deadline import ResubscribeDeadline
from liftbridge_aio._subscribe.cursor_committer import CursorCommitter
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio._subscribe.receive_buffer import ReceiveBuffer
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.net.broker_connection import BrokerConnection
from liftbridge_aio.net.connection_pool import ConnectionPool
from liftbridge_aio.net.fast_call import FastCall
from liftbridge_aio.net.metadata import MetadataCache
from support.faults import BOUND, QUICK, Recorder, eventually, nothing_left_behind, take, within

OPTIONS: Final = ClientOptions(backoff=QUICK)
TEXT: Final = "a fault of the test"


class Inject:
    """Makes a method raise until the test has seen what comes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.struck = 0

    def __call__(
        self, owner: type, name: str, when: Callable[..., bool] = lambda *_, **__: True
    ) -> None:
        sound = getattr(owner, name)

        def faulty(*args: Any, **kwargs: Any) -> Any:
            if when(*args, **kwargs):
                self.struck += 1
                self._raise()
            return sound(*args, **kwargs)

        self._monkeypatch.setattr(owner, name, faulty)

    def _raise(self) -> NoReturn:
        raise ZeroDivisionError(TEXT)

    def end(self) -> None:
        """Let everything be as it was."""
        self._monkeypatch.undo()


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    """A client, and a stream "s"."""
    async with Client(broker.address, options=OPTIONS) as client:
        await client.create_stream("s")
        yield client


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Inject:
    return Inject(monkeypatch)


def _of_subscription(*_: Any, name: str = "", **__: Any) -> bool:
    return name.startswith("subscription")


AT_THE_END: Final = [
    (Supervisor, "spawn", _of_subscription),
    (ReceiveBuffer, "disconnect", lambda *_: True),
    (ResubscribeDeadline, "broke", lambda *_: True),
    (PartitionReader, "_recover", lambda *_: True),
]


@pytest.mark.parametrize(("owner", "name", "when"), AT_THE_END)
async def test_the_end_of_a_call_raises_in_its_reader(
    inject: Inject, owner: type, name: str, when: Callable[..., bool]
) -> None:
    async with (
        nothing_left_behind(),
        EmbeddedBroker() as broker,
        Client(broker.address, options=OPTIONS) as client,
    ):
        await client.create_stream("s")
        await client.publish("s", b"0")
        async with client.subscribe("s", start=StartAt.earliest()) as subscription:
            await take(subscription, 1)
            inject(owner, name, when)
            await broker.faults.cut_links()
            with pytest.raises(SubscriptionError, match=TEXT) as caught:
                await within(BOUND, anext(subscription))
            inject.end()
        assert (caught.value.stream, caught.value.partition, caught.value.offset) == ("s", 0, 0)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        async with client.subscribe("s", start=StartAt.earliest()) as subscription:
            await take(subscription, 1)


async def test_messages_that_cannot_be_taken_in_raise_in_their_reader(
    inject: Inject, client: Client
) -> None:
    async with client.subscribe("s", start=StartAt.earliest()) as subscription:
        inject(ReceiveBuffer, "put")
        await client.publish("s", b"0")
        with pytest.raises(SubscriptionError, match=TEXT):
            await within(BOUND, anext(subscription))


async def test_a_broken_call_whose_status_cannot_be_read_is_resumed(
    inject: Inject, broker: EmbeddedBroker, client: Client
) -> None:
    async with client.subscribe("s", start=StartAt.earliest()) as subscription:
        inject(Stream, "_maybe_raise", lambda *_: not inject.struck)
        await broker.faults.cut_links()
        await within(BOUND, client.publish("s", b"0"))
        (message,) = await take(subscription, 1)
        assert message.value == b"0"


async def test_acks_that_cannot_be_settled_are_no_word_about_their_messages(
    inject: Inject,
    client: Client,
) -> None:
    await client.publish("s", b"0")
    inject(InFlightTable, "succeed", lambda *_: not inject.struck)
    with pytest.raises(PublishOutcomeUnknown, match=TEXT):
        await within(BOUND, client.publish("s", b"1"))
    assert (await within(BOUND, client.publish("s", b"2"))).offset == 2


async def test_a_deadline_that_cannot_be_checked_fails_its_publish(
    inject: Inject, broker: EmbeddedBroker, client: Client
) -> None:
    broker.faults.drop("PublishAsync", at="reply")
    future = await client.publish_async("s", b"0", timeout=0.5)
    inject(Dispatcher, "_check_deadline", lambda *_: not inject.struck)
    with pytest.raises(PublishOutcomeUnknown, match=TEXT):
        await within(BOUND, future)
    assert inject.struck


async def test_a_message_that_cannot_be_resent_fails(inject: Inject) -> None:
    """Sent to a stream that is created a moment later, it is refused at first."""
    async with EmbeddedBroker() as broker, Client(broker.address, options=OPTIONS) as client:
        submitted: list[object] = []

        def again(_: object, pending: object) -> bool:
            submitted.append(pending)
            return len(submitted) == 2

        inject(PublishSession, "submit", again)
        with pytest.raises(PublishOutcomeUnknown, match=TEXT):
            await within(BOUND, client.publish("s", b"0", partition=0))
        assert submitted[0] is submitted[1]
        await client.create_stream("s")
        await client.publish("s", b"0", partition=0)


async def test_metadata_that_cannot_be_taken_in_is_asked_for_again(
    inject: Inject, client: Client
) -> None:
    inject(MetadataCache, "_merge_answer", lambda *_, **__: not inject.struck)
    assert (await within(BOUND, client.publish("s", b"0", key=b"key"))).offset == 0
    assert inject.struck


async def test_a_health_check_that_cannot_be_made_breaks_its_link(inject: Inject) -> None:
    recorder = Recorder()
    options = ClientOptions(backoff=QUICK, health_interval=0.05, hook=recorder)
    async with EmbeddedBroker() as broker, Client(broker.address, options=options) as client:
        await client.create_stream("s")
        async with client.subscribe("s", start=StartAt.earliest()) as subscription:
            inject(BrokerConnection, "check_health", lambda *_: not inject.struck)
            await eventually(lambda: recorder.down)
            assert TEXT in recorder.down[0].reason
            await client.publish("s", b"0")
            await take(subscription, 1)


async def test_a_cursor_that_cannot_be_kept_ends_its_reading(
    inject: Inject, client: Client
) -> None:
    async with client.subscribe(
        "s", start=StartAt.earliest(), cursor="c", cursor_interval=0.05
    ) as subscription:
        inject(CursorCommitter, "commit", lambda *_: not inject.struck)
        with pytest.raises(SubscriptionError, match=TEXT):
            await within(BOUND, anext(subscription))


async def test_a_publish_that_cannot_be_followed_fails(inject: Inject, client: Client) -> None:
    inject(RetryingPublisher, "_retry_until_known")
    with pytest.raises(PublishOutcomeUnknown, match=TEXT):
        await within(BOUND, client.publish("s", b"0", retry=Retry(attempts=2)))


WHERE_A_CONNECTION_IS_LOST: Final = [
    (ConnectionPool, "forget_incarnation"),
    (FastCall, "close"),
    (FastCall, "_failure_of_broken_call"),
]


ON_THE_LANE: Final = pytest.mark.parametrize("data_path", ["lane"], indirect=True)


@ON_THE_LANE
@pytest.mark.real_time  # it counts the turns of the event loop
@pytest.mark.parametrize(("owner", "name"), WHERE_A_CONNECTION_IS_LOST)
async def test_a_loss_that_cannot_be_taken_in_leaves_nobody_waiting(
    inject: Inject, broker: EmbeddedBroker, client: Client, owner: type, name: str
) -> None:
    await client.publish("s", b"0")
    async with client.subscribe("s", start=StartAt.earliest()) as subscription:
        await take(subscription, 1)
        inject(owner, name)
        await broker.faults.cut_links()
        await eventually(lambda: inject.struck > 0)
        await asyncio.sleep(0)  # those that follow in the same turn are struck, too
        inject.end()
        await within(BOUND, client.publish("s", b"1", retry=Retry(attempts=5)))
        try:
            message = await within(BOUND, anext(subscription))
        except SubscriptionError as error:
            assert TEXT in str(error)  # noqa: PT017 - it may as well go on
        else:
            assert message.value == b"1"


@ON_THE_LANE
async def test_a_message_that_cannot_be_written_holds_up_no_others(
    inject: Inject, client: Client
) -> None:
    await client.publish("s", b"0")
    inject(PublishSession, "_next_batch", lambda *_: not inject.struck)
    with pytest.raises(ZeroDivisionError):
        await within(BOUND, client.publish("s", b"never sent"))
    assert (await within(BOUND, client.publish("s", b"1"))).offset == 1


@ON_THE_LANE
async def test_a_session_that_ended_by_a_fault_is_replaced(
    inject: Inject, broker: EmbeddedBroker, client: Client
) -> None:
    await client.publish("s", b"0")
    inject(Dispatcher, "session_lost")
    await broker.faults.cut_links()
    await eventually(lambda: inject.struck >= 2)  # when it broke, and at its end
    inject.end()
    assert (await within(BOUND, client.publish("s", b"1"))).offset == 1


@ON_THE_LANE
async def test_deadlines_are_kept_after_a_fault_in_checking_them(inject: Inject) -> None:
    options = ClientOptions(backoff=QUICK, ack_timeout=0.1)
    async with EmbeddedBroker() as broker, Client(broker.address, options=options) as client:
        await client.create_stream("s")
        broker.faults.drop("PublishAsync", at="reply")
        inject(InFlightTable, "all", lambda *_: not inject.struck)
        with pytest.raises(PublishOutcomeUnknown):
            await within(BOUND, client.publish("s", b"0"))
        assert inject.struck
