"""The server goes away and comes back, or not, or with other streams than before."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConnectionFailed,
    Message,
    PublishNotSent,
    PublishTimeout,
    StartAt,
    StopAt,
    StreamDeleted,
    StreamExists,
    StreamNotFound,
    StreamReset,
    SubscriptionLost,
    SubscriptionStatistics,
)
from liftbridge_aio.queue import Delivery, Queue, QueueOptions, RetryStreams
from liftbridge_aio.testing import FaultProxy
from support.faults import (
    BOUND,
    QUICK,
    Recorder,
    eventually,
    take,
    unless_offsets_repeat,
)
from support.lone_servers import EMBEDDED, HIDING, LoneServer
from support.servers.build import pinned_version
from support.traffic import flowing

EARLIEST: Final = StartAt.earliest()
ON_EACH_KIND: Final = pytest.mark.parametrize(
    "crashable", [EMBEDDED, HIDING, pinned_version()], indirect=True
)
"""For tests about what real servers hide after a crash."""
CHANGES: Final = {"CreateStream", "DeleteStream"}


@pytest.fixture
def stream_options(recorder: Recorder) -> ClientOptions:
    # A real server that has just started loses what comes before its partitions are ready.
    return ClientOptions(backoff=QUICK, hook=recorder, ack_timeout=1.0)


async def test_reading_and_publishing_go_on_after_a_restart(
    crashable: LoneServer, stream_options: ClientOptions, stream_name: str
) -> None:
    """Nothing that was acked is lost, nothing is repeated, and the order stands."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        with unless_offsets_repeat(crashable, stream_name):
            async with flowing(client, stream_name) as flow:
                for _ in range(2):
                    await flow.more(50)
                    await crashable.crash()
                    await crashable.start()
        assert not flow.lost


async def test_cursors_and_calls_after_a_restart(
    crashable: LoneServer, stream_options: ClientOptions, stream_name: str
) -> None:
    """The links are made again without anybody's doing."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        await client.set_cursor("reader", stream_name, 0, 7)
        await crashable.crash()
        await crashable.start()
        async with asyncio.timeout(BOUND):
            await client.ping()
            assert stream_name in (await client.fetch_metadata()).streams
            await client.set_cursor("reader", stream_name, 0, 8)
            assert await client.fetch_cursor("reader", stream_name, 0) == 8


async def test_a_call_that_was_never_sent_before_has_not_been_done_before(
    crashable: LoneServer, recorder: Recorder, stream_options: ClientOptions, stream_name: str
) -> None:
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        await crashable.crash()
        await eventually(lambda: recorder.down)
        recorder.tries.clear()
        create = asyncio.create_task(client.create_stream(stream_name, partitions=2, timeout=BOUND))
        delete = asyncio.create_task(client.delete_stream("no-such-stream", timeout=BOUND))
        await eventually(lambda: {each.call for each in recorder.tries} >= CHANGES)
        await crashable.start()
        with pytest.raises(StreamExists):
            await create
        with pytest.raises(StreamNotFound):
            await delete


async def test_statistics_while_the_server_is_away(
    crashable: LoneServer, stream_options: ClientOptions, stream_name: str
) -> None:
    """Position and lag stay known; that no server serves the reader shows."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"x"] * 5)
        async with client.subscribe(
            stream_name, partition=0, start=StartAt.offset(1)
        ) as subscription:
            await take(subscription, 2)
            served = SubscriptionStatistics(stream_name, 0, crashable.address, 3, 2)
            assert client.statistics().subscriptions == (served,)
            await crashable.crash()
            await eventually(lambda: client.statistics().subscriptions != (served,))
            away = SubscriptionStatistics(stream_name, 0, None, 3, 2)
            assert client.statistics().subscriptions == (away,)
            await crashable.start()
            await eventually(lambda: client.statistics().subscriptions == (served,))
            assert {each.state for each in client.statistics().connections} == {"up"}


