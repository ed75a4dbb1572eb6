"""Sending on streaming calls: as much as the server allows, and for the right call."""

from __future__ import annotations

import asyncio

import pytest
from hyperframe.frame import DataFrame, SettingsFrame

from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.net.broker_connection import StreamCall
from support.peers.scripted_peer import BOUND, FIRST_WINDOW, LARGEST_FRAME, Peer, PeerStream
from support.peers.streaming import PATHS, Calls, Recorder, calling

pytestmark = pytest.mark.parametrize("path", PATHS)

WINDOW, FRAME = SettingsFrame.INITIAL_WINDOW_SIZE, SettingsFrame.MAX_FRAME_SIZE


async def exhausted(calls: Calls, stream: PeerStream) -> None:
    """Wait until the client may send nothing more."""
    await calls.on_socket.until(lambda: min(stream.room, calls.peer.room) <= 0)


async def blocked(
    calls: Calls, messages: list[bytes]
) -> tuple[StreamCall, PeerStream, asyncio.Task[None]]:
    """Begin to send more than the server allows, and go as far as it does."""
    call, stream = await calls.open()
    sending = asyncio.create_task(call.send(messages))
    await exhausted(calls, stream)
    assert not sending.done()
    return call, stream, sending


async def test_many_messages_go_out_in_one_frame(path: str) -> None:
    async with calling(path) as calls:
        call, stream = await calls.open()
        await call.send([b"message"] * 100)
        await calls.on_socket.until(lambda: len(stream.body) == 1200)
        if path == "lane":
            assert calls.peer.count(DataFrame) == 1
        call.close()


async def test_sending_obeys_the_windows_of_stream_and_connection(path: str) -> None:
    async with calling(path) as calls:
        message = bytes(200_000)
        call, stream, sending = await blocked(calls, [message, b"and another"])
        assert len(stream.body) == FIRST_WINDOW
        calls.peer.allow(10_000, stream)
        calls.send()
        await asyncio.sleep(0)
        calls.peer.allow(1)
        calls.send()
        await calls.on_socket.until(lambda: len(stream.body) == FIRST_WINDOW + 1)
        calls.peer.allow(200_000)
        calls.send()
        await calls.on_socket.until(lambda: len(stream.body) == FIRST_WINDOW + 10_000)
        assert stream.room == 0
        calls.peer.allow(200_000, stream)
        calls.send()
        async with asyncio.timeout(BOUND):
            await sending
        await calls.on_socket.until(lambda: len(stream.body) == 200_000 + 5 + 5 + 11)
        assert stream.messages == [message, b"and another"]
        assert call.attempted == 2
        call.close()


async def test_two_calls_share_the_window_of_the_connection(path: str) -> None:
    async with calling(path, Peer({WINDOW: 2**20})) as calls:
        call, stream, sending = await blocked(calls, [bytes(100_000)])
        other, second = await calls.open()
        waiting = asyncio.create_task(other.send([bytes(100_000)]))
        while len(stream.body) + len(second.body) < 200_010:
            calls.peer.allow(10_000)
            calls.send()
            await calls.on_socket.until(
                lambda: calls.peer.room == 0 or len(stream.body) + len(second.body) == 200_010
            )
        async with asyncio.timeout(BOUND):
            await asyncio.gather(sending, waiting)
        await calls.on_socket.until(lambda: len(stream.body) == len(second.body) == 100_005)
        call.close()
        other.close()


async def test_settings_of_the_server_apply_in_mid_stream(path: str) -> None:
    peer = Peer()
    async with calling(path, peer) as calls:
        call, stream, sending = await blocked(calls, [bytes(600_000)])
        assert max(frame.body_len for frame in peer.frames) <= LARGEST_FRAME
        peer.settings({WINDOW: 3 * FIRST_WINDOW, FRAME: 2**16})
        peer.allow(10**6)
        calls.send()
        await calls.on_socket.until(lambda: len(stream.body) == 3 * FIRST_WINDOW)
        assert stream.room == 0
        if path == "lane":
            assert max(frame.body_len for frame in peer.frames) > LARGEST_FRAME
        # Smaller windows and frames: what was sent counts, so less than nothing is left.
        peer.settings({WINDOW: 1000, FRAME: LARGEST_FRAME})
        calls.send()
        await calls.on_socket.until(lambda: stream.room < -FIRST_WINDOW)
        peer.allow(-stream.room, stream)
        calls.send()
        await asyncio.sleep(0)
        assert stream.room == 0
        peer.allow(1, stream)
        calls.send()
        await calls.on_socket.until(lambda: len(stream.body) == 3 * FIRST_WINDOW + 1)
        assert not sending.done()
        peer.allow(10**6, stream)
        calls.send()
        async with asyncio.timeout(BOUND):
            await sending
        await calls.on_socket.until(lambda: len(stream.body) == 600_005)
        call.close()


