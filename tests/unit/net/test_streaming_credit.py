"""Flow control of what comes on streaming calls: the peer keeps the books by itself."""

from __future__ import annotations

import asyncio
import random

import pytest
from hyperframe.frame import PingFrame, SettingsFrame, WindowUpdateFrame

from liftbridge_aio._core.status import Code
from liftbridge_aio.net.broker_connection import ConnectionState
from support.peers.scripted_peer import BOUND, FIRST_WINDOW, Peer, PeerStream, grpc_message
from support.peers.streaming import PATHS, Calls, Recorder, calling

pytestmark = pytest.mark.parametrize("path", PATHS)


async def answered(calls: Calls) -> None:
    """Let everything that the peer has said so far arrive: the PING behind it is answered."""
    before = calls.peer.count(PingFrame)
    calls.peer.ping()
    calls.send()
    await calls.on_socket.until(lambda: calls.peer.count(PingFrame) > before)


def fill(calls: Calls, stream: PeerStream, message: bytes) -> int:
    """Send messages for as long as there is credit; return how many."""
    sent = 0
    while stream.credit >= len(grpc_message(message)):
        calls.peer.message(stream, message)
        sent += 1
    calls.send()
    return sent


async def test_credit_comes_back_only_as_messages_are_drained(path: str) -> None:
    async with calling(path, stream_window=FIRST_WINDOW) as calls:
        _, stream, recorder = await calls.delivered(holds=True)
        message = bytes(1000)
        sent = fill(calls, stream, message)
        left = stream.credit
        await recorder.count(1)
        await answered(calls)
        assert stream.credit == left
        recorder.holds = False
        recorder.drain()
        await recorder.count(sent)
        await calls.on_socket.until(lambda: stream.credit > FIRST_WINDOW // 2)
        assert stream.credit <= FIRST_WINDOW
        # Drained message by message it comes back in bulk, not each time.
        updates = calls.peer.count(WindowUpdateFrame)
        sent += fill(calls, stream, message)
        await recorder.count(sent)
        await answered(calls)
        assert 1 <= calls.peer.count(WindowUpdateFrame) - updates <= 8


async def test_the_window_may_change_while_a_call_waits_to_be_opened(path: str) -> None:
    async with calling(path, stream_window=2**20) as calls:
        calls.protocol.pause_writing()
        opening = asyncio.create_task(calls.open())
        await asyncio.sleep(0)
        assert not calls.peer.streams
        calls.connection.set_stream_window(FIRST_WINDOW)
        calls.protocol.resume_writing()
        call, stream = await opening
        recorder = Recorder(call)
        call.deliver(recorder)
        calls.peer.accept(stream)
        assert stream.credit == FIRST_WINDOW
        messages = [bytes(1000)] * 200
        async with asyncio.timeout(BOUND):
            await calls.on_socket.say(stream, b"".join(map(grpc_message, messages)))
        await recorder.count(len(messages))
        call.close()


@pytest.mark.parametrize("window", [10, 100, 1000, FIRST_WINDOW, 2**18])
async def test_nothing_stalls_and_no_credit_is_lost(path: str, window: int) -> None:
    rng = random.Random(window)
    async with calling(path, stream_window=window) as calls:
        _, stream, recorder = await calls.delivered()
        messages = [bytes(rng.randrange(min(400, window))) for _ in range(100)]
        messages += [bytes(rng.randrange(window * 3))]
        body = b"".join(map(grpc_message, messages))
        while body:
            await calls.on_socket.until(lambda: stream.credit > 0)
            padding = rng.choice((None, None, 0, 100))
            overhead = 0 if padding is None else padding + 1
            if overhead >= stream.credit:
                padding, overhead = None, 0
            size = min(rng.randrange(1, 16_000), len(body), stream.credit - overhead)
            calls.peer.data(stream, body[:size], padding=padding)
            body = body[size:]
            if rng.random() < 0.5 or stream.credit == 0:
                calls.send()
        calls.send()
        await recorder.count(len(messages))
        assert recorder.messages == messages
        await answered(calls)
        assert window // 2 <= stream.credit <= window
        assert calls.peer.credit <= 2**31 - 1


@pytest.mark.parametrize("holds", [False, True], ids=["reads", "does not read"])
async def test_a_message_larger_than_the_window(path: str, *, holds: bool) -> None:
    async with calling(path, stream_window=FIRST_WINDOW) as calls:
        _, stream, recorder = await calls.delivered(holds=holds)
        for position in range(3):
            message = random.Random(position).randbytes(10 * FIRST_WINDOW)
            await calls.on_socket.say(stream, grpc_message(message))
            await recorder.count(position + 1)
            assert recorder.messages[-1] == message
            recorder.drain()
        await answered(calls)
        # What the larger one got in advance is paid back.
        assert 0 < stream.credit <= FIRST_WINDOW


async def test_one_unread_stream_starves_nobody(path: str) -> None:
    async with calling(path) as calls:
        unread = [await calls.delivered(holds=True) for _ in range(20)]
        for _, stream, _ in unread:
            fill(calls, stream, bytes(5000))
        _, stream, recorder = await calls.delivered()
        await calls.on_socket.say(stream, grpc_message(bytes(1000)) * 3000)
        await recorder.count(3000)
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        for _, _, silent in unread:
            assert silent.ends == []
            assert silent.at_capacity


async def test_what_comes_for_calls_that_were_left_costs_the_connection_nothing(path: str) -> None:
    async with calling(path, stream_window=2**20) as calls:
        _, stream, recorder = await calls.delivered()
        for position in range(8):
            call, other, _ = await calls.delivered(holds=True)
            if position % 2:
                fill(calls, other, bytes(10_000))
                await answered(calls)
                call.close()
            else:
                call.close()
                fill(calls, other, bytes(10_000))  # the peer has not heard of it yet
            await calls.on_socket.until(lambda stream=other: stream.reset is not None)  # type: ignore[misc]
            await answered(calls)
        if path == "lane":
            # h2 waits until half of the 2 GiB are used.
            assert calls.peer.credit > 2**31 - 1 - 2**20
        calls.peer.message(stream, b"one")
        calls.send()
        await recorder.count(1)


# Our own settings change


async def settle(calls: Calls, window: int) -> None:
    """Wait until the peer knows the window, and the client knows that it does."""
    await calls.on_socket.until(lambda: calls.peer.stream_window == window)
    await answered(calls)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "acknowledged late"])