@pytest.fixture
async def tailing(proxy: FaultProxy, recorder: Recorder) -> AsyncIterator[Client]:
    options = ClientOptions(
        backoff=QUICK,
        hook=recorder,
        address_map=lambda _: proxy.address,
        not_found_timeout=0.5,
    )
    async with Client(proxy.address, options=options) as client:
        yield client


async def down(proxy: FaultProxy, recorder: Recorder) -> None:
    """Break the link for long enough that a resumption has failed."""
    await proxy.refuse()
    await proxy.cut()
    await eventually(lambda: len(recorder.tries) >= 3)


async def test_a_stream_created_anew_while_the_link_was_down(
    proxy: FaultProxy, tailing: Client, recorder: Recorder, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    for value in (b"a", b"b"):
        await direct.publish(stream_name, value)
    async with tailing.subscribe(
        stream_name, partition=0, start=StartAt.earliest()
    ) as subscription:
        await take(subscription, 2)
        await down(proxy, recorder)
        await direct.delete_stream(stream_name)
        await direct.create_stream(stream_name)
        for value in (b"x", b"y", b"z"):
            await direct.publish(stream_name, value)
        await proxy.accept()
        with pytest.raises(StreamReset) as caught:
            await take(subscription, 1)
        assert caught.value.stream == stream_name
        assert caught.value.offset == 2


async def test_a_stream_created_anew_while_the_reader_is_connected(
    tailing: Client, direct: Client, stream_name: str
) -> None:
    """The server says that it was deleted; that another one of its name exists changes nothing."""
    await direct.create_stream(stream_name)
    await direct.publish(stream_name, b"a")
    async with tailing.subscribe(
        stream_name, partition=0, start=StartAt.earliest()
    ) as subscription:
        await take(subscription, 1)
        await direct.delete_stream(stream_name)
        await direct.create_stream(stream_name)
        await direct.publish(stream_name, b"x")
        with pytest.raises((StreamReset, StreamDeleted)):
            await take(subscription, 1)


async def test_a_stream_deleted_while_the_link_was_down(
    proxy: FaultProxy, tailing: Client, recorder: Recorder, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    await direct.publish(stream_name, b"a")
    async with tailing.subscribe(
        stream_name, partition=0, start=StartAt.earliest()
    ) as subscription:
        await take(subscription, 1)
        await down(proxy, recorder)
        await direct.delete_stream(stream_name)
        await proxy.accept()
        with pytest.raises(StreamDeleted) as caught:
            await take(subscription, 1, bound=5.0)
        assert caught.value.stream == stream_name


async def test_a_server_that_stays_away(
    crashable: LoneServer, recorder: Recorder, stream_name: str
) -> None:
    """Each kind of call ends in its own error, within its own time."""
    options = ClientOptions(
        backoff=QUICK,
        hook=recorder,
        resubscribe_timeout=1.0,
        publish_timeout=1.0,
        ack_timeout=1.0,
        call_timeout=1.0,
    )
    async with Client(crashable.address, options=options) as client:
        await client.create_stream(stream_name)
        async with client.subscribe(stream_name, partition=0) as subscription:
            await client.publish(stream_name, b"last")
            await take(subscription, 1)
            await crashable.crash()
            await eventually(lambda: "publish" in {event.purpose for event in recorder.down})

            async def reading() -> None:
                with pytest.raises(SubscriptionLost) as caught:
                    await anext(subscription)
                assert caught.value.last_offset == 0
                assert caught.value.stream == stream_name
                with pytest.raises(StopAsyncIteration):
                    await anext(subscription)

            async def publishing() -> None:
                with pytest.raises(PublishTimeout) as caught:
                    await client.publish(stream_name, b"never")
                assert isinstance(caught.value, PublishNotSent)

            async def calling() -> None:
                with pytest.raises(ConnectionFailed):
                    await client.fetch_metadata()

            async def subscribing() -> None:
                with pytest.raises((ConnectionFailed, TimeoutError)):
                    await client.subscribe(stream_name, partition=0).__aenter__()

            async with asyncio.timeout(1.0 + 1.0 + 1.0), asyncio.TaskGroup() as group:
                for work in (reading, publishing, calling, subscribing):
                    group.create_task(work())


async def test_a_reading_with_an_end_is_not_resumed_for_ever(
    crashable: LoneServer, monkeypatch: pytest.MonkeyPatch, stream_name: str
) -> None:
    monkeypatch.setattr("liftbridge_aio._client.reading._BOUNDED_FOR", 0.5)
    async with Client(crashable.address, options=ClientOptions(backoff=QUICK)) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"only")
        reading = client.read(stream_name, partition=0, stop=StopAt.offset(1))
        async with reading, client.subscribe(stream_name, partition=0) as endless:
            assert (await take(reading, 1))[0].value == b"only"
            await crashable.crash()
            with pytest.raises(SubscriptionLost):
                await take(reading, 1)
            assert endless.end_reason is None


async def test_a_subscription_outlives_any_outage(
    proxy: FaultProxy, recorder: Recorder, tailing: Client, direct: Client, stream_name: str
) -> None:
    """The reading goes on whenever the server comes back."""
    await direct.create_stream(stream_name)
    async with tailing.subscribe(stream_name, partition=0) as subscription:
        await down(proxy, recorder)
        await eventually(lambda: len(recorder.tries) >= 10)
        await direct.publish(stream_name, b"meanwhile")
        await proxy.accept()
        assert (await take(subscription, 1))[0].value == b"meanwhile"


@ON_EACH_KIND
async def test_positions_are_found_after_a_crash(
    crashable: LoneServer, stream_options: ClientOptions, stream_name: str
) -> None:
    """A lone server loses its high watermark, and sees no cursor behind that before it writes."""
    partitions = range(12)  # with positions in each partition of the cursors
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name, partitions=len(partitions))
        for partition in partitions:
            await client.set_cursor("reader", stream_name, partition, 40 + partition)
        await crashable.crash()
        await crashable.start()
        found = [await client.fetch_cursor("reader", stream_name, each) for each in partitions]
        assert found == [40 + partition for partition in partitions]
        assert await client.fetch_cursor("nobody", stream_name, 0) is None


