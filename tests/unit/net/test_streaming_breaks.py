"""Breaks of streaming calls, on the data lane and on the plain path."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.net.broker_connection import ConnectionState, StreamCall
from support.peers.scripted_peer import BOUND
from support.peers.streaming import BODY, MESSAGES, PATHS, Recorder, calling, happen

pytestmark = pytest.mark.parametrize("path", PATHS)


@pytest.mark.parametrize("happening", ["reset", "cut", "goaway"])
async def test_a_call_may_break_before_its_messages_are_wanted(path: str, happening: str) -> None:
    async with calling(path) as calls:
        call, stream = await calls.open()
        calls.peer.accept(stream)
        calls.send()
        happen(calls, happening, stream)
        await broken(call)
        recorder = Recorder(call)
        call.deliver(recorder)
        assert (await recorder.end()).code is Code.UNAVAILABLE


async def broken(call: StreamCall) -> None:
    """Wait until grpclib has noted that a call is broken."""
    async with asyncio.timeout(BOUND):
        while call._call._wrapper._error is None:  # noqa: ASYNC110 - grpclib has no event
            await asyncio.sleep(0.001)


async def test_a_reset_instead_of_an_answer(path: str) -> None:
    async with calling(path) as calls:
        call, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.reset(stream, 7)
        calls.send()
        failure = await recorder.end()
        assert (failure.code, failure.reach) == (Code.UNAVAILABLE, Reach.NOT_SENT)
        with pytest.raises(CallFailure):
            await call.send([b"too late"])


@pytest.mark.parametrize("happening", ["cut", "goaway", "close", "fail"])
async def test_a_lost_connection_ends_every_call_once(path: str, happening: str) -> None:
    async with calling(path) as calls:
        calls_made = [await calls.delivered() for _ in range(20)]
        for call, stream, _ in calls_made:
            calls.peer.data(stream, BODY + b"\x00\x00")
            await call.send([b"hello"])
        calls.send()
        for _, _, recorder in calls_made:
            await recorder.count(len(MESSAGES))
        happen(calls, happening)
        for call, _, recorder in calls_made:
            failure = await recorder.end()
            assert recorder.messages == MESSAGES
            assert failure.code is Code.UNAVAILABLE
            assert failure.reach is Reach.UNKNOWN
            assert not failure.unusable
            with pytest.raises(CallFailure):
                await call.send([b"too late"])
        lost = ConnectionState.CLOSED if happening == "close" else ConnectionState.LOST
        assert calls.connection.state is lost


async def test_cutting_while_closing(path: str) -> None:
    async with calling(path) as calls:
        recorders = []
        for _ in range(5):
            _, stream, recorder = await calls.delivered()
            calls.peer.data(stream, BODY)
            recorders.append(recorder)
        calls.send()
        await recorders[-1].count(1)
        calls.on_socket.cut()
        calls.connection.close()
        calls.connection.fail("after the close")
        calls.connection.close()
        for recorder in recorders:
            assert (await recorder.end()).code is Code.UNAVAILABLE


async def test_a_server_that_breaks_the_protocol_is_left(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.message(stream, b"one")
        calls.send()
        await recorder.count(1)
        calls.peer.raw(b"\x00\x00\x04\x03\x00" + bytes(4) + b"\x00\x00\x00\x01")  # a reset of 0
        calls.send()
        failure = await recorder.end()
        assert failure.code is Code.UNAVAILABLE
        assert not failure.unusable, "it has answered, so it does speak the protocol"
        assert calls.connection.state is ConnectionState.LOST
