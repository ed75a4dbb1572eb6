"""Events of streaming calls, on the data lane and on the plain path: messages, then one end.

What came before the end of a call is delivered in order, then the end, once. Where the plain path
cannot do as well as the lane (it is grpclib's), `test_paths_agree.py` says so.
"""

from __future__ import annotations

import asyncio

import pytest
from hyperframe.frame import PingFrame

from liftbridge_aio._core.status import CallFailure, Code
from liftbridge_aio.errors import NotLiftbridge
from support.peers.scripted_peer import OK_HEADERS, grpc_message
from support.peers.streaming import BODY, MESSAGES, PATHS, Recorder, calling

pytestmark = pytest.mark.parametrize("path", PATHS)


@pytest.mark.parametrize("code", [Code.OK, Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED])
async def test_an_answer_that_is_a_status_alone(path: str, code: Code) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.refuse(stream, code, "because")
        calls.send()
        assert (await recorder.end()).code is code
        assert recorder.messages == []

        call, stream = await calls.open()
        calls.peer.refuse(stream, code, "because")
        calls.send()
        if code is Code.OK:
            assert await call.receive() is None
        else:
            with pytest.raises(CallFailure, match="because") as caught:
                await call.receive()
            assert caught.value.code is code
        call.close()


async def test_everything_may_come_before_it_is_wanted(path: str) -> None:
    async with calling(path) as calls:
        call, stream = await calls.open()
        calls.peer.accept(stream)
        calls.peer.data(stream, BODY)
        calls.peer.end(stream, 9, "over")
        calls.send()
        await asyncio.sleep(0)
        assert await call.receive() == MESSAGES[0]
        recorder = Recorder(call)
        call.deliver(recorder)
        failure = await recorder.end()
        assert (failure.code, failure.text) == (Code.FAILED_PRECONDITION, "over")
        assert recorder.messages == MESSAGES[1:]


async def test_the_status_outlives_the_reset_behind_it(path: str) -> None:
    """Servers that refuse an endless request say why, and then reset what still comes."""
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.end(stream, 8, "enough")
        calls.peer.reset(stream, 0)
        calls.send()
        failure = await recorder.end()
        assert (failure.code, failure.text) == (Code.RESOURCE_EXHAUSTED, "enough")


async def test_informational_headers_are_passed_over(path: str) -> None:
    """RFC 9113, section 8.1: any number of them may come first."""
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.headers(stream, {":status": "103", "link": "</style.css>"})
        calls.peer.accept(stream)
        calls.peer.data(stream, BODY)
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        assert recorder.messages == MESSAGES


@pytest.mark.parametrize("body", [b"<html>no</html>", grpc_message(b"like a message"), b""])
@pytest.mark.parametrize(
    ("headers", "code", "unusable"),
    [
        ({":status": "503", "content-type": "text/html"}, Code.UNAVAILABLE, None),
        ({":status": "404", "content-type": "application/grpc"}, Code.UNAVAILABLE, NotLiftbridge),
        ({":status": "200", "content-type": "text/html"}, Code.UNAVAILABLE, NotLiftbridge),
        ({":status": "200", "content-type": "application/grpc+json"}, Code.UNKNOWN, None),
        ({":status": "200"}, Code.UNAVAILABLE, NotLiftbridge),
    ],
)
async def test_answers_that_are_not_of_grpc(
    path: str,
    headers: dict[str, str],
    code: Code,
    unusable: type[NotLiftbridge] | None,
    body: bytes,
) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.headers(stream, headers, end=not body)
        if body:
            calls.peer.data(stream, body, end=True)
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == []
        assert (failure.code, failure.unusable) == (code, unusable)
        assert calls.connection.up


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_an_answer_that_is_not_of_grpc_need_not_end(path: str, *, late: bool) -> None:
    """A receiver that comes after the headers gets them, too."""
    async with calling(path) as calls:
        call, stream = await calls.open()
        recorder = Recorder(call)
        if not late:
            call.deliver(recorder)
        calls.peer.headers(stream, {":status": "503", "content-type": "text/html"})
        calls.peer.ping()
        calls.send()
        await calls.on_socket.until(lambda: calls.peer.count(PingFrame) > 0)
        if late:
            call.deliver(recorder)
        assert (await recorder.end()).code is Code.UNAVAILABLE


async def test_headers_that_make_no_sense_break_the_call_alone(path: str) -> None:
    async with calling(path) as calls:
        _, fine, good = await calls.delivered()
        for headers in ({"content-type": "application/grpc"}, OK_HEADERS | {"grpc-status": "odd"}):
            _, stream, recorder = await calls.delivered(accepted=False)
            calls.peer.headers(stream, headers, end=True)
            calls.send()
            assert (await recorder.end()).code in {Code.UNAVAILABLE, Code.UNKNOWN}
            assert recorder.messages == []
        _, stream, recorder = await calls.delivered()
        calls.peer.headers(stream, {"grpc-status": "odd"}, end=True)
        calls.send()
        assert (await recorder.end()).code is Code.UNKNOWN
        calls.peer.end(fine)
        calls.send()
        assert (await good.end()).code is Code.OK


@pytest.mark.parametrize("limit", [1000, 20_000])
async def test_a_message_longer_than_allowed_is_refused_before_it_is_here(
    path: str, limit: int
) -> None:
    async with calling(path, max_receive_bytes=limit) as calls:
        _, stream, recorder = await calls.delivered()
        longest = bytes(limit)
        calls.peer.data(stream, (BODY + grpc_message(longest))[:16_000])
        calls.peer.data(stream, (BODY + grpc_message(longest))[16_000:])
        calls.peer.data(stream, grpc_message(bytes(limit + 1))[:5])
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == [*MESSAGES, longest]
        assert failure.code is Code.RESOURCE_EXHAUSTED
        assert "max_receive_bytes" in failure.text
        await calls.on_socket.until(lambda: stream.reset is not None)
        # What is still on its way disturbs nobody.
        calls.peer.data(stream, bytes(limit)[:16_000])
        _, stream, recorder = await calls.delivered()
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
