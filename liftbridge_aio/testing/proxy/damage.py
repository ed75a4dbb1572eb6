"""Damages a stream of bytes: flips bits, truncates it within a frame. Pure.

The same random numbers and bytes give the same damage, however the bytes are split into chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Final

from .faults import Direction
from .frames import TYPE_KNOWN_BYTES, FrameScanner, FrameType, Part, Piece

_NEVER: Final = 1e18  # bytes; more than any connection carries


class Allowance:
    """The number of remaining uses, shared by all streams that it was given to."""

    def __init__(self, times: int | None) -> None:
        """Set the number of uses; None for unlimited until revoked."""
        self._left = times

    @property
    def used_up(self) -> bool:
        """True if no use remains."""
        return self._left == 0

    def take(self) -> bool:
        """Consume one use; return False if none remains."""
        if self._left is not None:
            if not self._left:
                return False
            self._left -= 1
        return True

    def revoke(self) -> None:
        """Remove all remaining uses."""
        self._left = 0


@dataclass(frozen=True, slots=True)
class Flips:
    """An order to flip bits: one bit in each eligible byte, with equal probability."""

    allowance: Allowance
    """The number of bits."""
    rate: float
    """The probability for each byte, above 0 and up to 1."""
    frames: frozenset[int] | None = None
    """Types of frames to damage; None for any byte.

    In frames chosen by type, the length and the type itself are spared, because the type is not
    known before they have been forwarded.
    """
    parts: frozenset[Part] | None = None
    """Parts of frames to damage; None for all."""

    def may_hit(self, piece: Piece) -> bool:
        """Return True if the bytes of a piece may be damaged."""
        fits = self.frames is None or piece.frame_type in self.frames
        return fits and (self.parts is None or piece.part in self.parts)


@dataclass(frozen=True, slots=True)
class Truncation:
    """An order to end the stream within the next frame that begins."""

    allowance: Allowance
    """The number of streams to end."""
    reset: bool = False
    """True to end it with a reset."""
    frames: frozenset[int] | None = None
    """Types of frames to truncate; None for any."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One applied damage."""

    order: Flips | Truncation
    position: int
    """The damaged or first missing byte, counted from 0 in the stream."""
    detail: str


@dataclass(frozen=True, slots=True)
class Damaged:
    """The result of feeding bytes to a `Damager`."""

    data: bytes
    marks: tuple[Mark, ...] = ()
    truncation: Truncation | None = None
    """The order that ends the stream after these bytes; later bytes are dropped."""


class Damager:
    """Applies damage to one direction of one connection."""

    def __init__(self, *, preface: bool) -> None:
        """Start at the first byte; `preface` is True for the direction from the client."""
        self._scanner = FrameScanner(preface=preface)
        self._flips: list[_FlipsOfStream] = []
        self._truncations: list[tuple[Truncation, Random]] = []
        self._end: tuple[Truncation, int] | None = None  # the chosen end of the stream
        self._position = 0
        self._ended = False

    def add(self, order: Flips | Truncation, random: Random) -> None:
        """Apply an order from the next byte on, with its own random numbers."""
        if isinstance(order, Flips):
            self._flips.append(_FlipsOfStream(order, random))
        else:
            self._truncations.append((order, random))

    def feed(self, data: bytes) -> Damaged:
        """Damage the next bytes of the stream."""
        if self._ended:
            return Damaged(b"")
        self._flips = [each for each in self._flips if not each.order.allowance.used_up]
        self._truncations = [e for e in self._truncations if not e[0].allowance.used_up]
        if not (self._flips or self._truncations or self._end):
            self._scanner.skip(data)
            self._position += len(data)
            return Damaged(data)
        out = bytearray(data)
        marks: list[Mark] = []
        for piece in self._scanner.scan(data):
            self._decide_where_to_end(piece)
            stop = piece.stop
            if self._end is not None:
                stop = min(stop, self._end[1] - self._position)
            hits = [flips.apply(out, piece, stop, self._position) for flips in self._flips]
            marks += sorted(chain.from_iterable(hits), key=lambda mark: mark.position)
            if self._end is not None and stop == self._end[1] - self._position:
                marks.append(Mark(*self._end, f"within {_name(piece)}"))
                self._ended = True
                return Damaged(bytes(out[:stop]), tuple(marks), self._end[0])
        self._position += len(data)
        return Damaged(bytes(out) if marks else data, tuple(marks))

    def _decide_where_to_end(self, piece: Piece) -> None:
        if self._end is not None or piece.frame_bytes is None or piece.frame_type is None:
            return
        if piece.offset != TYPE_KNOWN_BYTES:
            return
        for order, random in self._truncations:
            fits = order.frames is None or piece.frame_type in order.frames
            if fits and order.allowance.take():
                ahead = random.randrange(piece.frame_bytes - TYPE_KNOWN_BYTES)
                self._end = order, self._position + piece.start + ahead
                return


