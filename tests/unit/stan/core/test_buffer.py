from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.stan.core.buffer import Buffer, Identity
from liftbridge_aio.wire.stan import MsgProto

TIME = 1_795_000_000_123_456_789


def encoded(sequence: int, data: bytes, redeliveries: int) -> bytes:
    again: dict[str, Any] = {}
    if redeliveries:
        again = {"redelivered": True, "redelivery_count": redeliveries - 1}
    return bytes(MsgProto(sequence=sequence, subject="c", data=data, timestamp=TIME, **again))


def identify(data: bytes) -> Identity | None:
    if data.startswith(b"\xff"):
        return None
    message = MsgProto.parse(data)
    return Identity(message.sequence, message.redelivered)


def number(data: bytes | None) -> int | None:
    return None if data is None else MsgProto.parse(data).sequence


def take(buffer: Buffer) -> bytes | None:
    while (data := buffer.pop()) is not None:
        found = identify(data)
        assert found is not None
        if not buffer.again or buffer.popped(found.sequence):
            return data
    return None


first = st.builds(encoded, st.integers(1, 6), st.binary(max_size=12), st.just(0))
again = st.builds(encoded, st.integers(1, 6), st.binary(max_size=12), st.integers(1, 4))
steps = st.lists(
    st.one_of(
        st.lists(st.one_of(again, st.just(b"\xff" * 12)), min_size=1, max_size=4),
        st.just("take"),
        st.integers(1, 6),
        st.just("new"),
        st.just("clear"),
    ),
    max_size=40,
)


@given(steps, first)
def test_it_holds_what_a_list_would(steps: list[list[bytes] | str | int], fresh: bytes) -> None:
    buffer = Buffer(identify)
    model: list[bytes] = []
    most = 0
    newest = 6
    for step in steps:
        if isinstance(step, list):
            buffer.put(step)
            for data in step:
                if identify(data) is None:
                    continue
                place = [number(each) for each in model]
                if number(data) in place:
                    model[place.index(number(data))] = data
                else:
                    model.append(data)
        elif isinstance(step, int):  # acked: nothing that is delivered for the first time waits
            buffer.acked(step)
            model = [each for each in model if number(each) != step]
        elif step == "new":
            newest += 1
            data = encoded(newest, fresh, 0)
            buffer.put([data])
            model.append(data)
        elif step == "clear":
            buffer.clear()
            model.clear()
        else:
            assert take(buffer) == (model.pop(0) if model else None)
        most = max(most, len(model))
        assert len(buffer) == len(model)
    assert buffer.max_messages == most
    while model:
        assert take(buffer) == model.pop(0)
    assert take(buffer) is None
    assert buffer.bytes == 0


@given(first)
def test_what_is_new_is_not_decoded(data: bytes) -> None:
    def refuse(_: bytes) -> Identity | None:
        raise AssertionError

    buffer = Buffer(refuse)
    buffer.put([data])
    assert (buffer.pop(), buffer.max_bytes) == (data, len(data))
