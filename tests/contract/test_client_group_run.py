"""A handler for each message of a member: order, concurrency, commits, failures and ends."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from liftbridge_aio import (
    CallbackCancelled,
    Client,
    ClientClosed,
    ClientOptions,
    ConcurrentRead,
    ConsumerGroup,
    Interceptor,
    InvalidRequest,
    LiftbridgeError,
    Message,
    StreamDeleted,
    StreamPartition,
    UsageError,
    WrongType,
)
from liftbridge_aio.groups.handler_runner import MessageHandler, OnError
from liftbridge_aio.queue import Delivery, Queue, QueueOptions
from support.faults import await_what_others_cancel
from support.groups.group_watcher import EARLIEST, GroupWatcher, cursor, publish
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND, eventually
from support.servers.node import Server

pytestmark = ON_ONE_PATH


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    """A stream with three partitions, of four messages each."""
    await client.create_stream(stream_name, partitions=3)
    for partition in range(3):
        await publish(client, stream_name, partition, 4)
    return stream_name


@pytest.fixture
def group_id(stream_name: str) -> str:
    return f"group-{stream_name}"


class Handler:
    """Notes what it is called with; holds calls back where it is told to."""

    def __init__(self) -> None:
        self.handled: dict[int, list[int]] = defaultdict(list)
        """Offsets whose call has returned, by partition."""
        self.running: list[tuple[int, int]] = []
        self.most = 0
        self.gates: dict[tuple[int, int], asyncio.Event] = {}
        """Calls that are held back, by partition and offset."""

    def hold(self, partition: int, offset: int) -> asyncio.Event:
        return self.gates.setdefault((partition, offset), asyncio.Event())

    async def __call__(self, message: Message) -> None:
        place = message.partition, message.offset
        assert message.partition not in {partition for partition, _ in self.running}
        self.running.append(place)
        self.most = max(self.most, len(self.running))
        try:
            await asyncio.sleep(0)
            if place in self.gates:
                await self.gates[place].wait()
        finally:
            self.running.remove(place)
        self.handled[message.partition].append(message.offset)

    @property
    def count(self) -> int:
        return sum(map(len, self.handled.values()))

    async def has(self, count: int) -> None:
        """Wait until so many calls have returned."""
        await eventually(lambda: self.count >= count)

    async def runs(self, *places: tuple[int, int]) -> None:
        """Wait until just these calls are held back."""
        await eventually(lambda: sorted(self.running) == sorted(places))


@asynccontextmanager
async def running(
    group: ConsumerGroup,
    handler: MessageHandler,
    concurrency: int = 1,
    on_error: OnError = "stop",
) -> AsyncIterator[asyncio.Task[None]]:
    """Run a handler in a task, which is cancelled at the end."""
    task = asyncio.create_task(group.run(handler, concurrency=concurrency, on_error=on_error))
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                async with asyncio.timeout(BOUND):
                    await task


ALL = {0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}


# Order and concurrency


async def test_all_is_handled_in_order_and_committed(
    client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()
    held = [handler.hold(partition, 1) for partition in range(3)]
    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group:
        async with running(group, handler, concurrency=3):
            await handler.runs((0, 1), (1, 1), (2, 1))
            for gate in held:
                gate.set()
            await handler.has(12)
            await publish(client, stream, 1)
            await handler.has(13)
        assert [await cursor(client, group_id, stream, one) for one in range(3)] == [3, 4, 3]
    assert handler.handled == {**ALL, 1: [0, 1, 2, 3, 4]}
    assert handler.most == 3


async def test_no_partition_starves(client: Client, stream: str, group_id: str) -> None:
    handler = Handler()
    held = handler.hold(0, 1)
    async with (
        client.group(group_id, [stream], start=EARLIEST) as group,
        running(group, handler, concurrency=2),
    ):
        await handler.has(9)
        assert handler.handled == {**ALL, 0: [0]}
        held.set()
        await handler.has(12)
    assert handler.handled == ALL
    assert handler.most == 2


async def test_a_long_backlog_takes_turns_with_others(
    client: Client, stream: str, group_id: str
) -> None:
    seen: list[int] = []

    async def slow(message: Message) -> None:
        await asyncio.sleep(0.011)  # longer than a turn
        seen.append(message.partition)

    async with client.group(group_id, [stream], start=EARLIEST) as group:
        group.pause()
        async with running(group, slow):
            await eventually(
                lambda: all(
                    received == 3 for received in map(group._readers.received, group.assignment)
                )
            )
            group.resume()
            await eventually(lambda: len(seen) == 12)
    assert all(set(seen[at : at + 3]) == {0, 1, 2} for at in range(0, 12, 3))


@ON_EMBEDDED
async def test_plain_functions_let_the_event_loop_run(
    client: Client, stream: str, group_id: str
) -> None:
    seen: list[tuple[int, int]] = []
    await publish(client, stream, 0, 500)
    async with (
        client.group(group_id, [stream], start=EARLIEST) as group,
        running(group, lambda message: seen.append((message.partition, message.offset))),
    ):
        await eventually(lambda: len(seen) == 512)
    for partition, count in ((0, 504), (1, 4), (2, 4)):
        assert [offset for at, offset in seen if at == partition] == list(range(count))


# Commits


@ON_EMBEDDED
async def test_a_message_is_not_committed_before_its_handler_has_returned(
    client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()
    held = handler.hold(0, 2)
    async with (
        client.group(group_id, [stream], start=EARLIEST, commit_interval=0.02) as group,
        running(group, handler, concurrency=3),
    ):

        async def committed() -> list[int | None]:
            return [await cursor(client, group_id, stream, one) for one in range(3)]

        async def others_are() -> bool:
            return await committed() == [1, 3, 3]

        await eventually(others_are)
        await handler.runs((0, 2))
        await group.commit()
        assert await committed() == [1, 3, 3]
        held.set()

        async def all_are() -> bool:
            return await committed() == [3, 3, 3]

        await eventually(all_are)


@ON_EMBEDDED
async def test_without_an_interval_run_commits_nothing(
    client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()

    async def handle(message: Message) -> None:
        if message.partition == 1:
            await group.commit(message)
        await handler(message)

    async with (
        client.group(group_id, [stream], start=EARLIEST, commit_interval=None) as group,
        running(group, handle),
    ):
        await handler.has(12)
    assert [await cursor(client, group_id, stream, one) for one in range(3)] == [None, 3, None]


# Failures


async def test_a_failure_stops_and_its_message_is_handled_again(
    client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()
    held = handler.hold(1, 1)
    fails = True

    async def handle(message: Message) -> None:
        if fails and (message.partition, message.offset) == (0, 2):
            await handler.runs((1, 1))
            asyncio.get_running_loop().call_later(0.05, held.set)
            raise ZeroDivisionError
        await handler(message)

    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group:
        group.pause((stream, 2))
        with pytest.raises(ZeroDivisionError) as caught:
            await group.run(handle, concurrency=2)
        [note] = caught.value.__notes__
        assert f"offset 2 of {stream}/0" in note
        assert not handler.running
        # What was being handled went on to its end.
        assert handler.handled == {0: [0, 1], 1: [0, 1]}
        assert [await cursor(client, group_id, stream, one) for one in range(3)] == [1, 1, None]
        fails = False
        group.resume()
        async with running(group, handle):
            await handler.has(12)
    assert handler.handled == ALL
    assert [await cursor(client, group_id, stream, one) for one in range(3)] == [3, 3, 3]


async def test_iterating_goes_on_with_the_message_that_failed(
    client: Client, stream: str, group_id: str
) -> None:
    def fail(_: Message) -> None:
        raise ZeroDivisionError

    async with client.group(group_id, [stream], start=EARLIEST) as group:
        with pytest.raises(ZeroDivisionError):
            await group.run(fail)
        assert await cursor(client, group_id, stream) is None
        async with asyncio.timeout(BOUND):
            messages = [await anext(group) for _ in range(12)]
    for partition in range(3):
        offsets = [each.offset for each in messages if each.partition == partition]
        assert offsets == [0, 1, 2, 3]


async def test_skipped_failures_are_reported_and_count_as_done(
    server: Server, stream: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    handler, watcher = Handler(), GroupWatcher()

    async def handle(message: Message) -> None:
        if message.offset == 3:
            raise ZeroDivisionError
        await handler(message)

    async with (
        Client(server.address, options=ClientOptions(hook=watcher)) as client,
        client.group(group_id, [stream], start=EARLIEST) as group,
        running(group, handle, concurrency=3, on_error="skip"),
    ):
        await handler.has(9)
        await eventually(lambda: len(watcher.failed_handlers) == 3)
    async with Client(server.address) as client:
        assert [await cursor(client, group_id, stream, one) for one in range(3)] == [3, 3, 3]
    assert handler.handled == {one: [0, 1, 2] for one in range(3)}
    assert sorted(
        (each.group, each.stream, each.partition, each.offset, type(each.error))
        for each in watcher.failed_handlers
    ) == [(group_id, stream, one, 3, ZeroDivisionError) for one in range(3)]
    assert sum("skipped" in record.message for record in caplog.records) == 3


@ON_EMBEDDED
async def test_a_handler_that_is_cancelled_from_elsewhere_has_failed(
    client: Client, stream: str, group_id: str
) -> None:
    async def handle(_: Message) -> None:
        await await_what_others_cancel()

    async with client.group(group_id, [stream], start=EARLIEST) as group:
        with pytest.raises(CallbackCancelled, match="cancelled by something other") as caught:
            await group.run(handle)
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        assert caught.value.offset == 0


@ON_EMBEDDED
async def test_a_base_exception_ends_the_run_and_loses_nothing(
    client: Client, stream_name: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other handlers are cancelled, so their messages are not skipped, and nothing starts."""
    await client.create_stream(stream_name, partitions=3)
    for partition in range(2):
        await publish(client, stream_name, partition, 1)
    fails = asyncio.Event()

    async def handle(message: Message) -> None:
        if message.partition == 0:
            await fails.wait()
            pytest.fail("not as expected")
        fails.set()
        try:
            await asyncio.sleep(60)
        finally:
            await publish(client, stream_name, 2, 1)
            await asyncio.sleep(0.1)

    async with client.group(group_id, [stream_name], start=EARLIEST) as group:
        with pytest.raises(pytest.fail.Exception, match="not as expected"):
            await group.run(handle, concurrency=3, on_error="skip")
        handler = Handler()
        async with running(group, handler):
            await handler.has(3)
    assert handler.handled == {0: [0], 1: [0], 2: [0]}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@ON_EMBEDDED
