"""Streaming calls that are left, cancelled or badly received harm nobody, on either path."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
from hyperframe.frame import PingFrame

from liftbridge_aio._core.status import CallFailure, Code
from support.peers.scripted_peer import PeerStream
from support.peers.streaming import BODY, MESSAGES, PATHS, calling

pytestmark = pytest.mark.parametrize("path", PATHS)


async def test_a_call_that_is_left_hears_nothing_more(path: str) -> None:
    async with calling(path) as calls:
        call, stream, recorder = await calls.delivered()
        calls.peer.data(stream, BODY + BODY[:9])
        calls.send()
        await recorder.count(len(MESSAGES) + 1)
        call.close()
        call.close()
        await calls.on_socket.until(lambda: stream.reset is not None)
        _, other, others = await calls.delivered()
        # The peer may have sent all this before it learned of the reset.
        calls.peer.data(stream, BODY[9:], padding=9)
        calls.peer.data(stream, BODY)
        calls.peer.data(stream, b"", end=True)
        calls.peer.data(other, BODY)
        calls.peer.end(other)
        calls.send()
        assert (await others.end()).code is Code.OK
        assert others.messages == MESSAGES
        assert recorder.messages == [*MESSAGES, b""]
        assert recorder.ends == []
        call.consumed(1)  # of no consequence any more
        with pytest.raises(CallFailure):
            await call.send([b"too late"])


async def test_leaving_inside_received_is_the_end_of_it(path: str) -> None:
    async with calling(path) as calls:
        call, stream, recorder = await calls.delivered(accepted=False)
        _, other, others = await calls.delivered()

        def close() -> None:
            call.close()
            call.close()
            heard.append(len(recorder.messages))

        heard: list[int] = []
        recorder.on_received = close
        calls.peer.accept(stream)
        calls.peer.data(stream, BODY)
        calls.peer.data(stream, BODY)
        calls.peer.end(stream)
        calls.peer.data(other, BODY)
        calls.peer.end(other)
        calls.send()
        assert (await others.end()).code is Code.OK
        assert others.messages == MESSAGES
        assert heard == [len(recorder.messages)], "called once"
        assert recorder.ends == []


@pytest.mark.parametrize("how", ["close", "fail"])
@pytest.mark.parametrize("rest", ["nothing", "trailers", "half a frame"])
async def test_giving_the_link_up_inside_received(
    path: str, how: str, rest: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    async with calling(path, in_memory=True) as calls:
        _, stream, recorder = await calls.delivered()
        _, other, others = await calls.delivered()

        def give_up() -> None:
            if how == "close":
                calls.connection.close()
            else:
                calls.connection.fail("the receiver says so")

        recorder.on_received = give_up
        calls.peer.data(stream, BODY)
        calls.peer.data(other, BODY)
        if rest == "trailers":
            calls.peer.end(other)
            calls.peer.ping()
        data = calls.peer.take()
        calls.read(data + b"\x00\x00\x04" * (rest == "half a frame"))
        assert (await recorder.end()).code is Code.UNAVAILABLE
        await others.end()
    assert faults == []
    assert caplog.record_tuples == [] or how == "fail"


async def test_cancelling_receive_as_the_message_comes(path: str) -> None:
    """The message is there, and the task is cancelled before it runs."""
    async with calling(path, in_memory=True) as calls:
        call, stream = await calls.open()
        calls.peer.accept(stream)
        calls.peer.message(stream, b"one")
        calls.send()
        assert await call.receive() == b"one"
        waiting = asyncio.create_task(call.receive())
        await asyncio.sleep(0)
        calls.peer.message(stream, b"two")
        calls.send()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        calls.peer.message(stream, b"three")
        calls.send()
        received = await call.receive()
        call.close()
        if path == "lane":
            assert received == b"two"


async def test_a_frame_in_two_reads_with_nobody_left_in_between(path: str) -> None:
    """Bytes of a frame held as the last call ends are neither lost nor left to h2 alone."""
    async with calling(path, in_memory=True) as calls:
        for cut in (1, 5, 9, 12):
            call, stream, recorder = await calls.delivered()
            calls.peer.message(stream, b"one")
            data = calls.peer.take()
            calls.read(data[:cut])
            call.close()
            assert stream.reset is not None
            calls.read(data[cut:])
            calls.peer.ping()
            data = calls.peer.take()
            before = calls.peer.count(PingFrame)
            calls.read(data[:cut])
            _, stream, recorder = await calls.delivered(accepted=False)
            calls.read(data[cut:])
            await asyncio.sleep(0)
            assert calls.peer.count(PingFrame) == before + 1
            calls.peer.accept(stream)
            calls.peer.data(stream, BODY)
            calls.peer.end(stream)
            calls.send()
            assert (await recorder.end()).code is Code.OK
            assert recorder.messages == MESSAGES


async def test_nothing_holds_on_to_a_call_that_is_over(path: str) -> None:
    async with calling(path) as calls:
        remembered: list[weakref.ref[object]] = []

        async def one(happening: Callable[[PeerStream], None]) -> None:
            call, stream, recorder = await calls.delivered()
            remembered.extend((weakref.ref(call), weakref.ref(recorder)))
            calls.peer.data(stream, BODY)
            happening(stream)
            calls.send()
            await recorder.end()

        await one(calls.peer.end)
        await one(calls.peer.reset)

        call, stream, recorder = await calls.delivered()
        remembered.extend((weakref.ref(call), weakref.ref(recorder)))
        calls.peer.data(stream, BODY[:-1])
        calls.send()
        await recorder.count(1)
        call.close()
        del call, recorder
        await calls.on_socket.until(lambda: stream.reset is not None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert [reference() for reference in remembered] == [None] * len(remembered)
        assert calls.protocol._users == {}
        assert calls.protocol.processor.streams == {}