async def acked(queue: Queue[Delivery]) -> AsyncGenerator[Message, None]:
    async for delivery in queue:
        await delivery.ack()
        yield delivery.message


@ON_EACH_KIND
@pytest.mark.parametrize("how", ["group", "cursor", "queue"])
async def test_who_reads_new_messages_only_goes_on_after_a_crash(
    crashable: LoneServer, stream_options: ClientOptions, stream_name: str, how: str
) -> None:
    """With the position unseen, all that came since would be skipped."""

    @asynccontextmanager
    async def member(client: Client) -> AsyncIterator[AsyncIterator[Message]]:
        if how == "group":
            async with client.group(stream_name, [stream_name]) as group:
                yield group
        elif how == "cursor":
            async with client.subscribe(
                stream_name, partition=0, cursor=stream_name
            ) as subscription:
                yield subscription
        else:
            async with client.queue(stream_name, group=stream_name) as queue:
                yield acked(queue)

    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        async with member(client) as reading:
            await client.publish_many(stream_name, [b"%d" % number for number in range(6)])
            async with asyncio.timeout(BOUND):
                assert [(await anext(reading)).offset for _ in range(3)] == [0, 1, 2]
    await crashable.crash()
    await crashable.start()
    async with (
        Client(crashable.address, options=stream_options) as client,
        member(client) as reading,
    ):
        await client.publish(stream_name, b"after")
        async with asyncio.timeout(BOUND):
            assert [(await anext(reading)).offset for _ in range(4)] == [3, 4, 5, 6]


