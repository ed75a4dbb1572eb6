"""The data lane, rule by rule, on scripted frames."""

from __future__ import annotations

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import FlowControlError, ProtocolError

from liftbridge_aio.net.core.data_lane import DataLane
from liftbridge_aio.net.core.lane_stream import LaneStream, MessageFault
from support.peers.lane_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY_FRAME,
    HEADERS,
    OPENING,
    PADDED,
    PING_FRAME,
    PUSH_PROMISE,
    WIDEST,
    client,
    data,
    frame,
    grpc,
    increments,
    response,
    rst_stream,
    trailers,
)

LONG = 2**20


def lane_with_stream(
    window: int = WIDEST, max_message_bytes: int = LONG
) -> tuple[DataLane, LaneStream]:
    """Return a lane on which stream 1 was opened and answered."""
    lane = DataLane()
    stream = lane.open(1, window=window, max_message_bytes=max_message_bytes)
    assert lane.feed(response(1)) == response(1)
    return lane, stream


def refusal(of_h2: bytes, streams: tuple[int, ...] = (1,)) -> ProtocolError:
    """Return how h2 refuses what the lane gave it."""
    h2 = client(streams)
    with pytest.raises(ProtocolError) as caught:
        h2.receive_data(OPENING + of_h2)
    return caught.value


# What is the lane's, and what is h2's


@pytest.mark.parametrize(
    "odd",
    [
        data(1, grpc(b"s" * 29)),
        data(1, grpc(b"s" * 28), padding=1),
        data(1, grpc(b"s" * 12, b"t" * 13)),
        data(1, grpc(b"s" * 30), end=True),
        data(3, grpc(b"s" * 30)),
        data(5, grpc(b"s" * 30)),
        frame(DATA, 0, 1, b"\1" + grpc(b"s" * 30)[1:]),
        frame(6, 0, 0, b"s" * 35),
    ],
)
def test_among_frames_of_equal_length_none_is_mistaken_for_another(odd: bytes) -> None:
    for place in (0, 1, 15, 16, 17, 20, 31, 32):
        lanes = (DataLane(), DataLane())
        together, apart = (
            [lane.open(number, window=WIDEST, max_message_bytes=LONG) for number in (1, 3)]
            for lane in lanes
        )
        frames = [data(1, grpc(b"%030d" % number)) for number in range(40)]
        frames.insert(place, odd)
        begin = response(1) + response(3)
        at_once = lanes[0].feed(begin + b"".join(frames))
        one_by_one = [lanes[1].feed(part) for part in (begin, *frames)]
        assert at_once == b"".join(one_by_one)
        for one, other in zip(together, apart, strict=True):
            assert one.messages == other.messages
            assert one.failure == other.failure
            assert one.credit.received == other.credit.received


def test_bytes_of_messages_are_not_mistaken_for_frames_of_equal_length() -> None:
    lane, stream = lane_with_stream()
    whole = data(1, grpc(b"s" * 30))
    length = 20 * len(whole) - 9
    looks_like_a_frame = length.to_bytes(3, "big") + whole[3:]
    assert lane.feed(looks_like_a_frame * 20) == b""
    # Behind the first message, the next header is the prefix of a huge one.
    assert stream.messages == [b"s" * 30]
    assert stream.failure is not None


# The end of streams


@pytest.mark.parametrize("end", [data(1, b"", end=True), trailers(1), rst_stream(1)])
def test_data_after_the_end_is_for_h2_to_refuse(end: bytes) -> None:
    lane, stream = lane_with_stream()
    late = data(1, grpc(b"late"))
    assert lane.feed(end + late) == end + late
    assert stream.messages == []


# Padding


@pytest.mark.parametrize("payload", [b"", b"\1", b"\5aaaa", b"\xff" + bytes(200)])
def test_impossible_padding_is_for_h2_to_refuse(payload: bytes) -> None:
    lane, stream = lane_with_stream()
    impossible = frame(DATA, PADDED, 1, payload)
    assert lane.feed(impossible) == impossible
    refusal(response(1) + impossible)
    assert stream.messages == []