async def test_the_window_changes_while_data_is_in_flight(path: str, *, late: bool) -> None:
    peer = Peer()
    async with calling(path, peer) as calls:
        _, stream, recorder = await calls.delivered()
        await answered(calls)
        peer.acknowledges_settings = not late
        body = grpc_message(bytes(700)) * 2000
        talking = asyncio.create_task(calls.on_socket.say(stream, body))
        step = 250
        for number, window in enumerate((3000, 2**20, 50, FIRST_WINDOW, 700, 10**6), start=1):
            await recorder.count(number * step)
            before = peer.count(SettingsFrame)
            calls.connection.set_stream_window(window)
            await calls.on_socket.until(lambda: peer.count(SettingsFrame) > before)  # noqa: B023
            if late:
                await answered(calls)
                peer.acknowledge_settings()
                calls.send()
            await settle(calls, window)
        async with asyncio.timeout(BOUND):
            await talking
        await recorder.count(2000)
        await answered(calls)
        assert 10**6 // 2 <= stream.credit <= 10**6
        _, stream, recorder = await calls.delivered()
        assert stream.credit == 10**6
        await calls.on_socket.say(stream, body)
        await recorder.count(2000)
        await answered(calls)
        assert 10**6 // 2 <= stream.credit <= 10**6


# Peers that take more than they get


@pytest.mark.parametrize("undrained", [False, True])
async def test_a_peer_that_sends_more_than_it_may_is_left(path: str, *, undrained: bool) -> None:
    async with calling(path, stream_window=FIRST_WINDOW) as calls:
        _, stream, recorder = await calls.delivered(holds=undrained)
        _, _, other = await calls.delivered()
        sent = fill(calls, stream, bytes(1000))
        await recorder.count(sent if path == "lane" else 1)
        await answered(calls)
        while stream.credit >= 0:
            calls.peer.message(stream, bytes(1000), unlawful=True)
        calls.send()
        await other.end()
        recorder.drain()  # on the plain path who is full hears of the end after that
        for one in (recorder, other):
            failure = await one.end()
            assert failure.code is Code.UNAVAILABLE
            assert not failure.unusable
        assert calls.connection.state is ConnectionState.LOST


async def test_the_end_comes_though_the_window_is_full(path: str) -> None:
    """Trailers need no credit."""
    async with calling(path, stream_window=FIRST_WINDOW) as calls:
        _, stream, recorder = await calls.delivered(holds=True)
        sent = fill(calls, stream, bytes(1000))
        calls.peer.end(stream, 9, "paused")
        calls.send()
        await recorder.count(1)
        while not recorder.ends:
            recorder.drain()
            await asyncio.sleep(0)
        assert len(recorder.messages) == sent
        assert (await recorder.end()).code is Code.FAILED_PRECONDITION
