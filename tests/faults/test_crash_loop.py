"""A lone server that is restarted again and again: it answers before it knows its streams.

v1.9.0 knows none for about two seconds after each start, with its port open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from grpclib.const import Status

from liftbridge_aio import (
    Client,
    ClientOptions,
    CursorsUnavailable,
    PublishTimeout,
    StartAt,
    StreamNotFound,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.retry import Backoff
from liftbridge_aio.wire import proto, rpc
from support.faults import (
    BOUND,
    QUICK,
    Recorder,
    eventually,
    unless_offsets_repeat,
)
from support.lone_servers import EMBEDDED, FORGETFUL, LoneServer
from support.raw import End, Ended, Wire, message
from support.servers.build import pinned_version
from support.traffic import PATIENT, flowing

pytestmark = pytest.mark.parametrize("data_path", ["lane"], indirect=True)

BOUNCES = 4
LIVES = {"embedded": 0.4, "v1.9.0": 1.4}
"""Seconds from one crash to the next, by the kind of server."""
PATIENCE = {"embedded": 0.8, "v1.9.0": 5.0}
"""not_found_timeout: longer than one life, and shorter than all of them."""


def options_for(kind: str, recorder: Recorder) -> ClientOptions:
    return ClientOptions(backoff=QUICK, hook=recorder, not_found_timeout=PATIENCE[kind])


async def bounce(server: LoneServer, times: int = BOUNCES) -> None:
    """Kill it again and again, as soon as it has lived for a while; it knows its streams then."""
    for _ in range(times):
        await server.crash()
        await server.open()
        await asyncio.sleep(LIVES[server.kind])  # the fault itself: a life that is too short
    await server.ready()


@asynccontextmanager
async def going_on(*work: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Do each of these again and again; what they raise is raised in the end."""
    stop = asyncio.Event()

    async def repeat(one: Callable[[], Awaitable[object]]) -> None:
        while not stop.is_set():
            await one()

    tasks = [asyncio.create_task(repeat(one)) for one in work]
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(2 * BOUND):
            await asyncio.gather(*tasks)


async def test_reader_and_publisher_go_on_through_a_crash_loop(
    crashable: LoneServer, recorder: Recorder, stream_name: str
) -> None:
    options = options_for(crashable.kind, recorder)
    async with Client(crashable.address, options=options) as client:
        await client.create_stream(stream_name)
        with unless_offsets_repeat(crashable, stream_name):
            async with flowing(client, stream_name, retry=PATIENT, timeout=30) as flow:
                await flow.more()
                await bounce(crashable)
        assert not flow.unknown
        assert not flow.refused
        assert not flow.lost


async def test_questions_are_answered_through_a_crash_loop(
    crashable: LoneServer, recorder: Recorder, stream_name: str
) -> None:
    """About a stream that the client knows: that a server has forgotten it is no answer."""
    options = options_for(crashable.kind, recorder)
    async with Client(crashable.address, options=options) as client:
        await client.create_stream(stream_name, partitions=2)
        await client.publish(stream_name, b"first")
        await client.set_cursor("reader", stream_name, 0, 0)
        async with client.subscribe(
            stream_name, partition=0, start=StartAt.earliest()
        ) as subscription:
            limit = 2 * BOUND
            async with going_on(
                lambda: client.fetch_partition_metadata(stream_name, 1, timeout=limit),
                lambda: client.last(stream_name, partition=0, n=1, timeout=limit),
                lambda: client.fetch_cursor("reader", stream_name, 0, timeout=limit),
                lambda: subscription.lag(timeout=limit),
                lambda: client.resume_stream(stream_name, timeout=limit),
            ):
                await bounce(crashable)


async def test_a_publish_whose_time_is_up_says_that_servers_went_away(
    recorder: Recorder, stream_name: str
) -> None:
    async with EmbeddedBroker() as broker:
        options = ClientOptions(backoff=QUICK, hook=recorder, publish_timeout=0.4)
        async with Client(broker.address, options=options) as client:
            with pytest.raises(StreamNotFound):
                await client.publish(stream_name, b"never there")
            await client.create_stream(stream_name)
            await client.publish(stream_name, b"known")
            broker.faults.forget_streams()
            await broker.restart()
            await eventually(lambda: recorder.down)
            with pytest.raises((PublishTimeout, StreamNotFound)) as caught:
                await client.publish(stream_name, b"forgotten")
            assert "no broker knew the stream" in caught.value.message
            broker.faults.remember_streams()
            await client.publish(stream_name, b"known again")


