"""Events of streaming calls, on the data lane and on the plain path: messages, then one end.

What came before the end of a call is delivered in order, then the end, once. Where the plain path
cannot do as well as the lane (it is grpclib's), `test_paths_agree.py` says so.
"""

from __future__ import annotations

import asyncio

import pytest
from hyperframe.frame import PingFrame, PriorityFrame

from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.errors import NotLiftbridge
from support.peers.scripted_peer import OK_HEADERS, grpc_message
from support.peers.streaming import BODY, MESSAGES, PATHS, Calls, Recorder, calling

pytestmark = pytest.mark.parametrize("path", PATHS)


async def answered(calls: Calls, recorder: Recorder) -> None:
    """Let everything that the peer has said arrive: a PING behind it is answered."""
    before = calls.peer.count(PingFrame)
    calls.peer.ping()
    calls.send()
    await calls.on_socket.until(lambda: calls.peer.count(PingFrame) > before)
    assert recorder.ends == []


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (0, "", Code.OK),
        (9, "Server not partition leader", Code.FAILED_PRECONDITION),
        (14, "going away", Code.UNAVAILABLE),
    ],
)
async def test_messages_and_then_what_the_server_ends_the_call_with(
    path: str, status: int, text: str, code: Code
) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        for message in MESSAGES:
            calls.peer.message(stream, message)
        calls.peer.end(stream, status, text)
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == MESSAGES
        assert failure.code is code
        assert text in failure.text
        assert failure.reach is Reach.ANSWERED


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


async def test_a_handshake_is_received_and_the_rest_is_delivered(path: str) -> None:
    async with calling(path) as calls:
        call, stream = await calls.open()
        calls.peer.accept(stream)
        calls.peer.data(stream, BODY)
        calls.send()
        assert await call.receive() == MESSAGES[0]
        assert await call.receive() == MESSAGES[1]
        recorder = Recorder(call)
        call.deliver(recorder)
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        assert recorder.messages == MESSAGES[2:]


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


@pytest.mark.parametrize("end", [False, True], ids=["open", "ended"])
async def test_headers_and_first_data_in_one_read(path: str, *, end: bool) -> None:
    async with calling(path, in_memory=True) as calls:
        _, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.accept(stream)
        for message in MESSAGES:
            calls.peer.message(stream, message)
        if end:
            calls.peer.end(stream)
        calls.send()
        await recorder.count(len(MESSAGES))
        assert recorder.messages == MESSAGES
        if end:
            assert (await recorder.end()).code is Code.OK


