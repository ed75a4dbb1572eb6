"""The same seed damages the same bytes in the same way, however they are cut into chunks."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.testing.proxy.damage import (
    Allowance,
    DamageOrders,
    Damager,
    Flips,
    Mark,
    Truncation,
)
from liftbridge_aio.testing.proxy.faults import Direction
from liftbridge_aio.testing.proxy.frames import PREFACE, FrameScanner, FrameType, Part, Piece
from support.peers.http2_streams import SETTINGS, chunks_of, client_streams, frame, server_streams

DATA: Final = frozenset({FrameType.DATA.value})
SEEDS: Final = st.integers(0, 1000)

Order = tuple[str, dict[str, Any]]


@st.composite
def orders(draw: st.DrawFn) -> list[Order]:
    """Draw factories of orders, called for each run because allowances are used up."""
    kinds = st.sampled_from([None, DATA, frozenset({SETTINGS, 1})])
    parts = st.sampled_from([None, frozenset({Part.PAYLOAD}), frozenset({Part.LENGTH, Part.FLAGS})])
    times = st.sampled_from([None, 1, 3])
    rates = st.sampled_from([1.0, 0.5, 0.1, 0.001])
    flips = st.fixed_dictionaries({"rate": rates, "frames": kinds, "parts": parts, "times": times})
    ends = st.fixed_dictionaries({"frames": kinds, "times": times})
    one: st.SearchStrategy[Order] = st.one_of(
        flips.map(lambda values: ("flip", {**values})), ends.map(lambda values: ("end", {**values}))
    )
    return draw(st.lists(one, min_size=1, max_size=3))


def made(name: str, values: dict[str, Any]) -> Flips | Truncation:
    allowance = Allowance(values["times"])
    rest = {key: value for key, value in values.items() if key != "times"}
    make = Flips if name == "flip" else Truncation
    return make(allowance, **rest)


def run(
    chunks: list[bytes], seed: int, chosen: list[Order], *, preface: bool
) -> tuple[bytes, list[tuple[int, str]], bool]:
    damager = Damager(preface=preface)
    for number, (name, values) in enumerate(chosen):
        damager.add(made(name, values), Random(f"{seed}, {number}"))
    out, marks, ended = b"", [], False
    for chunk in chunks:
        damaged = damager.feed(chunk)
        assert not (ended and damaged.data)
        out += damaged.data
        marks += [(mark.position, mark.detail) for mark in damaged.marks]
        ended = ended or damaged.truncation is not None
    return out, marks, ended


@given(st.one_of(server_streams(), client_streams()), SEEDS, orders(), st.data())
def test_chunks_make_no_difference(
    stream: bytes, seed: int, chosen: list[Order], data: st.DataObject
) -> None:
    preface = stream.startswith(PREFACE)
    whole = run([stream], seed, chosen, preface=preface)
    assert run(data.draw(chunks_of(stream)), seed, chosen, preface=preface) == whole


def places(stream: bytes) -> list[Piece]:
    return list(FrameScanner(preface=False).scan(stream))


def piece_at(stream: bytes, position: int) -> Piece:
    return next(piece for piece in places(stream) if piece.start <= position < piece.stop)


@given(server_streams(), SEEDS, st.sampled_from([1, 4, None]), st.sampled_from([None, DATA]))
def test_flips_are_single_bits_where_they_may_be_and_each_is_told(
    stream: bytes, seed: int, times: int | None, kinds: frozenset[int] | None
) -> None:
    order = Flips(Allowance(times), 0.3, kinds, frozenset({Part.PAYLOAD}))
    damager = Damager(preface=False)
    damager.add(order, Random(seed))
    damaged = damager.feed(stream)
    differing = [n for n, (a, b) in enumerate(zip(stream, damaged.data, strict=True)) if a != b]
    assert differing == [mark.position for mark in damaged.marks]
    for position in differing:
        assert (stream[position] ^ damaged.data[position]).bit_count() == 1
        piece = piece_at(stream, position)
        assert piece.part is Part.PAYLOAD
        assert kinds is None or piece.frame_type in kinds
    assert times is None or len(differing) <= times


def test_a_rate_of_one_hits_every_byte_and_other_rates_their_share() -> None:
    for rate in (1.0, 0.25):
        damager = Damager(preface=False)
        damager.add(Flips(Allowance(None), rate), Random(3))
        hits = len(damager.feed(bytes(20_000)).marks)
        assert abs(hits - 20_000 * rate) <= 300


@given(server_streams(), SEEDS, st.sampled_from([None, DATA]))
def test_truncation_ends_within_the_first_frame_that_fits(
    stream: bytes, seed: int, kinds: frozenset[int] | None
) -> None:
    damager = Damager(preface=False)
    order = Truncation(Allowance(1), frames=kinds)
    damager.add(order, Random(seed))
    damaged = damager.feed(stream)
    first = next(
        (p for p in places(stream) if p.offset == 4 and (kinds is None or p.frame_type in kinds)),
        None,
    )
    if first is None:
        assert (damaged.data, damaged.truncation) == (stream, None)
        return
    assert first.frame_bytes is not None
    begins = first.start - 4
    assert damaged.truncation is order
    assert damaged.data == stream[: len(damaged.data)]
    assert begins < len(damaged.data) < begins + first.frame_bytes
    assert [mark.position for mark in damaged.marks] == [len(damaged.data)]
    assert damager.feed(stream).data == b""


def test_an_order_in_the_middle_of_a_frame_means_the_next_one() -> None:
    stream = frame(SETTINGS, b"123456")
    damager = Damager(preface=False)
    damager.feed(stream[:10])
    damager.add(Truncation(Allowance(1)), Random(1))
    assert damager.feed(stream[10:]).data == stream[10:]
    assert damager.feed(stream).truncation is not None


def test_streams_share_an_allowance() -> None:
    orders = DamageOrders(seed=1)
    orders.give(Direction.BOTH, Flips(Allowance(3), 1.0))
    marks: list[Mark] = []
    for connection in (1, 2):
        for direction in Direction.BOTH:
            damager = Damager(preface=False)
            orders.hand_on(damager, connection, direction)
            marks += damager.feed(b"ab").marks
    assert [mark.position for mark in marks] == [0, 1, 0]


def test_orders_reach_only_their_direction_and_end_when_called_off() -> None:
    orders = DamageOrders(seed=1)
    orders.give(Direction.TO_CLIENTS, Flips(Allowance(None), 1.0))
    there, back = Damager(preface=False), Damager(preface=False)
    orders.hand_on(there, 1, Direction.TO_TARGET)
    orders.hand_on(back, 1, Direction.TO_CLIENTS)
    assert there.feed(b"ab").data == b"ab"
    assert back.feed(b"ab").data != b"ab"
    orders.call_off()
    late = Damager(preface=False)
    orders.hand_on(late, 2, Direction.TO_CLIENTS)
    assert back.feed(b"ab").data == late.feed(b"ab").data == b"ab"