@ON_EACH_KIND
@pytest.mark.parametrize("stays", [True, False])
async def test_messages_in_retry_streams_come_after_a_crash(
    crashable: LoneServer, stream_options: ClientOptions, stream_name: str, stays: bool
) -> None:
    """Nobody else publishes there, so a lone server would hide them for ever."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)

        def member() -> Queue[Delivery]:
            tiers = RetryStreams((2,))
            return client.queue(stream_name, group="g", options=QueueOptions(retry_streams=tiers))

        async with AsyncExitStack() as stack:
            queue = await stack.enter_async_context(member())
            await client.publish(stream_name, b"0")
            for number in (1, 2):
                await queue.publish_later(b"%d" % number, 2)
            assert (await anext(acked(queue))).value == b"0"
            if not stays:
                await stack.aclose()
            await crashable.crash()
            await crashable.start()
            if not stays:
                queue = await stack.enter_async_context(member())
            found = set[bytes]()
            async with asyncio.timeout(BOUND), aclosing(acked(queue)) as messages:
                while found < {b"1", b"2"}:
                    found.add((await anext(messages)).value)
            assert found <= {b"0", b"1", b"2"}


@ON_EACH_KIND
async def test_messages_that_a_server_does_not_show_are_told(
    crashable: LoneServer,
    stream_options: ClientOptions,
    stream_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lone server that has lost its high watermark shows none until the next publish."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"0", b"1", b"2"])
        await crashable.crash()
        await crashable.start()
        last = [message.offset for message in await client.last(stream_name, partition=0, n=3)]
        read = [message.offset async for message in client.read(stream_name, partition=0)]
        hidden = crashable.kind != EMBEDDED
        assert last == read == ([] if hidden else [0, 1, 2])
        assert ("has messages up to offset 2" in caplog.text) is hidden
        await client.publish(stream_name, b"3")
        assert [message.offset for message in await client.last(stream_name, partition=0, n=4)] == [
            0,
            1,
            2,
            3,
        ]


@pytest.mark.real_time
@pytest.mark.parametrize("data_path", ["lane"], indirect=True)
async def test_commands_know_what_a_restarted_server_hides(
    crashable: LoneServer, stream_options: ClientOptions, stream_name: str
) -> None:
    """A lone server may show nothing behind its old high watermark before the next publish."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"%d" % number for number in range(5)])
        await client.set_cursor("__group:billing", stream_name, 0, 4)
        async with client.queue(stream_name, group="queue") as queue:
            await (await anext(queue)).ack()
        await crashable.crash()
        await crashable.start()
        [row], _ = await command(crashable.address, "queue", "list", stream_name)
        assert (row["group"], row["first_unsettled"], row["member"]) == ("queue", 1, "released")
        state = await client.fetch_partition_metadata(stream_name, 0)
        assert state.newest_offset == 4
        shown, said = await command(
            crashable.address, "groups", "show", "billing", "--stream", stream_name
        )
        assert [each["lag"] for each in shown[0]["positions"]] == [0]
        assert "end of the log" not in said
        for to, after in (("new", 4), ("latest", 3)):
            reset = "reset", "another", "--stream", stream_name, "--to", to, "--dry-run"
            moves, _ = await command(crashable.address, "groups", *reset)
            assert [move["after"] for move in moves] == [after]
        words = "tail", stream_name, "--from", "earliest", "--no-follow"
        read, said = await command(crashable.address, *words)
        assert len(read) == state.high_watermark + 1
        assert ("warning" in said) == (len(read) < 5)


async def command(servers: str, *words: str) -> tuple[list[Any], str]:
    """Run a command with --json; return what it wrote to stdout and to stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "liftbridge_aio", *words, "--json", "--servers", servers),
        stdout=PIPE,
        stderr=PIPE,
    )
    async with asyncio.timeout(BOUND):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    lines = [json.loads(line) for line in out.splitlines()]
    return (lines if words[0] == "tail" else lines[0]), err.decode()