async def test_padding_is_no_part_of_messages(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        for padding in (0, 1, 255):
            for message in MESSAGES:
                calls.peer.message(stream, message, padding=padding)
            calls.peer.data(stream, b"", padding=padding)
            for start in range(0, len(BODY), 97):
                calls.peer.data(stream, BODY[start : start + 97], padding=padding)
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        assert recorder.messages == MESSAGES * 6


@pytest.mark.parametrize("largest", [1, 4, 5, 6, 1000, 10_000])
async def test_messages_and_frames_need_not_agree(path: str, largest: int) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        for start in range(0, len(BODY), largest):
            calls.peer.data(stream, BODY[start : start + largest])
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        assert recorder.messages == MESSAGES


async def test_empty_frames_mean_nothing(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.data(stream, b"")
        await answered(calls, recorder)
        calls.peer.data(stream, BODY[:3])
        calls.peer.data(stream, b"")
        calls.peer.data(stream, BODY[3:8])
        calls.peer.data(stream, b"")
        await answered(calls, recorder)
        calls.peer.data(stream, BODY[8:])
        calls.peer.data(stream, b"")
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        assert recorder.messages == MESSAGES


@pytest.mark.parametrize("cut", ["once", "at every byte"])
async def test_reads_may_end_anywhere(path: str, cut: str) -> None:
    async def said(*positions: int) -> int:
        async with calling(path, in_memory=True) as calls:
            _, stream, recorder = await calls.delivered(accepted=False)
            calls.peer.accept(stream, pieces=2)
            calls.peer.message(stream, b"one", padding=3)
            calls.peer.data(stream, grpc_message(b"two") + grpc_message(b"three")[:6])
            calls.peer.ping()
            calls.peer.data(stream, grpc_message(b"three")[6:])
            calls.peer.end(stream, 9, "over")
            data = calls.peer.take()
            ends = [*(positions or range(1, len(data))), len(data)]
            start = 0
            for end in ends:
                calls.read(data[start:end])
                start = end
            failure = await recorder.end()
            assert recorder.messages == [b"one", b"two", b"three"]
            assert (failure.code, failure.text) == (Code.FAILED_PRECONDITION, "over")
            assert calls.peer.count(PingFrame) == 1
        return len(data)

    size = await said()
    if cut == "once":
        for position in range(1, size):
            await said(position)


async def test_end_of_stream_on_data_is_an_end_without_a_status(path: str) -> None:
    async with calling(path) as calls:
        for body, padding in ((BODY, None), (BODY, 20), (BODY, 0)):
            _, stream, recorder = await calls.delivered()
            calls.peer.data(stream, body, padding=padding, end=True)
            calls.send()
            failure = await recorder.end()
            assert recorder.messages == MESSAGES
            assert failure.code is Code.INTERNAL
            assert "without a status" in failure.text
        for padding in (None, 0, 20):
            _, stream, recorder = await calls.delivered()
            calls.peer.data(stream, BODY)
            calls.peer.data(stream, b"", padding=padding, end=True)
            calls.send()
            failure = await recorder.end()
            assert recorder.messages == MESSAGES
            assert failure.code is Code.INTERNAL


@pytest.mark.parametrize("missing", [1, 3, 4, 6, 9])
async def test_an_end_in_the_middle_of_a_message(path: str, missing: int) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.data(stream, BODY[:-missing])
        calls.peer.end(stream)
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == MESSAGES[: -1 if missing < 9 else None][:4]
        if missing == 9:  # nothing of the last one came: that is an end like others
            assert failure.code is Code.OK
        else:
            assert failure.code is Code.INTERNAL
            assert "in the middle of a message" in failure.text


async def test_the_status_counts_more_than_a_message_that_is_not_whole(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.data(stream, BODY[:-2])
        calls.peer.end(stream, 9, "commit log was closed")
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == MESSAGES[:-1]
        assert (failure.code, failure.text) == (Code.FAILED_PRECONDITION, "commit log was closed")


async def test_the_status_outlives_the_reset_behind_it(path: str) -> None:
    """Servers that refuse an endless request say why, and then reset what still comes."""
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.end(stream, 8, "enough")
        calls.peer.reset(stream, 0)
        calls.send()
        failure = await recorder.end()
        assert (failure.code, failure.text) == (Code.RESOURCE_EXHAUSTED, "enough")


async def test_header_blocks_may_be_in_pieces(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.headers(stream, OK_HEADERS | {"x-long": "ab" * 2000}, pieces=5)
        calls.peer.data(stream, BODY)
        calls.peer.headers(
            stream, {"grpc-status": "9", "grpc-message": "paused"}, end=True, pieces=4
        )
        calls.send()
        failure = await recorder.end()
        assert (failure.code, failure.text) == (Code.FAILED_PRECONDITION, "paused")
        assert recorder.messages == MESSAGES


async def test_frames_of_unknown_kinds_are_ignored(path: str) -> None:
    """RFC 9113, section 5.5."""

    def unknown(stream: int) -> bytes:
        return b"\x00\x00\x07\xfa\xff" + stream.to_bytes(4, "big") + b"unknown"

    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.raw(unknown(0))
        for start in range(0, len(BODY), 100):
            calls.peer.data(stream, BODY[start : start + 100])
            calls.peer.raw(unknown(stream.number))
            calls.peer.raw(PriorityFrame(stream.number, 0, 7))
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        assert recorder.messages == MESSAGES


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


async def test_compressed_messages_are_refused(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        calls.peer.data(stream, BODY + grpc_message(b"pressed", flag=1) + BODY)
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == MESSAGES
        assert failure.code is Code.INTERNAL
        assert "compressed" in failure.text
        await calls.on_socket.until(lambda: stream.reset is not None)


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