async def test_a_window_of_nothing_holds_everything_back(path: str) -> None:
    async with calling(path, Peer({WINDOW: 0})) as calls:
        call, stream = await calls.open()
        # The first settings may come after the client's first frames.
        await calls.on_socket.until(lambda: stream.room <= 0)
        sending = asyncio.create_task(call.send([b"one", b"two"]))
        for size in (1, 4, 2, 9):
            calls.peer.allow(size, stream)
            calls.send()
            await calls.on_socket.until(lambda: stream.room == 0)
        async with asyncio.timeout(BOUND):
            await sending
        assert stream.messages == [b"one", b"two"]
        call.close()


async def test_cancelling_a_send_that_waits(path: str) -> None:
    async with calling(path) as calls:
        messages = [bytes(30_000)] * 10
        call, stream, sending = await blocked(calls, messages)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        # Two are there, of the third there is a part, of no other anything.
        assert call.attempted == 3
        call.close()
        await calls.on_socket.until(lambda: stream.reset is not None)
        calls.peer.allow(10**6)
        other, second = await calls.open()
        await other.send([b"works"], end=True)
        await calls.on_socket.until(lambda: second.ended)
        assert second.messages == [b"works"]
        other.close()


@pytest.mark.parametrize("delivers", [True, False], ids=["delivers", "does not"])
@pytest.mark.parametrize("happening", ["reset", "cut", "goaway", "close"])
async def test_a_send_that_waits_ends_with_what_breaks_the_call(
    path: str, happening: str, *, delivers: bool
) -> None:
    async with calling(path) as calls:
        call, stream, sending = await blocked(calls, [bytes(100_000)])
        recorder = Recorder(call)
        if delivers:
            call.deliver(recorder)
        if happening == "cut":
            calls.on_socket.cut()
        elif happening == "close":
            calls.connection.close()
        elif happening == "goaway":
            calls.peer.go_away()
        else:
            calls.peer.reset(stream)
        calls.send()
        async with asyncio.timeout(BOUND):
            with pytest.raises(CallFailure) as caught:
                await sending
        assert caught.value.code is Code.UNAVAILABLE
        assert caught.value.reach is Reach.UNKNOWN
        assert sending.cancelling() == 0
        assert call.attempted == 1
        if delivers:
            assert (await recorder.end()).code is Code.UNAVAILABLE
        call.close()


@pytest.mark.parametrize("happening", ["end", "end of stream", "leave"])
async def test_a_send_that_waits_ends_with_the_call(path: str, happening: str) -> None:
    async with calling(path) as calls:
        call, stream, sending = await blocked(calls, [bytes(100_000)])
        recorder = Recorder(call)
        call.deliver(recorder)
        if happening == "leave":
            call.close()
        else:
            calls.peer.accept(stream)
            if happening == "end":
                calls.peer.end(stream, 8, "too much")
            else:
                calls.peer.data(stream, b"", end=True)
            calls.send()
            assert (await recorder.end()).code in {Code.RESOURCE_EXHAUSTED, Code.INTERNAL}
        async with asyncio.timeout(BOUND):
            with pytest.raises(CallFailure):
                await sending
        assert sending.cancelling() == 0
        # The connection is whole, and others go on.
        assert calls.connection.up
        calls.peer.allow(10**6)
        calls.send()
        other, second = await calls.open()
        await other.send([b"works"], end=True)
        await calls.on_socket.until(lambda: second.ended)
        other.close()


async def test_a_slow_transport_holds_sends_back(path: str) -> None:
    """The server allows everything and reads nothing: what waits, waits outside of the client."""
    async with calling(path, Peer({WINDOW: 2**31 - 1})) as calls:
        calls.peer.allow(2**31 - 1 - FIRST_WINDOW)
        calls.send()
        call, stream = await calls.open()
        await calls.on_socket.until(lambda: stream.room > FIRST_WINDOW)
        calls.on_socket.pause()
        sending = asyncio.create_task(call.send([bytes(50_000)] * 300))
        connection = calls.protocol.connection
        async with asyncio.timeout(BOUND):
            while connection.write_ready.is_set():  # noqa: ASYNC110 - grpclib has no event
                await asyncio.sleep(0.001)
        assert connection._transport.get_write_buffer_size() < 2**20
        assert not sending.done()
        calls.on_socket.resume()
        async with asyncio.timeout(BOUND):
            await sending
        await calls.on_socket.until(lambda: len(stream.body) == 300 * 50_005)
        call.close()
