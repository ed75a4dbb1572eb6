"""Streaming calls against a scripted server, on the data lane and on the plain path.

Both promise the same: what came before the end of a call is delivered in order, then the end, once;
a call takes nothing else down with it. Flow control has a file of its own, and where the plain
path cannot do as well as the lane (it is grpclib's), `test_paths_agree.py` says so.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
from hyperframe.frame import PingFrame, PriorityFrame

from liftbridge_aio.net.link import LinkState, StreamExchange
from liftbridge_aio.status import CallFailure, Code, Reach
from liftbridge_aio.wire.rpc import SUBSCRIBE
from net.scripted_peer import BOUND, OK_HEADERS, Peer, PeerStream, grpc_message
from net.streaming import PATHS, Calls, Recorder, calling

pytestmark = pytest.mark.parametrize("path", PATHS)

MESSAGES = [b"", b"one", b"t" * 300, b"\x00\x01" * 500, b"last"]
BODY = b"".join(map(grpc_message, MESSAGES))


async def answered(calls: Calls, recorder: Recorder) -> None:
    """Let everything that the peer has said arrive: a PING behind it is answered."""
    before = calls.peer.count(PingFrame)
    calls.peer.ping()
    calls.send()
    await calls.on_socket.until(lambda: calls.peer.count(PingFrame) > before)
    assert recorder.ends == []


def happen(calls: Calls, what: str, stream: PeerStream | None = None) -> None:
    """Let something happen that ends calls."""
    if what == "cut":
        calls.on_socket.cut()
    elif what == "close":
        calls.link.close()
    elif what == "fail":
        calls.link.fail("the test says so")
    elif what == "goaway":
        calls.peer.go_away()
        calls.send()
    else:
        assert stream is not None
        if what == "reset":
            calls.peer.reset(stream)
        else:
            calls.peer.end(stream, 5, "gone")
        calls.send()


# What comes, and how it ends


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

        exchange, stream = await calls.open()
        calls.peer.refuse(stream, code, "because")
        calls.send()
        if code is Code.OK:
            assert await exchange.receive() is None
        else:
            with pytest.raises(CallFailure, match="because") as caught:
                await exchange.receive()
            assert caught.value.code is code
        exchange.leave()


async def test_a_handshake_is_received_and_the_rest_is_delivered(path: str) -> None:
    async with calling(path) as calls:
        exchange, stream = await calls.open()
        calls.peer.accept(stream)
        calls.peer.data(stream, BODY)
        calls.send()
        assert await exchange.receive() == MESSAGES[0]
        assert await exchange.receive() == MESSAGES[1]
        recorder = Recorder(exchange)
        exchange.deliver(recorder)
        calls.peer.end(stream)
        calls.send()
        assert (await recorder.end()).code is Code.OK
        assert recorder.messages == MESSAGES[2:]


async def test_everything_may_come_before_it_is_wanted(path: str) -> None:
    async with calling(path) as calls:
        exchange, stream = await calls.open()
        calls.peer.accept(stream)
        calls.peer.data(stream, BODY)
        calls.peer.end(stream, 9, "over")
        calls.send()
        await asyncio.sleep(0)
        assert await exchange.receive() == MESSAGES[0]
        recorder = Recorder(exchange)
        exchange.deliver(recorder)
        failure = await recorder.end()
        assert (failure.code, failure.text) == (Code.FAILED_PRECONDITION, "over")
        assert recorder.messages == MESSAGES[1:]


@pytest.mark.parametrize("happening", ["reset", "cut", "goaway"])
async def test_a_call_may_break_before_its_messages_are_wanted(path: str, happening: str) -> None:
    async with calling(path) as calls:
        exchange, stream = await calls.open()
        calls.peer.accept(stream)
        calls.send()
        happen(calls, happening, stream)
        await broken(exchange)
        recorder = Recorder(exchange)
        exchange.deliver(recorder)
        assert (await recorder.end()).code is Code.UNAVAILABLE


async def broken(exchange: StreamExchange) -> None:
    """Wait until grpclib has noted that a call is broken."""
    async with asyncio.timeout(BOUND):
        while exchange._call._wrapper._error is None:  # noqa: ASYNC110 - grpclib has no event
            await asyncio.sleep(0.001)


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


@pytest.mark.parametrize("missing", [1, 3, 6, 9])
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
    ("headers", "code"),
    [
        ({":status": "503", "content-type": "text/html"}, Code.UNAVAILABLE),
        ({":status": "404", "content-type": "application/grpc"}, Code.UNIMPLEMENTED),
        ({":status": "200", "content-type": "text/html"}, Code.UNKNOWN),
        ({":status": "200", "content-type": "application/grpc+json"}, Code.UNKNOWN),
        ({":status": "200"}, Code.UNKNOWN),
    ],
)
async def test_answers_that_are_not_of_grpc(
    path: str, headers: dict[str, str], code: Code, body: bytes
) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.headers(stream, headers, end=not body)
        if body:
            calls.peer.data(stream, body, end=True)
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == []
        assert failure.code is code
        assert calls.link.up


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_an_answer_that_is_not_of_grpc_need_not_end(path: str, *, late: bool) -> None:
    """Who listens only after the headers came must hear of them, too."""
    async with calling(path) as calls:
        exchange, stream = await calls.open()
        recorder = Recorder(exchange)
        if not late:
            exchange.deliver(recorder)
        calls.peer.headers(stream, {":status": "503", "content-type": "text/html"})
        calls.peer.ping()
        calls.send()
        await calls.on_socket.until(lambda: calls.peer.count(PingFrame) > 0)
        if late:
            exchange.deliver(recorder)
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


# What breaks


async def test_a_reset_ends_its_call_and_no_other(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        _, other, others = await calls.delivered()
        calls.peer.data(stream, BODY + b"\x00\x00")
        calls.send()
        await recorder.count(len(MESSAGES))
        calls.peer.reset(stream)
        calls.peer.data(other, BODY)
        calls.send()
        failure = await recorder.end()
        assert recorder.messages == MESSAGES
        assert failure.code is Code.UNAVAILABLE
        assert "reset" in failure.text
        assert not failure.wrong_protocol
        await others.count(len(MESSAGES))
        assert others.ends == []


async def test_a_reset_instead_of_an_answer(path: str) -> None:
    async with calling(path) as calls:
        exchange, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.reset(stream, 7)
        calls.send()
        failure = await recorder.end()
        assert (failure.code, failure.reach) == (Code.UNAVAILABLE, Reach.NOT_SENT)
        with pytest.raises(CallFailure):
            await exchange.send([b"too late"])


@pytest.mark.parametrize("happening", ["cut", "goaway", "close", "fail"])
async def test_a_lost_connection_ends_every_call_once(path: str, happening: str) -> None:
    async with calling(path) as calls:
        calls_made = [await calls.delivered() for _ in range(20)]
        for exchange, stream, _ in calls_made:
            calls.peer.data(stream, BODY + b"\x00\x00")
            await exchange.send([b"hello"])
        calls.send()
        for _, _, recorder in calls_made:
            await recorder.count(len(MESSAGES))
        happen(calls, happening)
        for exchange, _, recorder in calls_made:
            failure = await recorder.end()
            assert recorder.messages == MESSAGES
            assert failure.code is Code.UNAVAILABLE
            assert failure.reach is Reach.UNKNOWN
            assert not failure.wrong_protocol
            with pytest.raises(CallFailure):
                await exchange.send([b"too late"])
        lost = LinkState.CLOSED if happening == "close" else LinkState.LOST
        assert calls.link.state is lost


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
        calls.link.close()
        calls.link.fail("after the close")
        calls.link.close()
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
        assert not failure.wrong_protocol, "it has answered, so it does speak the protocol"
        assert calls.link.state is LinkState.LOST


async def test_pings_are_answered_between_data(path: str) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered(holds=True)
        for position in range(10):
            calls.peer.message(stream, b"busy" * 1000)
            calls.peer.ping(bytes([position]) * 8)
            calls.peer.data(stream, BODY[:7])
            calls.peer.ping(bytes([position + 100]) * 8)
            calls.peer.data(stream, BODY[7:])
        calls.send()
        await calls.on_socket.until(lambda: calls.peer.count(PingFrame) == 20)
        answers = [frame for frame in calls.peer.frames if isinstance(frame, PingFrame)]
        assert all("ACK" in frame.flags for frame in answers)
        assert [frame.opaque_data[0] for frame in answers] == [
            position + offset for position in range(10) for offset in (0, 100)
        ]
        assert recorder.ends == []


# Leaving


async def test_a_call_that_is_left_hears_nothing_more(path: str) -> None:
    async with calling(path) as calls:
        exchange, stream, recorder = await calls.delivered()
        calls.peer.data(stream, BODY + BODY[:9])
        calls.send()
        await recorder.count(len(MESSAGES) + 1)
        exchange.leave()
        exchange.leave()
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
        exchange.drained(1)  # of no consequence any more
        with pytest.raises(CallFailure):
            await exchange.send([b"too late"])


async def test_nothing_is_delivered_after_leaving(path: str) -> None:
    """Not even what was read just before."""
    async with calling(path, in_memory=True) as calls:
        exchange, stream, recorder = await calls.delivered()
        calls.peer.message(stream, b"one")
        calls.send()
        await recorder.count(1)
        calls.peer.message(stream, b"two")
        calls.peer.end(stream)
        calls.send()
        exchange.leave()
        heard = len(recorder.messages), len(recorder.ends)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (len(recorder.messages), len(recorder.ends)) == heard


async def test_leaving_inside_received_is_the_end_of_it(path: str) -> None:
    async with calling(path) as calls:
        exchange, stream, recorder = await calls.delivered(accepted=False)
        _, other, others = await calls.delivered()

        def leave() -> None:
            exchange.leave()
            exchange.leave()
            heard.append(len(recorder.messages))

        heard: list[int] = []
        recorder.on_received = leave
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


async def test_leaving_inside_ended_changes_nothing(path: str) -> None:
    async with calling(path) as calls:
        for happening in (calls.peer.end, calls.peer.reset):
            exchange, stream, recorder = await calls.delivered()
            recorder.on_ended = exchange.leave
            happening(stream)
            calls.send()
            await recorder.end()
            exchange.leave()
        assert calls.link.up


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
                calls.link.close()
            else:
                calls.link.fail("the receiver says so")

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


async def test_a_fault_of_a_receiver_ends_its_call_and_no_other(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(path) as calls:
        _, stream, recorder = await calls.delivered()
        _, other, others = await calls.delivered()

        def fail() -> None:
            text = "a receiver must not do that"
            raise ZeroDivisionError(text)

        recorder.on_received = fail
        calls.peer.data(stream, BODY)
        calls.peer.data(other, BODY)
        calls.peer.end(other)
        calls.send()
        failure = await recorder.end()
        assert failure.code is Code.INTERNAL
        assert isinstance(failure.__cause__, ZeroDivisionError)
        assert "must not do that" in caplog.text
        assert (await others.end()).code is Code.OK
        await calls.on_socket.until(lambda: stream.reset is not None)


async def test_a_fault_at_the_end_of_a_call_harms_no_other(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with calling(path) as calls:
        _, other, others = await calls.delivered()
        for happening in (calls.peer.end, calls.peer.reset):
            _, stream, recorder = await calls.delivered()

            def fail() -> None:
                text = "a receiver must not do that"
                raise ZeroDivisionError(text)

            recorder.on_ended = fail
            happening(stream)
            calls.send()
            await recorder.end()
        calls.peer.end(other)
        calls.send()
        assert (await others.end()).code is Code.OK
        assert caplog.text.count("must not do that") >= 2
    assert faults == []


async def test_cancelling_receive_loses_nothing(path: str) -> None:
    async with calling(path) as calls:
        exchange, stream = await calls.open()
        for accepted in (False, True):
            waiting = asyncio.create_task(exchange.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            if not accepted:
                calls.peer.accept(stream)
            calls.peer.data(stream, BODY)
            calls.send()
            for message in MESSAGES:
                assert await exchange.receive() == message
        exchange.leave()


async def test_cancelling_receive_as_the_message_comes(path: str) -> None:
    """The message is there, and the task is cancelled before it runs."""
    async with calling(path, in_memory=True) as calls:
        exchange, stream = await calls.open()
        calls.peer.accept(stream)
        calls.peer.message(stream, b"one")
        calls.send()
        assert await exchange.receive() == b"one"
        waiting = asyncio.create_task(exchange.receive())
        await asyncio.sleep(0)
        calls.peer.message(stream, b"two")
        calls.send()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        calls.peer.message(stream, b"three")
        calls.send()
        received = await exchange.receive()
        exchange.leave()
        if path == "lane":
            assert received == b"two"


@pytest.mark.parametrize("happening", ["end", "reset", "cut"])
async def test_receive_tells_how_the_call_ended(path: str, happening: str) -> None:
    async with calling(path) as calls:
        exchange, stream = await calls.open()
        calls.peer.accept(stream)
        calls.peer.message(stream, b"one")
        calls.send()
        assert await exchange.receive() == b"one"
        task = asyncio.create_task(exchange.receive())
        await asyncio.sleep(0)
        happen(calls, happening, stream)
        with pytest.raises(CallFailure) as caught:
            await task
        code = Code.NOT_FOUND if happening == "end" else Code.UNAVAILABLE
        assert caught.value.code is code
        assert task.cancelling() == 0
        exchange.leave()


async def test_a_call_with_one_request(path: str) -> None:
    async with calling(path) as calls:
        exchange, stream = await calls.open(SUBSCRIBE)
        await exchange.send([b"request"], end=True)
        await calls.on_socket.until(lambda: stream.ended)
        assert stream.messages == [b"request"]
        assert stream.headers[":path"] == SUBSCRIBE.path
        calls.peer.accept(stream)
        calls.peer.data(stream, BODY)
        calls.send()
        assert await exchange.receive() == MESSAGES[0]
        recorder = Recorder(exchange)
        exchange.deliver(recorder)
        calls.peer.end(stream, 8, "Stop offset reached")
        calls.send()
        assert (await recorder.end()).code is Code.RESOURCE_EXHAUSTED
        assert recorder.messages == MESSAGES[1:]


# The connection between calls


async def test_a_frame_in_two_reads_with_nobody_left_in_between(path: str) -> None:
    """What a read holds of a frame may not get lost as the last call is left, nor be h2's alone."""
    async with calling(path, in_memory=True) as calls:
        for cut in (1, 5, 9, 12):
            exchange, stream, recorder = await calls.delivered()
            calls.peer.message(stream, b"one")
            data = calls.peer.take()
            calls.read(data[:cut])
            exchange.leave()
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
            exchange, stream, recorder = await calls.delivered()
            remembered.extend((weakref.ref(exchange), weakref.ref(recorder)))
            calls.peer.data(stream, BODY)
            happening(stream)
            calls.send()
            await recorder.end()

        await one(calls.peer.end)
        await one(calls.peer.reset)

        exchange, stream, recorder = await calls.delivered()
        remembered.extend((weakref.ref(exchange), weakref.ref(recorder)))
        calls.peer.data(stream, BODY[:-1])
        calls.send()
        await recorder.count(1)
        exchange.leave()
        del exchange, recorder
        await calls.on_socket.until(lambda: stream.reset is not None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert [reference() for reference in remembered] == [None] * len(remembered)
        assert calls.protocol._users == {}
        assert calls.protocol.processor.streams == {}


async def test_peers_may_be_told_what_to_do_first(path: str) -> None:
    """A call may be opened, used and left before the server has said anything at all."""
    async with calling(path, Peer({}), in_memory=True) as calls:
        exchange, stream, recorder = await calls.delivered(accepted=False)
        await exchange.send([b"one"])
        exchange.leave()
        assert stream.messages == [b"one"]
        assert stream.reset == 0
        assert recorder.messages == []
        assert recorder.ends == []