class _FlipsOfStream:
    def __init__(self, order: Flips, random: Random) -> None:
        self.order = order
        self._random = random
        self._spared = self._draw()

    def _draw(self) -> int:
        """Draw the number of bytes to spare before the next damaged byte."""
        rate = self.order.rate
        if rate >= 1:
            return 0
        return int(min(math.log(1 - self._random.random()) / math.log1p(-rate), _NEVER))

    def apply(self, out: bytearray, piece: Piece, stop: int, before: int) -> Iterable[Mark]:
        """Flip bits of `out` up to `stop`; `out` begins at `before` in the stream."""
        if not self.order.may_hit(piece):
            return
        at = piece.start + self._spared
        while at < stop and self.order.allowance.take():
            bit = self._random.randrange(8)
            out[at] ^= 1 << bit
            yield Mark(self.order, before + at, f"bit {bit} in the {_name(piece)}")
            at += 1 + self._draw()
        self._spared = max(0, at - stop)


def _name(piece: Piece) -> str:
    if piece.frame_type is None:
        return piece.part.value
    try:
        frame = FrameType(piece.frame_type).name
    except ValueError:
        frame = f"{piece.frame_type:#x}"
    return f"{piece.part.value} of a {frame} frame of {piece.frame_bytes} bytes"


def chance(seed: int, connection: int, direction: Direction, purpose: str) -> Random:
    """Create a random generator for one purpose, independent of all other purposes."""
    return Random(f"{seed}, {connection}, {direction}, {purpose}")  # noqa: S311 - no secret


@dataclass(frozen=True, slots=True)
class _Order:
    number: int
    directions: Direction
    damage: Flips | Truncation


class DamageOrders:
    """The orders that have uses remaining."""

    def __init__(self, seed: int) -> None:
        """Create an empty list of orders."""
        self._seed = seed
        self._given = 0
        self._orders: list[_Order] = []

    def give(self, directions: Direction, damage: Flips | Truncation) -> None:
        """Add an order."""
        self._given += 1
        self._orders = [each for each in self._orders if not each.damage.allowance.used_up]
        self._orders.append(_Order(self._given, directions, damage))

    def hand_on(self, damager: Damager, connection: int, direction: Direction) -> None:
        """Pass all orders for one direction to a new connection."""
        for order in self._orders:
            self._tell(damager, connection, direction, order)

    def hand_on_last(self, damager: Damager, connection: int, direction: Direction) -> None:
        """Pass the last order to an open connection."""
        self._tell(damager, connection, direction, self._orders[-1])

    def call_off(self) -> None:
        """Cancel every order on all connections."""
        for order in self._orders:
            order.damage.allowance.revoke()
        self._orders.clear()

    def _tell(self, damager: Damager, connection: int, direction: Direction, order: _Order) -> None:
        if direction in order.directions:
            purpose = f"order {order.number}"
            damager.add(order.damage, chance(self._seed, connection, direction, purpose))