async def test_calls_wait_for_a_server_that_has_just_come_back(
    crashable: LoneServer, recorder: Recorder, stream_name: str
) -> None:
    """Of streams that the client knows, and of one that it has never seen."""
    known, paused, unseen = (f"{stream_name}-{name}" for name in ("known", "paused", "unseen"))
    options = ClientOptions(backoff=QUICK, hook=recorder)
    async with (
        Client(crashable.address) as other,
        Client(crashable.address, options=options) as client,
    ):
        for name in (known, paused):
            await client.create_stream(name)
            await client.publish(name, b"first")
        await other.create_stream(unseen)
        await client.fetch_metadata([known])
        await crashable.crash()
        await crashable.open()
        limit = 2 * BOUND
        changes = asyncio.gather(
            client.set_stream_readonly(known, readonly=False, timeout=limit),
            client.pause_stream(paused, timeout=limit),
            client.set_stream_readonly(unseen, readonly=False, timeout=limit),
        )
        names = (known, unseen)
        starts = asyncio.gather(*(client.oldest_offset(name, timeout=limit) for name in names))
        states = asyncio.gather(
            *(client.fetch_partition_metadata(name, 0, timeout=limit) for name in names)
        )
        everything = asyncio.gather(changes, starts, states)
        await eventually(lambda: everything.done() or len(recorder.tries) > 2 * len(names) + 3)
        await crashable.ready()
        await everything
        assert await starts == [0, 0]
        assert [state.newest_offset for state in await states] == [0, -1]
        with pytest.raises(StreamNotFound):  # the leader of the metadata says so at once
            await client.pause_stream(f"{stream_name}-none", timeout=limit)


async def test_a_server_that_forgets_while_connected_is_asked_again(
    recorder: Recorder,
) -> None:
    """As one that is restarted behind a proxy, which keeps the connection."""
    timeout = 1.5
    options = ClientOptions(backoff=QUICK, hook=recorder, not_found_timeout=timeout)
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address, options=options) as client,
    ):
        await client.create_stream("s")
        await client.publish("s", b"first")
        await client.set_cursor("reader", "s", 0, 0)
        assert len(await client.last("s", partition=0, n=1)) == 1
        await asyncio.sleep(timeout)  # it has been up for so long that it could be believed
        broker.faults.forget_streams()
        calls = asyncio.gather(
            client.last("s", partition=0, n=1),
            client.oldest_offset("s"),
            client.set_cursor("reader", "s", 0, 1),
            client.fetch_cursor("reader", "s", 0),
        )
        await eventually(lambda: calls.done() or len(recorder.tries) > 12)
        broker.faults.remember_streams()
        await calls

        broker.faults.forget_streams()
        for call in (client.set_cursor("reader", "s", 0, 2), client.fetch_cursor("reader", "s", 0)):
            with pytest.raises(CursorsUnavailable, match="no __cursors stream"):
                await call


async def test_a_call_uses_the_time_that_it_was_given() -> None:
    """A server that says "not found" is asked a last time shortly before the end."""
    seldom = ClientOptions(backoff=Backoff(initial=1000, maximum=1000))
    timeout = 1.0
    loop = asyncio.get_running_loop()
    async with EmbeddedBroker() as broker, Client(broker.address, options=seldom) as client:
        began = loop.time()

        async def asked(call: Awaitable[object]) -> float:
            with pytest.raises(StreamNotFound):
                await call
            return loop.time() - began

        async def subscribe() -> None:
            async with client.subscribe("none", partition=0, timeout=timeout):
                pass

        times = await asyncio.gather(
            asked(subscribe()),
            asked(client.last("none", partition=0, n=1, timeout=timeout)),
            asked(client.fetch_partition_metadata("none", 0, timeout=timeout)),
        )
        assert min(times) > 0.7 * timeout


@pytest.mark.parametrize("crashable", [EMBEDDED, FORGETFUL, pinned_version()], indirect=True)
async def test_what_a_server_answers_before_it_knows_its_streams(
    crashable: LoneServer, stream_name: str
) -> None:
    host, _, port = crashable.address.rpartition(":")
    wire = Wire(host, int(port))
    await wire.create(stream_name)
    wire.close()
    await crashable.crash()
    await crashable.open()
    wire = Wire(host, int(port))
    [told] = (
        await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest(streams=[stream_name]))
    ).stream_metadata
    assert told.error is proto.StreamMetadataError.UNKNOWN_STREAM
    everything = await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())
    assert everything.stream_metadata == []
    assert len(everything.brokers) == 1
    asked = proto.FetchPartitionMetadataRequest(stream=stream_name, partition=0)
    unknown = End(Status.NOT_FOUND, "partition not found")
    assert await wire.refusal(rpc.FETCH_PARTITION_METADATA, asked) == unknown
    unknown = End(Status.NOT_FOUND, "stream not found")
    assert await wire.refusal(rpc.PAUSE_STREAM, proto.PauseStreamRequest(name=stream_name)) == (
        unknown
    )
    writable = proto.SetStreamReadonlyRequest(name=stream_name)
    assert await wire.refusal(rpc.SET_STREAM_READONLY, writable) == unknown
    refusal = await wire.refusal(rpc.PUBLISH, message(stream_name, b""))
    assert refusal.status is Status.NOT_FOUND
    with pytest.raises(Ended, match="NOT_FOUND: No such partition"):
        async with wire.subscribe(stream_name):
            pass
    wire.close()
    await crashable.ready()
    wire = Wire(host, int(port))
    assert (await wire.stream(stream_name)).partitions
    wire.close()
