"""UUIDs of messages: their layout, their clocks and what other readers make of them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core.uuid import (
    MAX_CLOCK,
    MAX_FLAGS,
    NIL_UUID,
    Clock,
    Flags,
    build_uuid,
    clock_at,
    parse_uuid,
    producer_id,
    time_of,
)

PRODUCER = bytes.fromhex("090607050309")
NS = 1567304621_981273734


@pytest.mark.parametrize(
    ("clock", "flags", "text"),
    [
        (2205855587517003792, 682, "83fc2f81-cc5f-11e9-82aa-090607050309"),
        (2205855587517004112, 682, "83fc2f95-cc5f-11e9-82aa-090607050309"),
        (2205855587517003794, 682, "83fc2f81-cc5f-11e9-8aaa-090607050309"),
        (160, Flags.OUTSIDE, "0000000a-0000-1000-8000-090607050309"),
        (320, Flags.OUTSIDE, "00000014-0000-1000-8000-090607050309"),
        (1, Flags.CONTINUE, "00000000-0000-1000-8401-090607050309"),
        (15, Flags.ACK, "00000000-0000-1000-bc02-090607050309"),
        (16, Flags.ACK, "00000001-0000-1000-8002-090607050309"),
        (0x1B21DD2138140000, Flags.ACK, "13814000-1dd2-11b2-8002-090607050309"),
    ],
)
def test_vectors(clock: int, flags: int, text: str) -> None:
    built = build_uuid(PRODUCER, clock, flags)
    assert str(uuid.UUID(bytes=built)) == text
    assert parse_uuid(built) == (PRODUCER, clock, flags)


def test_largest_parts() -> None:
    built = build_uuid(b"\xff" * 6, MAX_CLOCK, MAX_FLAGS)
    assert str(uuid.UUID(bytes=built)) == "ffffffff-ffff-1fff-bfff-ffffffffffff"
    assert parse_uuid(NIL_UUID) == (bytes(6), 0, 0)


@given(st.binary(min_size=6, max_size=6), st.integers(0, MAX_CLOCK), st.integers(0, MAX_FLAGS))
def test_building(producer: bytes, clock: int, flags: int) -> None:
    built = build_uuid(producer, clock, flags)
    assert parse_uuid(built) == (producer, clock, flags)
    standard = uuid.UUID(bytes=built)
    assert standard.version == 1
    assert standard.variant == uuid.RFC_4122
    assert standard.time == clock >> 4
    assert standard.node.to_bytes(6) == producer
    assert standard.clock_seq == (clock & 0xF) << 10 | flags


def test_clock_of_a_time() -> None:
    assert clock_at(12 * 10**9 + 300) == clock_at(12 * 10**9 + 399) == 1955086849920000048
    assert clock_at(12 * 10**9 + 400) == 1955086849920000064
    assert clock_at(10 * 10**9) == 0x1B21DD2197721000
    assert time_of(clock_at(NS)) == NS // 100 * 100


@pytest.mark.parametrize(
    ("step", "clocks"),
    [
        (Clock.MICROSECOND, [2205855587517003952, 2205855587517004112]),
        (Clock.COUNTER, [2205855587517003793, 2205855587517003794]),
    ],
)
def test_clock_updates_and_ticks(step: int, clocks: list[int]) -> None:
    clock = Clock(step=step)
    clock.update(NS)
    assert clock.value == 2205855587517003792
    assert [clock.tick(), clock.tick()] == clocks
    clock.update(NS - 10**9)
    assert clock.value == clocks[-1]  # never backwards
    clock.update(NS + 10**4)
    assert clock.value == clock_at(NS + 10**4)  # and the counter begins at 0 again
    assert [Clock().tick(), Clock(160).tick()] == [160, 320]


def test_ticks_from_the_epoch() -> None:
    clock = Clock(clock_at(0))
    clock.tick()
    assert clock.tick() == 0x1B21DD2138140140


def test_producer_ids_have_the_multicast_bit() -> None:
    assert producer_id(bytes(6)) == b"\x01" + bytes(5)
    assert producer_id(PRODUCER) == PRODUCER


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: producer_id(b"abc"), "a producer id has 6 bytes, not 3"),
        (lambda: build_uuid(b"abc", 1, 0), "a producer id has 6 bytes, not 3"),
        (lambda: build_uuid(PRODUCER, -1, 0), "the clock of a UUID must be from 0"),
        (lambda: build_uuid(PRODUCER, 1 << 64, 0), "the clock of a UUID must be from 0"),
        (lambda: build_uuid(PRODUCER, 1, 1024), "the flags of a UUID must be from 0 to 1023"),
        (lambda: parse_uuid(b"short"), "a UUID has 16 bytes, not 5"),
        (lambda: Clock(-1), "the value of a clock must be from 0"),
        (lambda: Clock(step=0), "step must be from 1"),
    ],
)
def test_bad_parts_are_refused(call, text) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidRequest, match=text):
        call()
