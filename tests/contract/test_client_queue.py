"""Queues: acks, delivery again, attempts, dead letters, order, limits, groups and their ends."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from liftbridge_aio import (
    AlreadyMember,
    CallbackCancelled,
    Client,
    ClientOptions,
    Interceptor,
    InvalidRequest,
    Message,
    OutgoingMessage,
    StartAt,
    StreamNotFound,
    StreamPartition,
    StreamReset,
    UsageError,
    WrongType,
)
from liftbridge_aio.compression import Gzip
from liftbridge_aio.interceptors import AckFuture
from liftbridge_aio.queue import (
    AlreadySettled,
    DeadLetter,
    Delivery,
    Exponential,
    LeaseExpired,
    Nack,
    Order,
    Probing,
    Queue,
    QueueOptions,
    QueueTaken,
    Reject,
    RetryFailed,
    RetryStreams,
    TooManyDeadLetters,
    ValueDelivery,
)
from liftbridge_aio.queue.acks_store import AcksStream, Claim
from liftbridge_aio.queue.core.ack_window import Snapshot
from liftbridge_aio.queue.retry_tiers import tier_stream
from liftbridge_aio.serializers import JSON
from liftbridge_aio.transactions import Phase, ProducerFenced, TransactionAborted
from support.faults import await_what_others_cancel
from support.groups.group_watcher import GroupWatcher, publish
from support.marks import ON_ONE_PATH
from support.queues import after, queue_arguments
from support.raw import BOUND, eventually
from support.servers.node import Server

pytestmark = ON_ONE_PATH

SOON: Final = 0.05


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    """A stream with one partition, of six messages."""
    await client.create_stream(stream_name)
    await publish(client, stream_name, 0, 6)
    return stream_name


@asynccontextmanager
async def queue_of(client: Client, stream: str, **other: Any) -> AsyncIterator[Queue[Delivery]]:
    """A member of the queue of a test, which is quick."""
    settings = {"group": "billing", "retry": after(SOON), "commit_interval": 0.2}
    if "durable" in other or "group" in other:
        del settings["group"]
    async with client.queue(stream, **queue_arguments(**{**settings, **other})) as queue:
        yield queue


async def take(queue: Queue[Delivery], count: int) -> list[Delivery]:
    async with asyncio.timeout(BOUND):
        return [await anext(queue) for _ in range(count)]


async def take_and_ack(queue: Queue[Delivery], count: int) -> list[int]:
    """The offsets of so many deliveries, each acked before the next one."""
    return [delivery.message.offset for delivery in await one_by_one(queue, count)]


async def nothing_comes(queue: Queue[Delivery], seconds: float = 0.3) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await anext(queue)


# Acks


async def test_what_is_acked_is_not_delivered_to_the_next_member(
    client: Client, stream: str
) -> None:
    async with queue_of(client, stream) as queue:
        first = await take(queue, 6)
        for delivery in (first[0], first[2], first[5]):
            await delivery.ack()
    async with queue_of(client, stream) as queue:
        again = await take(queue, 3)
        assert [(each.message.offset, each.attempt) for each in again] == [(1, 1), (3, 1), (4, 1)]
        await publish(client, stream, 0)
        assert [each.message.offset for each in await take(queue, 1)] == [6]


async def test_acks_in_sync_survive_a_member_that_vanishes(
    client: Client, server: Server, stream: str
) -> None:
    async with Client(server.address) as other:
        queue = other.queue(stream, group="billing", options=QueueOptions(commit_interval=60))
        await queue.__aenter__()
        deliveries = await take(queue, 4)
        await deliveries[1].ack(sync=True)
        await deliveries[3].nack(60)
        await deliveries[2].ack(sync=True)
    assert queue.statistics().acked == 2  # the client was closed under it
    await queue.aclose()
    async with queue_of(client, stream, max_in_flight=6) as queue:
        again = [(each.message.offset, each.attempt) for each in await one_by_one(queue, 4)]
    assert again == [(0, 1), (3, 2), (4, 1), (5, 1)]


async def one_by_one(queue: Queue[Delivery], count: int) -> list[Delivery]:
    """So many deliveries, each acked before the next one."""
    deliveries = []
    for _ in range(count):
        deliveries += await take(queue, 1)
        await deliveries[-1].ack()
    return deliveries


async def test_a_block_acks_or_nacks_its_delivery(client: Client, stream: str) -> None:
    seen: list[tuple[int, int]] = []
    async with queue_of(client, stream) as queue, asyncio.timeout(BOUND):
        async for delivery in queue:
            async with delivery:
                seen.append((delivery.message.offset, delivery.attempt))
                if delivery.value == b"2" and delivery.attempt == 1:
                    raise ValueError("not now")
            if len(seen) == 7:
                assert delivery.redelivered
                assert repr(delivery.error) == "ValueError('not now')"
                break
        assert queue.statistics()[:4] == (7, 1, 6, 1)
    assert sorted(seen) == [(0, 1), (1, 1), (2, 1), (2, 2), (3, 1), (4, 1), (5, 1)]


async def test_a_block_that_is_cancelled_leaves_its_delivery(client: Client, stream: str) -> None:
    async with queue_of(client, stream, max_in_flight=1) as queue:
        [delivery] = await take(queue, 1)

        async def hang() -> None:
            async with delivery:
                await asyncio.Event().wait()

        task = asyncio.create_task(hang())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert not delivery.settled
        await delivery.ack()


async def test_a_delivery_that_is_not_answered_comes_again(
    client: Client, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_of(client, stream, ack_wait=0.3, max_in_flight=1, retry=after(0)) as queue:
        [late] = await take(queue, 1)
        [again] = await take(queue, 1)
        assert (again.message.offset, again.attempt) == (0, 2)
        with pytest.raises(LeaseExpired, match="within ack_wait"):
            await late.ack()
        await again.extend()
        await again.ack()
        with pytest.raises(AlreadySettled, match="acked before"):
            await again.nack()
        assert (queue.statistics().expired, queue.statistics().late) == (1, 1)
    [record] = [each for each in caplog.records if each.name == "liftbridge_aio.queue"]
    assert record.getMessage() == f"not answered in time: <Delivery {stream}/0@0 attempt 1 expired>"
    assert isinstance(record.args, tuple)
    assert all(type(each) is str for each in record.args)  # who keeps them keeps no client


async def test_no_more_deliveries_are_in_flight_than_allowed(client: Client, stream: str) -> None:
    async with queue_of(client, stream, max_in_flight=2) as queue:
        first, second = await take(queue, 2)
        await nothing_comes(queue)
        await first.nack(60)
        assert [each.message.offset for each in await take(queue, 1)] == [2]
        queue.limit(0)
        await second.ack()
        await nothing_comes(queue)
        queue.limit(5)
        assert [each.message.offset for each in await take(queue, 3)] == [3, 4, 5]


async def test_few_in_flight_serve_many_partitions(client: Client, stream_name: str) -> None:
    """A partition without messages passes its place on at once."""
    await client.create_stream(stream_name, partitions=6)
    for partition in range(6):
        await publish(client, stream_name, partition, 3)

    async with queue_of(client, stream_name, max_in_flight=1) as queue:
        async with asyncio.timeout(BOUND / 2):
            seen = [await anext(queue)]
            while len(seen) < 18:
                await nothing_comes(queue, 0.01)
                await seen[-1].ack()
                seen.append(await anext(queue))
        assert len({(each.message.partition, each.message.offset) for each in seen}) == 18
        await seen[-1].ack()
        for partition in (5, 0, 5):
            await publish(client, stream_name, partition, 1)
            [delivery] = await take(queue, 1)
            assert delivery.message.partition == partition
            await delivery.ack()


async def test_a_waiting_task_gets_what_others_make_room_for(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    await publish(client, stream_name, 0, 1)

    async with queue_of(client, stream_name, max_in_flight=1) as queue:
        [first] = await take(queue, 1)
        waiting = asyncio.create_task(take(queue, 1))
        await publish(client, stream_name, 1, 1)
        await first.ack()
        [second] = await waiting
        assert second.message.partition == 1


async def test_deliveries_in_flight_count_for_a_lower_limit(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=2)
    await publish(client, stream_name, 0, 6)

    async with queue_of(client, stream_name, max_in_flight=6) as queue:
        held = await take(queue, 4)
        queue.limit(3)
        await publish(client, stream_name, 1, 1)
        await nothing_comes(queue)
        await held.pop().ack()
        await nothing_comes(queue)
        await held.pop().ack()
        [delivery] = await take(queue, 1)
        assert delivery.message.partition == 1


# Failures


async def test_a_poison_message_becomes_a_dead_letter(client: Client, stream: str) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    await client.publish(stream, b"poison", b"key", {"colour": b"red"})
    attempts = 0

    async def handle(delivery: Delivery) -> None:
        nonlocal attempts
        if delivery.value == b"poison":
            attempts += 1
            raise ValueError("bad")

    async with queue_of(client, stream, max_attempts=3, dead_letter=DeadLetter(dead)) as queue:
        run = asyncio.create_task(queue.run(handle, concurrency=3))
        await eventually(lambda: queue.statistics().dead_letters == 1)
        await eventually(lambda: queue.statistics().acked == 6)
        await queue.aclose()
        await run
    [letter] = await client.last(dead, partition=0, n=5)
    assert (letter.value, letter.key, attempts) == (b"poison", b"key", 3)
    assert letter.headers == {
        "colour": b"red",
        "queue-stream": stream.encode(),
        "queue-partition": b"0",
        "queue-offset": b"6",
        "queue-group": b"billing",
        "queue-attempts": b"3",
        "queue-error": b"ValueError: bad",
    }
    async with queue_of(client, stream) as queue:
        await nothing_comes(queue)
    await client.delete_stream(dead)


async def test_a_message_is_unsettled_until_its_dead_letter_is_stored(
    client: Client, stream: str
) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    async with queue_of(client, stream, max_attempts=1, dead_letter=DeadLetter(dead)) as queue:
        [delivery] = await take(queue, 1)
        await client.delete_stream(dead)
        await delivery.reject("unwanted")
        await asyncio.sleep(0.3)  # the stream does not exist
        assert queue.statistics().partitions[0].base == 0
        await client.create_stream(dead)
        await eventually(lambda: queue.statistics().dead_letters == 1)
    [letter] = await client.last(dead, partition=0, n=5)
    assert letter.headers["queue-error"] == b"Reject: unwanted"
    await client.delete_stream(dead)


@pytest.mark.parametrize(
    ("room", "error_bytes", "cut"), [(400, 100, None), (150, 100, b"1"), (-100, None, None)]
)
async def test_a_dead_letter_too_large_is_cut(
    server: Server,
    client: Client,
    stream: str,
    caplog: pytest.LogCaptureFixture,
    room: int,
    error_bytes: int | None,
    cut: bytes | None,
) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    await client.publish(stream, b"v" * 5000, b"key", {"colour": b"r" * 200})
    options = ClientOptions(max_message_bytes=5000 + 256 + 200 + len(stream) * 2 + room)
    settings: dict[str, Any] = {"dead_letter": DeadLetter(dead), "max_attempts": 1}
    async with (
        Client(server.address, options=options) as small,
        queue_of(small, stream, order=Order.KEY, **settings) as queue,
    ):
        assert await take_and_ack(queue, 6) == list(range(6))
        [delivery] = await take(queue, 1)
        async with delivery:
            raise ValueError("\N{EURO SIGN}" * 900)
        # The key goes on.
        await client.publish(stream, b"after", b"key")
        assert await take_and_ack(queue, 1) == [7]
        assert queue.statistics().dead_letters == (1 if error_bytes else 0)
        assert queue.statistics().dead_letters_lost == (0 if error_bytes else 1)
    letters = await client.last(dead, partition=0, n=5)
    assert len(letters) == queue.statistics().dead_letters
    for letter in letters:
        assert (letter.value, letter.key) == (b"v" * 5000, b"key")
        assert letter.headers.get("queue-cut") == cut
        assert ("colour" in letter.headers) == (cut is None)
        assert letter.headers["queue-error"].decode().startswith("ValueError: \N{EURO SIGN}")
        assert len(letter.headers["queue-error"]) <= 100
    if not letters:
        assert "the dead letter of <Delivery" in caplog.text
        assert "is lost" in caplog.text
    await client.delete_stream(dead)


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to show")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("file \udcff.txt"), b"ValueError: file \\udcff.txt"),
        (_Unprintable(), b"_Unprintable"),
    ],
    ids=["surrogate", "unprintable"],
)
async def test_any_error_text_fits_a_dead_letter(
    client: Client,
    stream: str,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    text: bytes,
) -> None:
    caplog.set_level("CRITICAL")  # what xdist captures must be UTF-8
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    settings: dict[str, Any] = {"dead_letter": DeadLetter(dead), "max_attempts": 1}
    async with queue_of(client, stream, **settings) as queue:
        [delivery] = await take(queue, 1)
        async with delivery:
            raise error
        await eventually(lambda: queue.statistics().dead_letters == 1)
    [letter] = await client.last(dead, partition=0, n=5)
    assert letter.headers["queue-error"] == text
    await client.delete_stream(dead)


async def test_a_failing_interceptor_delays_a_dead_letter(
    server: Server, client: Client, stream: str
) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    fails = [True]

    class Broken(Interceptor):
        async def publish(
            self,
            message: OutgoingMessage,
            send: Callable[[OutgoingMessage], Awaitable[AckFuture]],
        ) -> AckFuture:
            if message.stream == dead and fails:
                fails.clear()
                raise ValueError("not yet")
            return await send(message)

    settings: dict[str, Any] = {"dead_letter": DeadLetter(dead), "max_attempts": 1}
    options = ClientOptions(interceptors=[Broken()])
    async with (
        Client(server.address, options=options) as other,
        queue_of(other, stream, **settings) as queue,
    ):
        [delivery] = await take(queue, 1)
        await delivery.reject()
        await eventually(lambda: queue.statistics().dead_letters == 1)
    assert not fails
    await client.delete_stream(dead)


async def test_a_message_too_large_for_a_retry_stream_waits_in_memory(
    server: Server, client: Client, stream: str
) -> None:
    await client.publish(stream, b"v" * 5000)
    options = ClientOptions(max_message_bytes=5000 + 256 + 50 + 2 * len(stream))
    settings: dict[str, Any] = {"retry_streams": RetryStreams((0.3,)), "retry": after(0.3)}
    async with (
        Client(server.address, options=options) as small,
        queue_of(small, stream, **settings) as queue,
    ):
        await take_and_ack(queue, 6)
        [delivery] = await take(queue, 1)
        await delivery.nack()
        [again] = await take(queue, 1)
        assert (again.message.offset, again.attempt, again.stream) == (6, 2, stream)
        await again.ack()
        assert queue.statistics().moved == 0
        await queue.unsubscribe()


def _raises(_attempt: int, _error: BaseException | None) -> float:
    raise KeyError("settings")


@pytest.mark.parametrize(
    "retry",
    [
        _raises,
        lambda _attempt, _error: None,
        lambda _attempt, _error: "soon",
        lambda _attempt, _error: float("nan"),
        lambda _attempt, _error: float("inf"),
        lambda _attempt, _error: -1,
    ],
)
@pytest.mark.parametrize("how", ["nack", "expire", "run"])
async def test_a_retry_function_without_delay_stops_the_queue(
    client: Client, stream: str, retry: Any, how: str
) -> None:
    ack_wait = 0.2 if how == "expire" else 30
    async with queue_of(client, stream, retry=retry, max_in_flight=1, ack_wait=ack_wait) as queue:
        if how != "run":
            [delivery] = await take(queue, 1)
            if how == "nack":
                await delivery.nack()
        with pytest.raises(RetryFailed, match="retry returned no delay") as raised:
            await (queue.run(_fail) if how == "run" else take(queue, 1))
        assert (raised.value.stream, raised.value.offset) == (stream, 0)
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 6) == list(range(6))


def _fail(_: Delivery) -> None:
    raise ValueError("always")


async def test_giving_up_without_dead_letters_calls_back(client: Client, stream: str) -> None:
    given_up: list[tuple[int, int]] = []

    async def on_giving_up(delivery: Delivery) -> None:
        given_up.append((delivery.message.offset, delivery.attempt))
        raise ValueError("is logged")

    settings: dict[str, Any] = {"max_attempts": 2, "on_giving_up": on_giving_up}
    async with queue_of(client, stream, **settings) as queue:
        for _ in range(7):
            [delivery] = await take(queue, 1)
            if delivery.message.offset == 0:
                await delivery.nack()
            else:
                await delivery.ack()
        await eventually(lambda: given_up == [(0, 2)])
        await eventually(lambda: queue.statistics().partitions[0].base == 6)


async def test_a_block_that_others_cancel_has_failed(client: Client, stream: str) -> None:
    async with queue_of(client, stream) as queue:
        [delivery] = await take(queue, 1)
        async with delivery:
            await await_what_others_cancel()
        assert queue.statistics().nacked == 1
        again = next(each for each in await take(queue, 6) if each.redelivered)
        assert isinstance(again.error, CallbackCancelled)


async def test_callbacks_that_others_cancel_have_failed(client: Client, stream: str) -> None:
    handled: list[int] = []

    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.offset)
        if delivery.offset == 0:
            await await_what_others_cancel()

    async def on_giving_up(_: Delivery) -> None:
        await await_what_others_cancel()

    dead = f"{stream}.dead"
    await client.create_stream(dead)
    settings: dict[str, Any] = {"max_attempts": 2, "on_giving_up": on_giving_up}
    async with queue_of(client, stream, dead_letter=DeadLetter(dead), **settings) as queue:
        run = asyncio.create_task(queue.run(handle))
        await eventually(lambda: queue.statistics().dead_letters == 1)
        await eventually(lambda: queue.statistics().partitions[0].base == 6)
        assert not run.done()
        await queue.aclose()
        await run
    assert sorted(handled) == [0, 0, 1, 2, 3, 4, 5]
    [letter] = await client.last(dead, partition=0, n=5)
    assert b"CallbackCancelled: the handler was cancelled" in letter.headers["queue-error"]
    await client.delete_stream(dead)


async def test_a_queue_stops_at_its_limit_of_dead_letters(client: Client, stream: str) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)

    def handle(_: Delivery) -> None:
        raise Reject("all of them")

    async with queue_of(client, stream, dead_letter=DeadLetter(dead, limit=2)) as queue:
        with pytest.raises(TooManyDeadLetters, match="2 messages in sequence") as raised:
            await queue.run(handle)
        assert raised.value.offset == 2
    assert [message.value for message in await client.last(dead, partition=0, n=5)] == [b"0", b"1"]
    async with queue_of(client, stream) as queue:
        assert (await take_and_ack(queue, 4)) == [2, 3, 4, 5]
    await client.delete_stream(dead)


async def test_handlers_say_when_a_message_comes_again(client: Client, stream: str) -> None:
    seen: dict[int, list[float]] = defaultdict(list)
    loop = asyncio.get_running_loop()

    async def handle(delivery: Delivery) -> None:
        seen[delivery.message.offset].append(loop.time())
        if delivery.message.offset == 1 and delivery.attempt == 1:
            raise Nack("busy", delay=0.5)
        if delivery.message.offset == 2 and delivery.attempt == 1:
            await delivery.nack(0.25)
        if delivery.message.offset == 3:
            await delivery.ack()

    async with queue_of(client, stream, retry=after(30)) as queue:
        run = asyncio.create_task(queue.run(handle))
        await eventually(lambda: queue.statistics().acked == 6)
        await queue.aclose()
        await run
    assert {offset: len(times) for offset, times in seen.items()} == {
        0: 1, 1: 2, 2: 2, 3: 1, 4: 1, 5: 1,
    }  # fmt: skip
    assert seen[1][1] - seen[1][0] >= 0.5
    assert seen[2][1] - seen[2][0] >= 0.25


@pytest.mark.parametrize("on_timeout", ["cancel", "continue"])
async def test_a_handler_that_hangs(client: Client, stream: str, on_timeout: Any) -> None:
    ends: list[str] = []
    release = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        if delivery.message.offset == 0 and delivery.attempt == 1:
            try:
                await release.wait()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            ends.append("returned")

    async with queue_of(client, stream, ack_wait=0.3) as queue:
        run = asyncio.create_task(queue.run(handle, concurrency=2, on_timeout=on_timeout))
        await eventually(lambda: queue.statistics().acked == 6)
        release.set()
        await eventually(lambda: bool(ends))
        await queue.aclose()
        await run
        assert queue.statistics().expired == 1
    assert ends == [{"cancel": "cancelled", "continue": "returned"}[on_timeout]]


async def test_failures_slow_a_queue_down_until_a_probe_succeeds(
    client: Client, stream: str
) -> None:
    fails = True

    def handle(_: Delivery) -> None:
        if fails:
            raise ValueError("down")

    settings: dict[str, Any] = {"backoff": Probing(0.2, 0.9), "retry": after(0), "max_attempts": 0}
    async with queue_of(client, stream, **settings) as queue:
        run = asyncio.create_task(queue.run(handle))
        await eventually(lambda: queue.statistics().backoff_level == 2)
        before = queue.statistics().delivered
        await asyncio.sleep(0.2)
        assert queue.statistics().delivered == before
        fails = False
        await eventually(lambda: queue.statistics().acked == 6)
        assert queue.statistics().backoff_level == 0
        await queue.aclose()
        await run


async def test_a_queue_that_was_paused_while_probing_goes_on(client: Client, stream: str) -> None:
    settings: dict[str, Any] = {"backoff": Probing(0.2), "max_in_flight": 6}
    async with queue_of(client, stream, **settings) as queue:
        first, *others = await take(queue, 6)
        for delivery in others:
            await delivery.ack()
        await first.nack(60)
        assert any("deliveries pause for" in each for each in queue.explain())
        await eventually(lambda: "one message at a time" in queue.explain()[-1])
        queue.limit(0)
        assert "the next message of any partition is the probe" in queue.explain()[-1]
        queue.limit(4)
        await publish(client, stream, 0, 6)
        assert await take_and_ack(queue, 6) == [6, 7, 8, 9, 10, 11]
        assert queue.statistics().backoff_level == 0


async def test_a_queue_explains_what_its_messages_wait_for(client: Client, stream: str) -> None:
    def said() -> list[str]:
        return [re.sub(r"\d+\.\d s", "N s", each) for each in queue.explain()]

    async with queue_of(client, stream, max_in_flight=2) as queue:
        assert queue.explain() == []
        first, second = await take(queue, 2)
        unsettled, full = said()
        begin = f"{stream}/0: 2 unsettled, the first at offset 0: "
        assert unsettled == begin + "attempt 1 is in flight, for N s more"
        assert full.endswith("reading pauses: 2 deliveries are in flight, the maximum")
        await first.nack(60, error=ValueError("busy"))
        await second.ack()
        [text] = said()
        begin = f"{stream}/0: 1 unsettled, the first at offset 0: attempt 2 is due in N s; "
        assert text == begin + "the attempt before failed with ValueError: busy"


# Order


async def test_messages_of_a_key_are_delivered_in_order(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    for number in range(12):
        await client.publish(stream_name, b"%d" % number, b"ab"[number % 2 : number % 2 + 1])
    handled: dict[bytes, list[int]] = defaultdict(list)
    running: set[bytes] = set()

    async def handle(delivery: Delivery) -> None:
        assert delivery.key not in running
        running.add(delivery.key)
        await asyncio.sleep(0.01)
        running.remove(delivery.key)
        if delivery.message.offset in {2, 3} and delivery.attempt < 3:
            raise Nack(delay=SOON)
        handled[delivery.key].append(delivery.message.offset)

    async with queue_of(client, stream_name, order=Order.KEY) as queue:
        run = asyncio.create_task(queue.run(handle, concurrency=8))
        await eventually(lambda: queue.statistics().acked == 12)
        await queue.aclose()
        await run
    assert handled == {b"a": [0, 2, 4, 6, 8, 10], b"b": [1, 3, 5, 7, 9, 11]}


async def test_a_partition_in_order_waits_for_each_message(client: Client, stream: str) -> None:
    async with queue_of(client, stream, order=Order.PARTITION) as queue:
        [first] = await take(queue, 1)
        await nothing_comes(queue, 0.1)
        await first.nack(0.2)
        offsets = await take_and_ack(queue, 6)
    assert offsets == [0, 1, 2, 3, 4, 5]


# Retry streams


async def wait_in_a_tier(queue: Queue[Delivery], count: int) -> list[int]:
    """Nack so many messages, which come again from the retry stream; return their offsets there."""
    for delivery in await take(queue, count):
        await delivery.nack()
    offsets = []
    for again in await take(queue, count):
        assert (again.stream, again.attempt) == (tier_stream(queue.stream, queue.group, 0.3), 2)
        offsets.append(again.message.offset)
        await again.ack(sync=True)
    return offsets


async def test_a_deleted_retry_stream_is_created_again(client: Client, stream: str) -> None:
    settings: dict[str, Any] = {"retry_streams": RetryStreams((0.3,)), "retry": after(0.3)}
    async with queue_of(client, stream, **settings) as queue:
        assert await wait_in_a_tier(queue, 6) == list(range(6))
        for count in (3, 1, 7):  # shorter and longer than what was settled
            await client.delete_stream(tier_stream(stream, "billing", 0.3))
            await publish(client, stream, 0, count)
            assert await wait_in_a_tier(queue, count) == list(range(count))
        await client.delete_stream(tier_stream(stream, "billing", 0.3))
        await queue.publish_later(b"later", 0.1)
        assert (await take(queue, 1))[0].value == b"later"
        await queue.unsubscribe()


async def test_a_retry_stream_created_anew_hides_nothing(client: Client, stream: str) -> None:
    settings: dict[str, Any] = {"retry_streams": RetryStreams((0.3,)), "retry": after(0.3)}
    async with queue_of(client, stream, **settings) as queue:
        assert await wait_in_a_tier(queue, 6) == list(range(6))
    await client.delete_stream(tier_stream(stream, "billing", 0.3))
    async with queue_of(client, stream, **settings) as queue:
        await publish(client, stream, 0, 3)
        assert await wait_in_a_tier(queue, 3) == list(range(3))
        await queue.unsubscribe()


async def test_a_message_that_is_not_due_soon_waits_in_a_stream(
    client: Client, stream: str
) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    settings: dict[str, Any] = {
        "retry_streams": RetryStreams((0.5, 1.0)),
        "retry": after(0.7),
        "max_attempts": 3,
        "dead_letter": DeadLetter(dead),
    }
    loop = asyncio.get_running_loop()
    async with queue_of(client, stream, **settings) as queue:
        deliveries = await take(queue, 6)
        moved_at = loop.time()
        async with deliveries[1]:
            raise ValueError("no")
        for each in deliveries:
            if not each.settled:
                await each.ack()
        await eventually(lambda: queue.statistics().moved == 1)
        assert [each.base for each in queue.statistics().partitions] == [6]
        await queue.publish_later(b"later", 0.5, b"key")
    async with queue_of(client, stream, **settings) as queue:
        times: dict[bytes, float] = {}
        for delivery in [(await take(queue, 1))[0] for _ in range(2)]:
            times[delivery.value] = loop.time()
            if delivery.value == b"later":
                assert (delivery.key, delivery.attempt) == (b"key", 1)
                await delivery.ack()
            else:
                again = delivery
        assert times[again.value] - moved_at >= 1.0
        assert (again.attempt, again.value) == (2, deliveries[1].value)
        assert again.origin == (stream, 0, 1)
        await again.nack(0.1)  # shorter than any tier, so in memory
        [delivery] = await take(queue, 1)
        assert delivery.attempt == 3
        await delivery.nack(0.5, error=ValueError("still no"))
        await eventually(lambda: queue.statistics().dead_letters == 1)
        assert (queue.statistics().moved, queue.statistics().given_up) == (0, 1)
    [letter] = await client.last(dead, partition=0, n=2)
    assert (letter.value, letter.headers["queue-offset"]) == (deliveries[1].value, b"1")
    assert letter.headers["queue-stream"] == stream.encode()
    assert "queue-due" not in letter.headers
    async with queue_of(client, stream, **settings) as queue:
        await nothing_comes(queue)
        await queue.unsubscribe()
    names = sorted((await client.fetch_metadata()).streams)
    assert [name for name in names if stream in name] == [stream, dead]
    await client.delete_stream(dead)


async def test_forwarded_headers_of_another_queue_are_not_believed(
    client: Client, stream_name: str
) -> None:
    dead = f"{stream_name}.dead"
    await client.create_stream(stream_name)
    await client.create_stream(dead)
    forwarded = {
        "queue-stream": b"upstream",
        "queue-partition": b"7",
        "queue-offset": b"77",
        "queue-attempts": b"4",
        "queue-due": b"1",
        "plain": b"kept",
    }
    await client.publish(stream_name, b"", headers=forwarded)
    settings: dict[str, Any] = {
        "retry": after(0.2),
        "max_attempts": 2,
        "retry_streams": RetryStreams((0.2,)),
        "dead_letter": DeadLetter(dead),
    }
    async with queue_of(client, stream_name, **settings) as queue:
        await queue.publish_later(b"later", 0.2, headers=forwarded)
        waits = sorted(await take(queue, 2), key=lambda each: each.stream)
        assert waits[0].origin == (stream_name, 0, 0)
        assert waits[1].origin == (waits[1].stream, 0, 0)
        assert waits[1].attempt == 1
        await waits[1].ack()
        await waits[0].nack()
        [copy] = await take(queue, 1)
        assert (copy.stream, copy.attempt) == (waits[1].stream, 2)
        assert copy.origin == (stream_name, 0, 0)
        assert copy.headers == copy.message.headers == {"plain": b"kept"}
        await copy.nack(error=ValueError("no"))
        await eventually(lambda: queue.statistics().dead_letters == 1)
        [letter] = await client.last(dead, partition=0, n=1)
        assert (letter.headers["queue-stream"], letter.headers["queue-offset"]) == (
            stream_name.encode(),
            b"0",
        )
    await client.delete_stream(dead)


# Transactions


async def test_messages_of_transactions_are_handed_out_where_their_acks_stand(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    producer = client.producer()
    async with producer.transaction() as first:
        await first.publish(stream_name, b"a1")
        await first.flush()
        await client.publish(stream_name, b"b")
        async with producer.transaction() as never:
            await never.publish(stream_name, b"never")
            await never.flush()
            never.abort()
        await first.publish(stream_name, b"a2")
        await first.publish(stream_name, b"a3")
    await client.publish(stream_name, b"c")
    committed: dict[str, Any] = {"committed": True}
    async with queue_of(client, stream_name, **committed) as queue:
        deliveries = await take(queue, 5)
        assert [each.value for each in deliveries] == [b"b", b"a1", b"a2", b"a3", b"c"]
        for number in (0, 2, 4):
            await deliveries[number].ack()
    async with queue_of(client, stream_name, **committed) as queue:
        [a1, a3] = await take(queue, 2)
        assert [a1.value, a3.value] == [b"a1", b"a3"]
        await a1.nack(error=ValueError("no"))
        assert [(each.value, each.attempt) for each in await take(queue, 1)] == [(b"a1", 2)]
        await a3.ack()
    async with queue_of(client, stream_name, **committed) as queue:
        assert [each.value for each in await one_by_one(queue, 1)] == [b"a1"]
        await nothing_comes(queue)


async def test_results_are_visible_if_and_only_if_the_delivery_is_acked(
    client: Client, stream: str
) -> None:
    results = f"{stream}.results"
    await client.create_stream(results, partitions=2)

    async def handle(delivery: Delivery) -> None:
        number = delivery.message.offset
        async with delivery.transaction() as transaction:
            for partition in range(number):  # the first delivery publishes nothing
                await transaction.publish(results, b"%d" % number, partition=partition % 2)
            if number == 3 and delivery.attempt == 1:
                raise Nack(delay=SOON)
        assert transaction.phase is Phase.COMMITTED
        with pytest.raises(AlreadySettled):
            await delivery.ack()

    async with queue_of(client, stream, commit_interval=60) as queue:
        run = asyncio.create_task(queue.run(handle, concurrency=3))
        await eventually(lambda: queue.statistics().acked == 6)
        await queue.aclose()
        await run
        assert (queue.statistics().nacked, queue.statistics().redelivered) == (1, 1)
    shown = [
        message.value
        for partition in range(2)
        async for message in client.read(results, partition=partition, committed=True)
    ]
    assert sorted(shown) == sorted(b"%d" % number for number in range(6) for _ in range(number))
    async with queue_of(client, stream) as queue:
        await nothing_comes(queue)
    await client.delete_stream(results)


async def test_a_transaction_of_a_delivery_that_is_lost_publishes_nothing(
    client: Client, stream: str
) -> None:
    results = f"{stream}.results"
    await client.create_stream(results)
    parts = client._living
    thief = AcksStream(
        *("billing", stream, parts.network, parts.streams, parts.retrying, client.last, 10.0)
    )
    async with queue_of(client, stream) as queue:
        late, taken = await take(queue, 2)
        transaction = late.transaction()
        await transaction.publish(results, b"late")
        await late.nack(60)
        with pytest.raises(TransactionAborted, match="nacked before"):
            await transaction.commit()
        transaction = taken.transaction()
        await transaction.publish(results, b"taken")
        found = await thief.claim(StreamPartition(stream, 0), 0)
        assert [(ack.stream, ack.entry.final) for ack in found.acks][-1] == (results, True)
        with pytest.raises(ProducerFenced):
            await transaction.commit()
    async with client.queue(stream) as queue:
        [delivery] = await take(queue, 1)
        with pytest.raises(UsageError, match="not stored"):
            delivery.transaction()
    read = client.read(results, partition=0, committed=True)
    assert [message.value async for message in read] == []
    await client.delete_stream(results)


# Members


async def test_two_members_share_the_partitions_and_lose_nothing(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=4)
    seen: dict[tuple[int, int], int] = defaultdict(int)

    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        seen[delivery.partition, delivery.message.offset] += 1

    async with queue_of(client, stream_name) as one:
        first = asyncio.create_task(one.run(handle, concurrency=4))
        for partition in range(4):
            await publish(client, stream_name, partition, 20)
        async with queue_of(client, stream_name) as two:
            second = asyncio.create_task(two.run(handle, concurrency=4))
            for partition in range(4):
                await publish(client, stream_name, partition, 20)
            await eventually(lambda: len(two.assignment) == 2)
            await eventually(lambda: len(seen) == 160)
            await two.aclose()
            await second
        for partition in range(4):
            await publish(client, stream_name, partition, 5)
        await eventually(lambda: len(seen) == 180)
        await one.aclose()
        await first
    async with queue_of(client, stream_name) as three:
        await nothing_comes(three)


async def test_a_second_holder_of_a_durable_subscription_is_refused(
    client: Client, stream: str
) -> None:
    durable: dict[str, Any] = {"durable": "audit", "client_id": "desk-1"}
    async with queue_of(client, stream, **durable) as queue:
        assert queue.consumer_id == "desk-1"
        assert await take_and_ack(queue, 2) == [0, 1]
        with pytest.raises(AlreadyMember):
            await client.queue(stream, **durable, options=QueueOptions(timeout=1)).__aenter__()
    async with queue_of(client, stream, **durable) as queue:
        assert await take_and_ack(queue, 4) == [2, 3, 4, 5]
        await queue.unsubscribe()
    async with queue_of(client, stream, **durable) as queue:
        assert await take_and_ack(queue, 1) == [0]


async def test_a_queue_begins_where_it_is_told(client: Client, stream: str) -> None:
    third = (await client.last(stream, partition=0, n=4))[0]
    for start, first in (
        (StartAt.earliest(), 0),
        (StartAt.latest(), 5),
        (StartAt.offset(4), 4),
        (StartAt.time(third.time), third.offset),
    ):
        async with queue_of(client, stream, group=f"from {first}", start=start) as queue:
            assert (await take_and_ack(queue, 1)) == [first]


async def test_only_the_last_member_that_unsubscribes_forgets_the_acks(
    client: Client, stream: str
) -> None:
    async with queue_of(client, stream) as stays, queue_of(client, stream) as leaves:
        assert await take_and_ack_of(stays, leaves) == 6
        await leaves.unsubscribe()
    async with queue_of(client, stream) as queue:
        await nothing_comes(queue)
        await queue.unsubscribe()
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 6) == [0, 1, 2, 3, 4, 5]


async def take_and_ack_of(*queues: Queue[Delivery]) -> int:
    """The number of distinct offsets that several members have acked within a while."""
    offsets: set[int] = set()

    async def handle(delivery: Delivery) -> None:
        offsets.add(delivery.message.offset)

    runs = [asyncio.create_task(queue.run(handle)) for queue in queues]
    await eventually(lambda: len(offsets) == 6)
    for run in runs:
        run.cancel()
    await asyncio.wait(runs)
    return len(offsets)


async def test_the_first_start_is_that_of_the_group(client: Client, stream: str) -> None:
    async with queue_of(client, stream, start=StartAt.new_only()):
        pass
    async with queue_of(client, stream) as queue:
        await nothing_comes(queue)
        await publish(client, stream, 0)
        assert await take_and_ack(queue, 1) == [6]


async def test_a_stream_that_was_created_again_with_more_partitions(
    client: Client, stream: str
) -> None:
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 1) == [0]
    await client.delete_stream(stream)
    await client.create_stream(stream, partitions=2)
    await publish(client, stream, 1)
    queue = client.queue(stream, group="billing")
    with pytest.raises(StreamReset, match="was recreated"):
        await queue.__aenter__()
    await queue.unsubscribe()
    async with queue_of(client, stream) as queue:
        assert [(each.partition, each.value) for each in await one_by_one(queue, 1)] == [(1, b"0")]


async def test_a_longer_log_of_a_recreated_stream_is_told(client: Client, stream: str) -> None:
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 3) == [0, 1, 2]
    await client.delete_stream(stream)
    await client.create_stream(stream)
    await publish(client, stream, 0, 9)
    async with queue_of(client, stream) as queue:
        with pytest.raises(StreamReset, match="created anew") as caught:
            await take(queue, 1)
        assert (caught.value.stream, caught.value.partition) == (stream, 0)
    await queue.unsubscribe()
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 2) == [0, 1]
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 1) == [2]


async def test_a_queue_begins_a_recreated_stream_at_its_start(
    client: Client, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 3) == [0, 1, 2]
    await client.delete_stream(stream)
    await client.create_stream(stream)
    await publish(client, stream, 0, 9)
    async with queue_of(client, stream, on_reset="start") as queue:
        assert await take_and_ack(queue, 2) == [0, 1]
    assert "created anew" in caplog.text
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 2) == [2, 3]


async def test_an_ephemeral_group_is_over_with_its_last_member(client: Client, stream: str) -> None:
    ephemeral: dict[str, Any] = {"group": "billing", "ephemeral": True, "timeout": BOUND}
    async with queue_of(client, stream, group="billing", retry=after(60)) as durable:
        assert await take_and_ack(durable, 6) == [0, 1, 2, 3, 4, 5]
        async with queue_of(client, stream, **ephemeral) as first:
            assert await take_and_ack(first, 3) == [0, 1, 2]
            async with queue_of(client, stream, **ephemeral) as second:
                await first.aclose()
                assert await take_and_ack(second, 3) == [3, 4, 5]
        async with queue_of(client, stream, **{**ephemeral, "start": StartAt.offset(4)}) as anew:
            assert await take_and_ack(anew, 2) == [4, 5]
    async with queue_of(client, stream) as durable:
        await nothing_comes(durable)


async def test_without_group_and_durable_nothing_is_remembered(client: Client, stream: str) -> None:
    for _ in range(2):
        async with client.queue(stream) as queue:
            assert await take_and_ack(queue, 6) == [0, 1, 2, 3, 4, 5]


async def test_a_member_that_was_taken_for_dead_stores_nothing(client: Client, stream: str) -> None:
    parts = client._living
    zombie, heir = (
        AcksStream(*("g", stream, parts.network, parts.streams, parts.retrying, client.last, 10.0))
        for _ in range(2)
    )
    place = StreamPartition(stream, 0)
    await zombie.prepare()
    assert await zombie.claim(place, 0) == Claim(Snapshot(0))
    await zombie.save(place, Snapshot(4, {2: 1}), last=False)
    assert await heir.claim(place, 7) == Claim(Snapshot(4, {2: 1}), in_order=False)
    with pytest.raises(QueueTaken):
        await zombie.save(place, Snapshot(6), last=False)
    await heir.save(place, Snapshot(5), last=True)
    assert await heir.fetch("__group:g", stream, 0, 1.0) == 4
    await heir.destroy()


async def test_a_queue_whose_acks_were_taken_delivers_again(client: Client, stream: str) -> None:
    parts = client._living
    thief = AcksStream(
        *("billing", stream, parts.network, parts.streams, parts.retrying, client.last, 10.0)
    )
    async with queue_of(client, stream) as queue:
        deliveries = await take(queue, 3)
        await thief.claim(StreamPartition(stream, 0), 0)
        with pytest.raises(QueueTaken):
            await deliveries[0].ack(sync=True)
        with pytest.raises(LeaseExpired, match="released"):
            await deliveries[1].ack()
        assert [each.message.offset for each in await one_by_one(queue, 6)] == [0, 1, 2, 3, 4, 5]


# Values, batches and samples


async def test_values_are_decoded_and_those_that_cannot_be_are_given_up(
    client: Client, stream_name: str
) -> None:
    dead = f"{stream_name}.dead"
    await client.create_stream(stream_name)
    await client.create_stream(dead)
    orders = client.values(stream_name, JSON, compression=Gzip(min_bytes=0))
    await orders.publish({"number": 1})
    await client.publish(stream_name, b"no JSON")
    await orders.publish({"number": 2})
    seen: list[tuple[object, int]] = []

    def handle(delivery: ValueDelivery[Any]) -> None:
        seen.append((delivery.value["number"], delivery.attempt))

    async with orders.queue(group="g", options=QueueOptions(dead_letter=DeadLetter(dead))) as queue:
        run = asyncio.create_task(queue.run(handle))
        await eventually(lambda: queue.statistics().dead_letters == 1)
        await eventually(lambda: queue.statistics().acked == 2)
        await queue.aclose()
        await run
    assert seen == [(1, 1), (2, 1)]
    [letter] = await client.last(dead, partition=0, n=2)
    assert letter.value == b"no JSON"
    assert letter.headers["queue-attempts"] == b"1"
    assert letter.headers["queue-error"].startswith(b"UndecodableMessage")
    await client.delete_stream(dead)


async def test_deliveries_come_in_lists_that_are_answered_as_one(
    client: Client, stream: str
) -> None:
    def offsets(batch: list[Delivery]) -> list[int]:
        return [each.message.offset for each in batch]

    settings: dict[str, Any] = {"max_in_flight": 4, "retry": after(60)}
    async with queue_of(client, stream, **settings) as queue, asyncio.timeout(BOUND):
        batches = queue.batches(max_size=3, wait=60)
        first = await anext(batches)
        assert offsets(first) == [0, 1, 2]
        async with await anext(batches) as full:  # at once, as no more may be in flight
            assert offsets(full) == [3]
        async with first:
            await first[0].ack()
            raise ValueError("no")
        assert offsets(await anext(queue.batches(max_size=2))) == [4, 5]
        assert queue.statistics().acked == queue.statistics().nacked == 2
    async with queue_of(client, stream) as queue:
        again = await one_by_one(queue, 4)
        assert [(each.message.offset, each.attempt) for each in again] == [
            (1, 2), (2, 2), (4, 1), (5, 1),
        ]  # fmt: skip


async def test_a_sample_is_handed_out_and_the_rest_is_settled(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b""] * 400)
    async with queue_of(client, stream_name, sample=0.25) as queue:
        run = asyncio.create_task(queue.run(lambda _: None))
        await eventually(lambda: [p.base for p in queue.statistics().partitions] == [400])
        await queue.aclose()
        await run
        assert 40 < queue.statistics().acked < 180
    async with queue_of(client, stream_name) as queue:
        await nothing_comes(queue)


# The client


async def test_a_client_that_is_closed_stores_the_acks_of_its_queues(
    server: Server, client: Client, stream: str
) -> None:
    async with Client(server.address) as other, queue_of(other, stream, commit_interval=60) as one:
        assert await take_and_ack(one, 4) == [0, 1, 2, 3]
        await other.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(one)
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 2) == [4, 5]


async def test_interceptors_wrap_the_handler(server: Server, stream: str) -> None:
    seen: list[bytes] = []

    class Watching(Interceptor):
        async def process(self, message: Message, handle: Any) -> None:
            if message.value == b"3":
                return
            await handle(message)
            seen.append(message.value)

    options = ClientOptions(interceptors=[Watching()])
    async with Client(server.address, options=options) as other, queue_of(other, stream) as queue:
        run = asyncio.create_task(queue.run(lambda delivery: seen.append(delivery.key)))
        await eventually(lambda: queue.statistics().acked == 6)
        await queue.aclose()
        await run
    assert seen == [each for value in b"01245" for each in (b"", bytes([value]))]


async def test_the_hook_is_told_of_handlers_that_fail(server: Server, stream: str) -> None:
    watcher = GroupWatcher()
    async with (
        Client(server.address, options=ClientOptions(hook=watcher)) as client,
        queue_of(client, stream) as queue,
    ):
        [delivery] = await take(queue, 1)
        async with delivery:
            raise ValueError("bad")
        [failed] = watcher.failed_handlers
        assert (failed.group, failed.stream, failed.offset) == ("billing", stream, 0)


async def test_a_handler_may_close_its_queue(client: Client, stream: str) -> None:
    async with queue_of(client, stream) as queue:

        async def handle(delivery: Delivery) -> None:
            if delivery.message.offset == 2:
                await queue.aclose()

        async with asyncio.timeout(BOUND):
            await queue.run(handle)
        assert queue.statistics().acked == 3
    async with queue_of(client, stream) as queue:
        assert await take_and_ack(queue, 3) == [3, 4, 5]


async def test_a_run_that_is_cancelled_leaves_its_deliveries(client: Client, stream: str) -> None:
    async with queue_of(client, stream) as queue:
        run = asyncio.create_task(queue.run(lambda _: asyncio.Event().wait(), concurrency=2))
        await eventually(lambda: queue.statistics().delivered == 2)
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()
    async with queue_of(client, stream) as queue:
        again = await take(queue, 6)
        assert [each.attempt for each in again] == [1] * 6


async def test_a_queue_is_used_inside_its_block(client: Client, stream: str) -> None:
    queue = client.queue(stream, group="billing")
    with pytest.raises(UsageError, match="inside `async with`"):
        await anext(queue)
    with pytest.raises(UsageError, match="inside `async with`"):
        await queue.run(print)
    async with queue:
        pass
    with pytest.raises(StopAsyncIteration):
        await anext(queue)
    with pytest.raises(UsageError, match="only once"):
        await queue.__aenter__()
    await queue.aclose()


async def _retry_later(_attempt: int, _error: BaseException | None) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"stream": ""}, "needs a stream"),
        ({"group": "a:b"}, "no ':'"),
        ({"durable": "a:b", "client_id": "c"}, "no ':'"),
        ({"durable": "a"}, "durable and client_id"),
        ({"ephemeral": True}, "has a group"),
        ({"group": "g", "durable": "a", "client_id": "c"}, "durable and client_id"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"ack_wait": 0}, "longer than 0"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"retry": lambda: 1}, "number of the attempt"),
        ({"retry": _retry_later}, "coroutine function"),
        ({"sample": 0}, "sample"),
        ({"retry_streams": RetryStreams()}, "need a group"),
    ],
)
async def test_arguments_that_make_no_sense(
    client: Client, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text):
        client.queue(**{"stream": "s", **queue_arguments(**arguments)})


@pytest.mark.parametrize(
    "name",
    ["dead_letter", "order", "backoff", "on_giving_up", "start", "retry_streams", "retry"],
)
def test_options_of_the_wrong_type(name: str) -> None:
    with pytest.raises(WrongType):
        QueueOptions(**{name: "text"})  # type: ignore[arg-type]


async def test_dead_letters_need_a_stream_of_their_own(impatient: Client, stream: str) -> None:
    with pytest.raises(InvalidRequest, match="of their own"):
        impatient.queue(stream, group="g", options=QueueOptions(dead_letter=DeadLetter(stream)))
    missing = queue_of(impatient, stream, dead_letter=DeadLetter(f"{stream}.dead"))
    with pytest.raises(StreamNotFound, match="create the stream of dead letters first"):
        await missing.__aenter__()


def test_policies_are_checked() -> None:
    for wrong in (lambda: Exponential(-1), lambda: Exponential(5, max=1), lambda: Probing(0)):
        with pytest.raises(InvalidRequest):
            wrong()
    for unordered in ((), (0, 1), (2, 1), (1, 1)):
        with pytest.raises(InvalidRequest):
            RetryStreams(unordered)
    with pytest.raises(InvalidRequest):
        DeadLetter("")
    assert [Exponential(1, 3, 10, None)(attempt) for attempt in (1, 2, 3, 4)] == [1, 3, 9, 10]
    assert 0 <= Exponential(max=1e9)(10**6) <= 1e9