# Streams' numbers


def test_the_reserved_bit_is_ignored() -> None:
    lane, stream = lane_with_stream()
    assert lane.feed(data(2**31 | 1, grpc(b"abc"))) == b""
    assert stream.messages == [b"abc"]


def test_the_highest_stream_number_is_as_good_as_any() -> None:
    lane = DataLane()
    stream = lane.open(WIDEST, window=WIDEST, max_message_bytes=LONG)
    lane.feed(response(WIDEST))
    assert lane.feed(data(WIDEST, grpc(b"abc")) * 20) == b""
    assert stream.messages == [b"abc"] * 20


def test_a_stream_cannot_be_registered_twice() -> None:
    lane, _ = lane_with_stream()
    with pytest.raises(ValueError, match="stream 1 "):
        lane.open(1, window=1, max_message_bytes=1)


# Header blocks and long frames


@pytest.mark.parametrize("kind", [HEADERS, PUSH_PROMISE])
def test_within_a_header_block_everything_is_for_h2(kind: int) -> None:
    lane, stream = lane_with_stream()
    begun = frame(kind, 0, 3, b"block")
    amid = data(1, grpc(b"amid")) + frame(DATA, END_HEADERS, 1, grpc(b"amid"))
    more = frame(CONTINUATION, 0, 3, b"more")
    ended = frame(CONTINUATION, END_HEADERS, 3, b"end")
    assert lane.feed(begun + amid + more + amid) == begun + amid + more + amid
    assert lane.feed(ended + data(1, grpc(b"after"))) == ended
    assert stream.messages == [b"after"]


@pytest.mark.parametrize("kind", [DATA, HEADERS, 0x42])
def test_a_frame_that_is_too_long_is_for_h2_with_all_that_follows(kind: int) -> None:
    lane, stream = lane_with_stream()
    long = frame(kind, 0, 1, bytes(16_385))
    after = data(1, grpc(b"after"))
    seen = [lane.feed(data(1, grpc(b"before")) + long[:20])]
    # It may take long until it is whole, and h2 waits for that.
    assert seen == [long[:20]]
    seen.append(lane.feed(long[20:] + after))
    assert b"".join(seen) == long + after
    assert stream.messages == [b"before"]
    refusal(response(1) + long)


@pytest.mark.parametrize("count", [1, 40])
def test_a_frame_that_is_too_long_is_for_h2_even_with_a_whole_message(count: int) -> None:
    lane, stream = lane_with_stream()
    whole = data(1, grpc(b"whole"))
    long = frame(DATA, 0, 1, grpc(bytes(16_384 - 5 + 1))) * count
    assert lane.feed(whole + long) == long
    assert stream.messages == [b"whole"]
    assert lane.feed(whole) == whole


# Messages that are refused


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (b"\1" + grpc(b"abc")[1:], MessageFault.COMPRESSED),
        (grpc(b"x" * 101), MessageFault.TOO_LONG),
        (grpc(b"x" * 20_000), MessageFault.TOO_LONG),
    ],
)
def test_after_a_bad_message_nothing_more_is_taken(bad: bytes, fault: MessageFault) -> None:
    for begin in (
        data(1, grpc(b"good")) + data(1, bad[:16_384]),
        data(1, grpc(b"good") + bad[:99]),
    ):
        lane, stream = lane_with_stream(max_message_bytes=100)
        lane.feed(begin)
        assert stream.messages == [b"good"]
        assert stream.failure is not None
        assert stream.failure.fault is fault
        assert lane.touched == [stream]
        lane.touched.clear()
        # h2 must not get what grpclib would keep, but the end.
        assert lane.feed(data(1, grpc(b"later")) * 20) == b""
        assert lane.touched == []
        assert lane.feed(data(1, b"", end=True)) == data(1, b"", end=True)
        assert stream.messages == [b"good"]


# Streams that are given up