async def test_a_handler_that_seeks_and_fails_has_its_way(
    client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()

    async def handle(message: Message) -> None:
        if (message.partition, message.offset) == (0, 1):
            await group.seek(stream, 0, 3)
            raise ZeroDivisionError
        await handler(message)

    async with client.group(group_id, [stream], start=EARLIEST) as group:
        with pytest.raises(ZeroDivisionError):
            await group.run(handle)
        async with running(group, handle):
            await handler.has(10)
    assert handler.handled == {**ALL, 0: [0, 3]}


# Ends


async def test_cancelling_cancels_handlers_and_commits_what_is_done(
    client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()
    handler.hold(0, 2)
    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group:
        async with running(group, handler, concurrency=3) as task:
            await handler.has(10)
            await handler.runs((0, 2))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not handler.running
        assert [await cursor(client, group_id, stream, one) for one in range(3)] == [1, 3, 3]
        handler.gates.clear()
        async with running(group, handler):
            await handler.has(12)
    assert handler.handled == ALL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_handlers_finish_and_commits(
    client: Client, stream: str, group_id: str, number: signal.Signals
) -> None:
    handler, heard = Handler(), list[int]()
    held = handler.hold(0, 2)

    def before(arrived: int, _: object) -> None:
        heard.append(arrived)

    restored = signal.signal(number, before)
    try:
        async with client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group:
            running_it = asyncio.create_task(group.run(handler, concurrency=3))
            await handler.has(10)
            await handler.runs((0, 2))
            os.kill(os.getpid(), number)
            await eventually(lambda: heard == [number])
            await publish(client, stream, 1)
            assert not running_it.done()
            held.set()
            async with asyncio.timeout(BOUND):
                await running_it
            assert signal.getsignal(number) is before
            assert handler.handled == {**ALL, 0: [0, 1, 2]}
            assert [await cursor(client, group_id, stream, one) for one in range(3)] == [2, 3, 3]
    finally:
        signal.signal(number, restored)


@ON_EMBEDDED
async def test_sigterm_stops_all_groups_that_run(client: Client, stream: str) -> None:
    handler = Handler()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    async with (
        client.group("one", [stream]) as one,
        client.group("two", [stream]) as two,
        client.group("three", [stream]) as three,
    ):
        first = asyncio.create_task(one.run(handler))
        others = [
            asyncio.create_task(two.run(handler)),
            asyncio.create_task(three.run(handler, stop_on_signals=False)),
        ]
        while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # noqa: ASYNC110
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(BOUND):
            await others[0]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert not others[1].done()
        others[1].cancel()
        await asyncio.wait(others)


async def test_closing_the_group_ends_it(client: Client, stream: str, group_id: str) -> None:
    handler = Handler()
    held = handler.hold(0, 2)
    async with (
        client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group,
        running(group, handler, concurrency=3) as task,
    ):
        await handler.has(10)
        await handler.runs((0, 2))
        closing = asyncio.create_task(group.aclose())
        await eventually(lambda: not group._readers.merge.readers)
        held.set()
        async with asyncio.timeout(BOUND):
            await closing
            await task
    assert handler.handled == {**ALL, 0: [0, 1, 2]}
    assert [await cursor(client, group_id, stream, one) for one in range(3)] == [2, 3, 3]


@ON_EMBEDDED
async def test_closing_the_group_waits_for_handlers_for_half_of_its_timeout(
    server: Server, stream: str, group_id: str
) -> None:
    done: list[int] = []

    async def handle(message: Message) -> None:
        done.append(message.offset)
        if message.offset == 0:
            await asyncio.sleep(0.5)  # more than a quarter of close_timeout
            done.append(message.offset)

    async with Client(server.address, options=ClientOptions(close_timeout=1.5)) as client:
        group = client.group(group_id, [stream], start=EARLIEST, commit_interval=60)
        async with group, running(group, handle) as task:
            await eventually(lambda: bool(done))
            await group.aclose()
            await task
        assert done == [0, 0]
        committed = [await cursor(client, group_id, stream, one) for one in range(3)]
        assert sorted(committed, key=str) == [0, None, None]


@pytest.mark.usefixtures("long_transfer")
async def test_a_partition_moves_when_its_handler_has_returned(
    server: Server, stream: str, group_id: str
) -> None:
    """A handler that soon returns when another member takes its partition is not repeated."""
    first, second = Handler(), Handler()
    held = [first.hold(partition, 0) for partition in ALL]
    group = partial(Client.group, group=group_id, streams=[stream], start=EARLIEST)
    async with (
        Client(server.address) as one,
        Client(server.address) as other,
        group(one, commit_interval=60) as former,
        running(former, first, 3),
    ):
        await first.runs((0, 0), (1, 0), (2, 0))
        async with group(other, commit_interval=60) as latter:
            await eventually(lambda: len(former._readers.merge.readers) < 3)
            for each in held:
                each.set()
            async with running(latter, second, 3):
                await eventually(lambda: first.count + second.count >= 12)
    assert sorted(
        (partition, offset)
        for handler in (first, second)
        for partition, offsets in handler.handled.items()
        for offset in offsets
    ) == sorted((partition, offset) for partition in ALL for offset in range(4))


@ON_EMBEDDED
async def test_leaving_the_block_finishes_nothing_that_is_handled(
    client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()
    handler.hold(0, 2)
    async with client.group(group_id, [stream], start=EARLIEST, commit_interval=60) as group:
        task = asyncio.create_task(group.run(handler, concurrency=3))
        await handler.has(10)
        await handler.runs((0, 2))
        asyncio.get_running_loop().call_later(0.2, task.cancel)
    await asyncio.wait([task])
    assert [await cursor(client, group_id, stream, one) for one in range(3)] == [1, 3, 3]


@ON_EMBEDDED
async def test_a_handler_may_close_the_group(client: Client, stream: str, group_id: str) -> None:
    handler = Handler()

    async def handle(message: Message) -> None:
        await handler(message)
        if message.offset == 2:
            await group.aclose()

    async with client.group(group_id, [stream], start=EARLIEST) as group:
        group.pause((stream, 1), (stream, 2))
        async with asyncio.timeout(BOUND):
            await group.run(handle)
    assert handler.handled == {0: [0, 1, 2]}
    assert await cursor(client, group_id, stream) == 2


async def test_closing_the_client_ends_it(
    server_client: Client, stream: str, group_id: str
) -> None:
    handler = Handler()
    group = server_client.group(group_id, [stream], start=EARLIEST)
    await group.__aenter__()
    async with running(group, handler) as task:
        await handler.has(12)
        await server_client.aclose()
        async with asyncio.timeout(BOUND):
            await task
    with pytest.raises(ClientClosed):
        await group.aclose()  # what was handled could not be committed any more


@pytest.mark.parametrize("deleted", [True, False])
async def test_streams_that_end(client: Client, stream: str, group_id: str, deleted: bool) -> None:
    handler = Handler()
    async with (
        client.group(group_id, [stream], start=EARLIEST) as group,
        running(group, handler, concurrency=2) as task,
    ):
        await handler.has(12)
        if deleted:
            await client.delete_stream(stream)
            async with asyncio.timeout(BOUND):
                with pytest.raises(StreamDeleted):
                    await task
        else:
            await client.set_stream_readonly(stream, [0])
            await publish(client, stream, 1)
            await handler.has(13)
            await client.set_stream_readonly(stream, [0], readonly=False)
            await publish(client, stream, 0)
            await handler.has(14)


# While it runs


async def test_pausing_seeking_and_resuming(client: Client, stream: str, group_id: str) -> None:
    handler = Handler()
    held = handler.hold(0, 1)
    async with (
        client.group(group_id, [stream], start=EARLIEST) as group,
        running(group, handler, concurrency=3),
    ):
        await handler.has(9)
        group.pause((stream, 0))
        await handler.runs((0, 1))
        held.set()
        await handler.has(10)
        await publish(client, stream, 1)
        await handler.has(11)
        assert handler.handled[0] == [0, 1]
        group.resume((stream, 0))
        await handler.has(13)
        assert handler.handled == {**ALL, 1: [0, 1, 2, 3, 4]}
        # A seek under a running handler: what it leads to waits for its end.
        held = handler.hold(2, 4)
        await publish(client, stream, 2)
        await handler.runs((2, 4))
        await group.seek(stream, 2, 2)
        await publish(client, stream, 1)
        await handler.has(14)
        assert handler.running == [(2, 4)]
        del handler.gates[2, 4]
        held.set()
        await handler.has(18)
        assert handler.handled[2] == [0, 1, 2, 3, 4, 2, 3, 4]


async def test_nobody_else_reads_meanwhile(client: Client, stream: str, group_id: str) -> None:
    handler = Handler()
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        async with running(group, handler):
            await handler.has(12)
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: group.run(handler),
                lambda: anext(group),
                lambda: anext(group.batches()),
            ]
            for call in calls:
                with pytest.raises(ConcurrentRead):
                    await call()
        waiting = asyncio.ensure_future(anext(group))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentRead):
            await group.run(handler)
        await publish(client, stream, 0)
        assert (await waiting).offset == 4


@ON_EMBEDDED
async def test_bad_arguments_are_refused(client: Client, stream: str, group_id: str) -> None:
    group = client.group(group_id, [stream])
    with pytest.raises(UsageError, match="async with"):
        await group.run(print)
    async with group:
        for wrong in (0, -1):
            with pytest.raises(InvalidRequest):
                await group.run(print, concurrency=wrong)
        with pytest.raises(InvalidRequest, match="on_error"):
            await group.run(print, on_error="retry")  # type: ignore[arg-type]
        with pytest.raises(WrongType):
            await group.run(None)  # type: ignore[arg-type]


# Interceptors


class Marking(Interceptor):
    """Adds its name to a header on the way in, and notes what passes on the way out."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    async def process(self, message: Message, handle: Callable[[Message], Awaitable[None]]) -> None:
        way = message.headers.get("way", b"") + self.name.encode()
        try:
            await handle(dataclasses.replace(message, headers={**message.headers, "way": way}))
        finally:
            self.log.append(self.name)


class Quiet(Interceptor):
    """Overrides nothing."""


class Filtering(Interceptor):
    """Skips even offsets, and fails for the last."""

    async def process(self, message: Message, handle: Callable[[Message], Awaitable[None]]) -> None:
        if message.offset == 3:
            raise LiftbridgeError("no threes")
        if message.offset % 2:
            await handle(message)


async def test_interceptors_wrap_the_handler(server: Server, stream: str, group_id: str) -> None:
    log: list[str] = []
    options = ClientOptions(
        interceptors=[Marking("a", log), Quiet(), Marking("b", log), Filtering()]
    )
    handled: list[tuple[StreamPartition, int, bytes]] = []

    def handle(message: Message) -> None:
        place = StreamPartition(message.stream, message.partition)
        handled.append((place, message.offset, message.headers["way"]))

    async with Client(server.address, options=options) as client:
        async with client.group(group_id, [stream], start=EARLIEST) as group:
            group.pause((stream, 1), (stream, 2))
            with pytest.raises(LiftbridgeError, match="no threes") as caught:
                await group.run(handle)
            assert "offset 3" in caught.value.__notes__[0]
        assert await cursor(client, group_id, stream) == 2
    assert handled == [(StreamPartition(stream, 0), 1, b"ab")]
    assert log == ["b", "a"] * 4


if sys.version_info >= (3, 12):

    @pytest.mark.parametrize("kind", ["group", "queue"])
    async def test_thousands_of_workers_under_eager_tasks(
        client: Client, stream_name: str, kind: str
    ) -> None:
        """Workers that start each other must not begin inside the calls that create them."""
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        count, handled = 2000, 0
        await client.create_stream(stream_name, partitions=3)
        await client.publish_many(stream_name, [b""] * count)

        async def handle(_: object) -> None:
            nonlocal handled
            await asyncio.sleep(0)
            handled += 1
            if handled == count:
                await member.aclose()

        member: ConsumerGroup | Queue[Delivery]
        if kind == "group":
            member = client.group(f"group-{stream_name}", [stream_name], start=EARLIEST)
        else:
            member = client.queue(stream_name, options=QueueOptions(max_in_flight=3 * count))
        async with asyncio.timeout(6 * BOUND), member:
            await member.run(handle, concurrency=count)
        assert handled == count
