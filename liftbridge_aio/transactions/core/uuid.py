"""Build and read the UUIDs that order the messages of a producer.

A UUID is version 1 of RFC 9562: 60 bits of time in units of 100 ns since 15 October 1582, and a
clock sequence of 14 bits, here 4 bits of counter and 10 of flags, then the six bytes of the
producer. Time and counter together are the message's *clock*, a number of 64 bits that grows with
each message of a producer; readers only compare clocks. The layout is Gazette's, so either
side reads the other's messages; `uuid.UUID(bytes=…)` reads them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import islice
from operator import lt
from struct import Struct, unpack

from liftbridge_aio._core.arguments import INT64_MAX, check_type, check_whole_number
from liftbridge_aio.errors import InvalidRequest

UUID_BYTES = 16
PRODUCER_BYTES = 6
NIL_UUID = bytes(UUID_BYTES)
"""A message with this UUID takes no part in transactions: it is always delivered."""

MAX_CLOCK = 2**64 - 1
MAX_FLAGS = 0x3FF

_EPOCH_1582 = 122_192_928_000_000_000  # units of 100 ns from 15 October 1582 to 1970
_LAYOUT = Struct(">IHHH6s")
_NO_TIME = bytes(4)  # how a UUID of clock 0 begins, and seldom another one
_CONTINUE = b"\x80\x01"  # its flags, where the counter of the clock is 0


class Flags(IntEnum):
    """The role of a message in a transaction; a reader handles any other flags as OUTSIDE."""

    OUTSIDE = 0
    """A message of no transaction, committed by itself."""

    CONTINUE = 1
    """A message that begins or continues the transaction of its producer."""

    ACK = 2
    """The commit of its producer's messages with smaller or equal clocks, and the rollback of
    those with larger ones."""


_FLAG_TYPES = frozenset((int, Flags))


class Clock:
    """Count the messages of a producer, close to the time of day but never backwards.

    The clock may run ahead of the time of day when messages come faster than its ticks.
    """

    MICROSECOND = 160
    """The step of Gazette 0.101 and later: 1 µs, so the counter of 4 bits stays 0."""

    COUNTER = 1
    """The step of the published guide: the next value of the counter of 4 bits."""

    __slots__ = ("_step", "_value")

    def __init__(self, value: int = 0, *, step: int = MICROSECOND) -> None:
        """Begin at a clock, usually that of a time, see `clock_at`; 0 leaves it to `update`.

        Raises:
            InvalidRequest: the value is not one of 64 bits, or the step is below 1.
        """
        check_whole_number(value, "the value of a clock", 0, MAX_CLOCK)
        check_whole_number(step, "step", 1, INT64_MAX)
        self._value = value
        self._step = step

    @property
    def value(self) -> int:
        """The clock of the newest message."""
        return self._value

    def update(self, unix_ns: int) -> None:
        """Advance to a time in nanoseconds since 1970; an earlier time changes nothing."""
        self._value = max(self._value, clock_at(unix_ns))

    def tick(self) -> int:
        """Advance by one step and return the clock of the next message."""
        self._value = (self._value + self._step) & MAX_CLOCK
        return self._value


def clock_at(unix_ns: int) -> int:
    """Return the clock of a time in nanoseconds since 1970, precise to 100 ns."""
    return ((unix_ns // 100 + _EPOCH_1582) << 4) & MAX_CLOCK


def time_of(clock: int) -> int:
    """Return the nanoseconds since 1970 of a clock, negative for a time before 1970."""
    return ((clock >> 4) - _EPOCH_1582) * 100


def producer_id(random: bytes) -> bytes:
    """Return the producer id that is made of six random bytes.

    Ids must be random, never derived: two producers with one id discard each other's messages.
    The multicast bit is set, so that no id is the address of a network card (RFC 9562, 6.10).

    Raises:
        InvalidRequest: these are not six bytes.
    """
    _check_bytes(random, PRODUCER_BYTES, "a producer id")
    return bytes((random[0] | 1,)) + bytes(random[1:])


def build_uuid(producer: bytes, clock: int, flags: int) -> bytes:
    """Return the UUID of a message, 16 bytes.

    Raises:
        InvalidRequest: a part does not fit: a producer of six bytes, a clock of 64 bits, flags
            of 10 bits.
    """
    if (
        type(clock) is not int
        or not 0 <= clock <= MAX_CLOCK
        or type(flags) not in _FLAG_TYPES
        or not 0 <= flags <= MAX_FLAGS
        or type(producer) is not bytes
        or len(producer) != PRODUCER_BYTES
    ):  # one look first: this is done for each message
        check_whole_number(clock, "the clock of a UUID", 0, MAX_CLOCK)
        check_whole_number(flags, "the flags of a UUID", 0, MAX_FLAGS)
        _check_bytes(producer, PRODUCER_BYTES, "a producer id")
    return pack_uuid(producer, clock, flags)


def pack_uuid(producer: bytes, clock: int, flags: int) -> bytes:
    """Return what `build_uuid` returns, of parts that fit."""
    return _LAYOUT.pack(
        (clock >> 4) & 0xFFFFFFFF,
        (clock >> 36) & 0xFFFF,
        (clock >> 52) | 0x1000,
        0x8000 | ((clock & 0xF) << 10) | flags,
        producer,
    )


def rising_uuids(producer: bytes, clock: int, step: int, flags: int) -> Iterator[bytes]:
    """Yield the UUIDs of the messages behind a clock, as `build_uuid` does, each when it is sent.

    Raises:
        InvalidRequest: a part does not fit.
    """
    check_whole_number(flags, "the flags of a UUID", 0, MAX_FLAGS)
    _check_bytes(producer, PRODUCER_BYTES, "a producer id")
    pack = _LAYOUT.pack
    for each in range(clock + step, MAX_CLOCK, step):
        yield pack(
            (each >> 4) & 0xFFFFFFFF,
            (each >> 36) & 0xFFFF,
            (each >> 52) | 0x1000,
            0x8000 | ((each & 0xF) << 10) | flags,
            producer,
        )


def parse_uuid(uuid: bytes) -> tuple[bytes, int, int]:
    """Return the producer, the clock and the flags of a UUID of 16 bytes.

    Raises:
        InvalidRequest: these are not 16 bytes.
    """
    if len(uuid) != UUID_BYTES:
        _check_bytes(uuid, UUID_BYTES, "a UUID")
    low, middle, high, sequence, producer = _LAYOUT.unpack(uuid)
    clock = low << 4 | middle << 36 | (high & 0xFFF) << 52 | (sequence >> 10) & 0xF
    return producer, clock, sequence & MAX_FLAGS


def parse_clocks(uuids: Sequence[bytes]) -> list[int]:
    """Return the clocks of UUIDs of 16 bytes."""
    count = len(uuids)
    words = unpack(f">{4 * count}I", b"".join(uuids))
    lows, middles, heads = words[::4], words[1::4], words[2::4]
    middle, head = middles[0], heads[0]
    if count == middles.count(middle) == heads.count(head):  # most often, as time goes on slowly
        base = (middle >> 16) << 36 | (middle & 0xFFF) << 52 | (head >> 26) & 0xF
        return [base | low << 4 for low in lows]
    return [
        low << 4 | (middle >> 16) << 36 | (middle & 0xFFF) << 52 | (head >> 26) & 0xF
        for low, middle, head in zip(lows, middles, heads, strict=True)
    ]


def continues(uuid: bytes) -> bool:
    """Return True for the UUID, of 16 bytes, of a message of a transaction."""
    if uuid[:4] != _NO_TIME and uuid[8:10] == _CONTINUE:  # most often
        return True
    _, clock, flags = parse_uuid(uuid)
    return clock != 0 and flags == Flags.CONTINUE


def all_continue(uuids: Sequence[bytes]) -> bool:
    """Return True if these are UUIDs, of 16 bytes, of transactions, as is easily seen."""
    joined, count = b"".join(uuids), len(uuids)
    return (
        joined[8::UUID_BYTES] == _CONTINUE[:1] * count
        and joined[9::UUID_BYTES] == _CONTINUE[1:] * count
        and min(uuids)[:4] != _NO_TIME
    )


def all_rise(uuids: Sequence[bytes]) -> bool:
    """Return True if the clocks of UUIDs, of 16 bytes, of one producer rise, as is easily seen.

    Only their lowest words are compared, which come first: the others must be the same.
    """
    rest = uuids[0][4:]
    return [uuid[4:] for uuid in uuids].count(rest) == len(uuids) and all(
        map(lt, uuids, islice(uuids, 1, None))
    )


def is_outside(uuid: bytes) -> bool:
    """Return True for the UUID of a message of no transaction."""
    if len(uuid) != UUID_BYTES:
        return False
    _, clock, flags = parse_uuid(uuid)
    return clock != 0 and flags != Flags.CONTINUE


def is_in_transaction(uuid: bytes) -> bool:
    """Return True for the UUID of a message that its ack commits."""
    return len(uuid) == UUID_BYTES and continues(uuid)


def _check_bytes(value: bytes, length: int, what: str) -> None:
    check_type(value, (bytes, bytearray, memoryview), f"{what} must be bytes")
    if len(value) != length:
        raise InvalidRequest(f"{what} has {length} bytes, not {len(value)}")