def test_what_comes_for_a_stream_that_was_given_up_is_dropped() -> None:
    lane, stream = lane_with_stream()
    lane.feed(data(1, grpc(b"before")) + data(1, grpc(b"unfinished")[:8]))
    before = stream.messages
    lane.close(1)
    lane.close(1)
    lane.touched.clear()
    late = data(1, grpc(b"late"))
    assert lane.feed(late * 50 + data(1, b"odd", padding=9) + PING_FRAME + late) == PING_FRAME
    assert before == [b"before"]
    assert stream.messages == []
    assert lane.touched == []
    # h2 has reset the stream: its end would only make it send another RST_STREAM.
    assert lane.feed(data(1, grpc(b"late"), end=True)) == b""
    assert lane.feed(late) == late


def test_a_stream_given_up_in_the_middle_of_a_message_keeps_nothing_of_it() -> None:
    """A thousand such streams are remembered, and each message may be of megabytes."""
    lane, stream = lane_with_stream()
    assert lane.feed(data(1, grpc(b"x" * 1000)[:900])) == b""
    assert stream.incomplete
    lane.close(1)
    assert stream._partial == b""
    assert lane.feed(data(1, grpc(b"x" * 1000)[900:]) + PING_FRAME) == PING_FRAME
    assert not stream.messages


def test_a_stream_given_up_before_its_headers_is_dropped_too() -> None:
    lane = DataLane()
    stream = lane.open(1, window=WIDEST, max_message_bytes=LONG)
    lane.close(1)
    # The headers are h2's: leaving them out would break the compression of all others.
    assert lane.feed(response(1) + data(1, grpc(b"late")) + trailers(1)) == response(1) + trailers(
        1
    )
    assert stream.messages == []
    assert lane.touched == []


@pytest.mark.parametrize("end", [data(1, b"", end=True), trailers(1), rst_stream(1)])
def test_a_stream_that_has_ended_is_not_remembered(end: bytes) -> None:
    for close_first in (False, True):
        lane, _ = lane_with_stream()
        if close_first:
            lane.close(1)
        lane.feed(end)
        lane.close(1)
        late = data(1, grpc(b"late"))
        assert lane.feed(late) == late


def test_only_so_many_streams_that_were_given_up_are_remembered() -> None:
    lane = DataLane()
    numbers = range(1, 2 * 1025 + 1, 2)
    for number in numbers:
        lane.open(number, window=WIDEST, max_message_bytes=LONG)
        lane.close(number)
    first, second = (data(number, grpc(b"late")) for number in numbers[:2])
    assert lane.feed(first + second) == first


def test_dropped_bytes_are_credited_to_the_connection_and_to_no_stream() -> None:
    lane, _ = lane_with_stream(window=1000)
    lane.close(1)
    size = 16_384
    frames = 2**20 // size
    lane.feed(data(1, bytes(size - 4), padding=3) * frames)
    assert increments(lane.credit()) == {0: 2**20}


# Flow control: the arithmetic has its own tests


def test_streams_that_ended_get_no_credit() -> None:
    lane, stream = lane_with_stream(window=1000)
    lane.feed(data(1, grpc(b"x" * 900), end=True))
    stream.consumed(905)
    assert lane.credit() == b""


def test_streams_that_are_given_up_get_no_credit() -> None:
    lane, stream = lane_with_stream(window=1000)
    lane.feed(data(1, grpc(b"x" * 900)))
    stream.consumed(905)
    lane.close(1)
    assert lane.credit() == b""


def test_a_failed_stream_gets_no_credit() -> None:
    lane, stream = lane_with_stream(window=1000, max_message_bytes=10)
    lane.feed(data(1, grpc(b"x" * 800)))
    lane.feed(data(1, b"", padding=100))
    assert stream.failure is not None
    assert lane.credit() == b""


def test_more_than_was_drained_cannot_be_given_back() -> None:
    lane, stream = lane_with_stream()
    lane.feed(data(1, grpc(b"abc") + grpc(b"def")[:6]))
    for size in (-1, 9):
        with pytest.raises(ValueError, match=f"{size} bytes"):
            stream.consumed(size)
    stream.consumed(8)


