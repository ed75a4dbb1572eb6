"""The subscription as an object: entering, reading, leaving, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    ClientOptions,
    ConcurrentRead,
    EndReason,
    Hook,
    Message,
    StartAt,
)
from support.clients import EARLIEST, LATEST, all_here, rest, take, values
from support.raw import BOUND, eventually
from support.servers.node import Server

LETTERS = [b"a", b"b", b"c"]


@pytest.fixture
async def letters(client: Client, stream_name: str) -> str:
    """A stream that holds the three letters."""
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, LETTERS)
    return stream_name


async def nothing_is_read(client: Client) -> None:
    """Wait until the client has no subscription any more."""

    async def none_left() -> bool:
        gc.collect()
        return len(client.statistics().subscriptions) == 0

    async with asyncio.timeout(BOUND):
        await eventually(none_left)


@pytest.mark.parametrize("partition", [None, 0, [0]])
async def test_a_step_after_the_client_was_closed_fails_each_time(
    client: Client, letters: str, partition: int | list[int] | None
) -> None:
    subscription = client.subscribe(letters, partition=partition, start=EARLIEST)
    await client.aclose()
    for _ in range(2):
        with pytest.raises(ClientClosed):
            await take(subscription, 1)


# Leaving


async def test_a_bare_loop_left_by_break_ends_the_subscription(
    client: Client, letters: str
) -> None:
    async for message in client.subscribe(letters, start=EARLIEST):
        assert message.value == b"a"
        assert len(client.statistics().subscriptions) == 1
        break
    await nothing_is_read(client)


async def test_a_bare_loop_left_by_an_error_ends_the_subscription(
    client: Client, letters: str
) -> None:
    async def fail() -> None:
        async for message in client.subscribe(letters, start=EARLIEST):
            raise ValueError(message.value)

    with pytest.raises(ValueError, match="a"):
        await fail()
    await nothing_is_read(client)


async def test_a_bare_loop_left_by_cancellation_ends_the_subscription(
    client: Client, letters: str
) -> None:
    reached = asyncio.Event()

    async def read() -> None:
        async for message in client.subscribe(letters, start=EARLIEST):
            if message.value == b"c":
                reached.set()

    reading = asyncio.create_task(read())
    async with asyncio.timeout(BOUND):
        await reached.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    del reading
    await nothing_is_read(client)


async def test_leaving_the_context_ends_the_subscription_whatever_is_unread(
    client: Client, letters: str
) -> None:
    async with client.subscribe(letters, partition=0, start=EARLIEST) as subscription:
        await take(subscription, 1)
    assert len(client.statistics().subscriptions) == 0
    assert subscription.end_reason is EndReason.CLOSED
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_a_reading_that_ended_by_itself_is_not_counted_any_more(
    client: Client, letters: str
) -> None:
    reading = client.subscribe(letters, start=EARLIEST, stop=LATEST)
    assert values(await rest(reading)) == LETTERS
    assert len(client.statistics().subscriptions) == 0


async def test_closing_twice_is_closing_once(client: Client, letters: str) -> None:
    subscription = client.subscribe(letters, start=EARLIEST)
    await take(subscription, 1)
    async with asyncio.timeout(BOUND):
        await asyncio.gather(subscription.aclose(), subscription.aclose())
        await subscription.aclose()
    assert len(client.statistics().subscriptions) == 0


async def test_closing_what_never_started_is_fine(client: Client, letters: str) -> None:
    subscription = client.subscribe(letters)
    await subscription.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_closing_wakes_the_one_who_reads(client: Client, letters: str) -> None:
    subscription = client.subscribe(letters, start=EARLIEST)
    reading = asyncio.create_task(rest(subscription))
    await eventually(lambda: subscription.statistics().delivered == 3)
    await subscription.aclose()
    assert values(await reading) == LETTERS


@pytest.mark.parametrize("entered", [True, False], ids=["entered", "bare"])
async def test_only_what_was_entered_and_never_left_is_warned_of(
    client: Client, letters: str, entered: bool
) -> None:
    subscription = client.subscribe(letters, start=EARLIEST)
    if entered:
        await subscription.__aenter__()
    await take(subscription, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        del subscription
        gc.collect()
    texts = [str(warning.message) for warning in caught]
    assert [f"{letters}/0" in text and "never left" in text for text in texts] == [True] * entered
    await nothing_is_read(client)


# Reading


async def test_it_may_be_entered_in_one_task_and_read_in_another(
    client: Client, letters: str
) -> None:
    subscription = client.subscribe(letters, start=EARLIEST)

    async def enter() -> None:
        await subscription.__aenter__()

    async def leave() -> None:
        await subscription.__aexit__(None, None, None)

    await asyncio.create_task(enter())
    assert values(await asyncio.create_task(take(subscription, 2))) == LETTERS[:2]
    assert values(await asyncio.create_task(take(subscription, 1))) == LETTERS[2:]
    await asyncio.create_task(leave())
    assert len(client.statistics().subscriptions) == 0


async def test_a_second_reader_at_the_same_time_is_an_error(client: Client, letters: str) -> None:
    async with client.subscribe(letters) as subscription:
        first = asyncio.create_task(take(subscription, 1))
        await asyncio.sleep(0)  # the first one's turn
        with pytest.raises(ConcurrentRead):
            await take(subscription, 1)
        await client.publish(letters, b"new")
        assert values(await first) == [b"new"]


async def test_the_start_is_fixed_at_the_first_step_of_a_bare_loop(
    client: Client, letters: str
) -> None:
    subscription = client.subscribe(letters)
    await client.publish(letters, b"before the first step")
    first = asyncio.create_task(take(subscription, 1))
    await eventually(
        lambda: (
            len(client.statistics().subscriptions) == 1
            and len(client.statistics().connections) == 3
        )
    )
    async with asyncio.timeout(BOUND):
        while not first.done():
            await client.publish(letters, b"after it")
    assert values(await first) == [b"after it"]
    await subscription.aclose()


async def test_cancelling_a_step_loses_no_message(client: Client, letters: str) -> None:
    received: list[Message] = []
    async with client.subscribe(letters) as subscription:
        for n in range(30):
            step = asyncio.ensure_future(anext(subscription))
            await asyncio.sleep(0)
            await client.publish(letters, b"%d" % n)
            step.cancel()  # just before the message, just after it, or too late
            done = (await asyncio.gather(step, return_exceptions=True))[0]
            if isinstance(done, Message):
                received.append(done)
        received += await take(subscription, 30 - len(received))
    assert values(received) == [b"%d" % n for n in range(30)]


async def test_cancelling_the_entry_leaves_nothing_behind(client: Client, letters: str) -> None:
    for steps in range(0, 40, 4):
        subscription = client.subscribe(letters)
        entering = asyncio.create_task(subscription.__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        if entering.done():
            await subscription.aclose()
            continue
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
    await nothing_is_read(client)
    assert values(await rest(client.subscribe(letters, start=EARLIEST, stop=LATEST))) == LETTERS


async def test_a_slow_reader_stops_the_server(server: Server, stream_name: str) -> None:
    size, count = 100_000, 60
    options = ClientOptions(max_buffered_bytes=1_000_000)
    async with Client(server.address, options=options) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [bytes(size)] * count)

        async with client.subscribe(stream_name, start=EARLIEST) as subscription:
            most = 0
            for _ in range(count):
                most = max(most, subscription.statistics().buffered_bytes)
                await client.ping()  # others are not held up
                await take(subscription, 1)
        assert size < most < 1_000_000


# What it tells of itself


async def test_it_shows_its_state_and_its_figures(client: Client, letters: str) -> None:
    subscription = client.subscribe(letters, partition=0, start=EARLIEST)
    assert repr(subscription).startswith(f"<Subscription {letters}/0 new last_offset=None")

    async with subscription:
        await all_here(subscription, 3)
        await take(subscription, 1)
        figures = subscription.statistics()
        assert (figures.delivered, figures.buffered) == (1, 2)
        assert (figures.resubscriptions, figures.dropped) == (0, 0)
        assert figures.buffered_bytes > 0
        assert "reading" in repr(subscription)
        assert "buffered=2" in repr(subscription)
        assert subscription.last_offset == 2
        assert subscription.end_reason is None
    assert "ended" in repr(subscription)
    assert subscription.statistics().buffered == 0


async def test_each_message_and_ack_reaches_a_hook_that_wants_them(
    server: Server, stream_name: str
) -> None:
    class Counting(Hook):
        def __init__(self) -> None:
            self.acked: list[str] = []
            self.delivered_values: list[bytes] = []

        def published(self, ack: object) -> None:
            self.acked.append(getattr(ack, "correlation_id", ""))

        def delivered(self, message: Message) -> None:
            self.delivered_values.append(message.value)

    hook = Counting()
    async with Client(server.address, options=ClientOptions(hook=hook)) as client:
        await client.create_stream(stream_name)
        for n, value in enumerate(LETTERS):
            await client.publish(stream_name, value, correlation_id=f"{n}")
        async with client.subscribe(stream_name, start=StartAt.offset(1)) as subscription:
            await take(subscription, 1)
    assert hook.acked == ["0", "1", "2"]
    assert hook.delivered_values == [b"b"]


async def test_a_hook_that_raises_does_no_harm(
    server: Server, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Hook):
        def delivered(self, message: Message) -> None:
            raise RuntimeError(message.value)

    async with Client(server.address, options=ClientOptions(hook=Broken())) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, LETTERS)
        reading = client.subscribe(stream_name, start=EARLIEST, stop=LATEST)
        assert values(await rest(reading)) == LETTERS
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == [
        "liftbridge_aio.hook"
    ]
