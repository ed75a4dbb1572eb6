"""Frames about leases: they are read as they were written, and nothing else is read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import MalformedData, Message
from liftbridge_aio.queue.core.lease_protocol import (
    MAGIC,
    Answer,
    AnswerKind,
    Ask,
    Frame,
    Granted,
    Lease,
    Offer,
    Outcome,
    Verdict,
    decode,
    encode,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBER = st.integers(-(2**63), 2**63 - 1)
SECONDS = st.floats(allow_nan=False, allow_infinity=False)
HEADERS = st.dictionaries(TEXT, st.binary(max_size=20), max_size=3)
LEASES = st.builds(
    Lease,
    *(TEXT, NUMBER, TEXT, NUMBER, NUMBER, NUMBER, SECONDS, SECONDS, TEXT, st.booleans()),
    *(st.binary(max_size=20), st.binary(max_size=20), NUMBER, HEADERS, TEXT, TEXT, HEADERS),
)
KINDS = st.sampled_from(AnswerKind)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Offer, TEXT, st.lists(st.tuples(TEXT, NUMBER)).map(tuple), st.booleans()),
    st.builds(Ask, TEXT, TEXT, NUMBER),
    LEASES,
    st.builds(Granted, TEXT, st.booleans()),
    st.builds(Answer, TEXT, NUMBER, NUMBER, KINDS, SECONDS, st.booleans(), TEXT, st.booleans()),
    st.builds(Verdict, NUMBER, KINDS, st.sampled_from(Outcome), TEXT),
)


@given(FRAMES)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    again = decode(encode(frame))
    assert type(again) is type(frame)
    assert again == frame


@given(FRAMES, st.data())
def test_no_other_bytes_are_a_frame(frame: Frame, data: st.DataObject) -> None:
    written = encode(frame)
    cut = data.draw(st.integers(0, len(written) - 1))
    for broken in (written[:cut], written + b"x"):
        with pytest.raises(MalformedData):
            decode(broken)
    changed = bytearray(written)
    changed[cut] ^= data.draw(st.integers(1, 255))
    with suppress(MalformedData):
        decode(bytes(changed))


@given(st.binary(max_size=60), st.integers(0, 255))
def test_noise_is_refused(noise: bytes, kind: int) -> None:
    for data in (noise, MAGIC + bytes((kind,)) + noise):
        with suppress(MalformedData):
            decode(data)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_seconds_are_finite(seconds: float) -> None:
    with pytest.raises(MalformedData, match="finite"):
        decode(encode(Answer("m", 1, 2, AnswerKind.NACK, seconds)))


def test_a_lease_has_its_message_or_only_its_place() -> None:
    fields: dict[str, Any] = {"headers": {"a": b"1"}, "subject": "s", "reply_subject": "r"}
    message = Message("s", 1, 5, b"k", b"v", 7, transaction_headers={"t": b"2"}, **fields)
    lease = Lease(
        *("o", 1, "s", 1, 5, 2, 3.0, 30.0, "", True, b"k", b"v", 7),
        transaction_headers={"t": b"2"},
        **fields,
    )
    assert lease.message == message
    small = lease.without_message()
    assert not small.is_whole
    assert (small.stream, small.partition, small.offset, small.attempt) == ("s", 1, 5, 2)
    assert len(encode(small)) < len(encode(lease))