@pytest.mark.parametrize(
    "frames", [[grpc(b"x" * 996)], [grpc(b"x" * 45)] * 21, [grpc(b"x" * 994), b"\0\0"]]
)
def test_a_server_that_exceeds_the_window_makes_h2_fail(frames: list[bytes]) -> None:
    lane, _ = lane_with_stream(window=1000)
    of_h2 = lane.feed(b"".join(data(1, payload) for payload in frames))
    assert lane.violation is not None
    assert "stream 1" in lane.violation
    h2 = client((1,))
    h2.receive_data(OPENING + response(1))
    assert_h2_refuses_for_flow_control(h2, of_h2)
    # The connection is at its end, and nothing on it means anything any more.
    assert lane.feed(data(1, grpc(b"x"))) == data(1, grpc(b"x"))


def assert_h2_refuses_for_flow_control(h2: H2Connection, of_h2: bytes) -> None:
    h2.data_to_send()
    with pytest.raises(FlowControlError):
        h2.receive_data(of_h2)
    goaway = h2.data_to_send()
    assert goaway[3] == GOAWAY_FRAME[3]
    assert goaway[13:17] == int(ErrorCodes.FLOW_CONTROL_ERROR).to_bytes(4, "big")


def test_h2_fails_even_where_the_server_has_given_it_no_credit() -> None:
    lane, _ = lane_with_stream(window=10)
    h2 = client((1,))
    h2.receive_data(OPENING + response(1))
    for _ in range(3):
        h2.send_data(1, bytes(16_384))
    h2.send_data(1, bytes(65535 - 3 * 16_384))
    assert h2.outbound_flow_control_window == 0
    assert_h2_refuses_for_flow_control(h2, lane.feed(data(1, grpc(b"x" * 100))))


def test_a_server_that_exceeds_the_window_of_the_connection_makes_h2_fail() -> None:
    lane = DataLane(connection_window=1000)
    lane.open(1, window=WIDEST, max_message_bytes=LONG)
    lane.feed(response(1) + data(1, grpc(b"x" * 995)))
    assert lane.violation is None
    lane.feed(data(1, grpc(b"x")))
    assert lane.violation is not None


def test_after_a_shrink_an_empty_frame_exceeds_nothing() -> None:
    lane, stream = lane_with_stream(window=1000)
    lane.feed(data(1, grpc(b"x" * 495)))
    stream.set_window(100)
    stream.window_acknowledged(100)
    lane.feed(data(1, b""))
    assert lane.violation is None


def test_after_a_shrink_a_message_in_progress_is_asked_for_early() -> None:
    lane, stream = lane_with_stream(window=1000)
    lane.feed(data(1, grpc(b"x" * 45)) * 9 + data(1, grpc(b"y" * 55)[:10]))
    stream.set_window(400)
    # The message is 60 bytes long and would need 110, as others are unread.
    assert lane.credit() == b""
    stream.consumed(50)
    assert increments(lane.credit()) == {1: 110}


# Who was touched


def test_streams_are_touched_once_until_the_list_is_emptied() -> None:
    lane = DataLane()
    first, second, third = (
        lane.open(number, window=WIDEST, max_message_bytes=LONG) for number in (1, 3, 5)
    )
    lane.feed(b"".join(response(number) for number in (1, 3, 5)))
    assert lane.touched == []
    both = data(3, grpc(b"a")) + data(1, grpc(b"b"))
    lane.feed(both + both + data(5, grpc(b"only begun")[:7]))
    assert lane.touched == [second, first]
    lane.feed(both + data(5, grpc(b"only begun")[7:]))
    assert lane.touched == [second, first, third]
    lane.touched.clear()
    lane.feed(data(1, grpc(b"c", b"d")) + data(1, grpc(b"e")))
    assert lane.touched == [first]
    lane.touched = []
    lane.feed(data(3, grpc(b"f")))
    assert lane.touched == [second]


def test_whoever_takes_the_messages_keeps_them() -> None:
    lane, stream = lane_with_stream()
    lane.feed(data(1, grpc(b"a")))
    taken, stream.messages = stream.messages, []
    lane.feed(data(1, grpc(b"b")) * 20)
    assert taken == [b"a"]
    assert stream.messages == [b"b"] * 20
