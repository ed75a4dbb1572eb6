"""A fault proxy that can also send GOAWAY, as balancers and servers do that want to be left."""

from __future__ import annotations

import struct
from typing import Final

from liftbridge_aio.testing import Direction, FaultProxy
from liftbridge_aio.testing.proxy.connection import Pipe
from liftbridge_aio.testing.proxy.damage import Damaged, Damager
from liftbridge_aio.testing.proxy.frames import FrameScanner, FrameType, Part

LAST_STREAM: Final = 2**31 - 1
"""Says that all calls so far will be served."""


def goaway_frame(error: int = 0) -> bytes:
    """The frame (RFC 9113, section 6.8): no data, no stream but the connection's."""
    payload = struct.pack(">II", LAST_STREAM, error)
    return struct.pack(">I", len(payload))[1:] + bytes([FrameType.GOAWAY, 0]) + bytes(4) + payload


class Insertion(Damager):
    """A damager that also puts a GOAWAY before the next frame that begins, once ordered."""

    def __init__(self) -> None:
        """Begin at the first byte of what a server sends."""
        super().__init__(preface=False)
        self._frames = FrameScanner(preface=False)
        self._settled = False
        self.ordered = False
        self.done = 0

    def feed(self, data: bytes) -> Damaged:
        """Damage the next bytes, and insert what was ordered."""
        damaged = super().feed(data)
        if not self.ordered:
            self._frames.skip(damaged.data)
            self._settled = self._settled or bool(damaged.data)
            return damaged
        for piece in self._frames.scan(damaged.data):
            # The first frame of a server is its SETTINGS.
            if piece.part is Part.LENGTH and not piece.offset and self._settled and self.ordered:
                self.ordered = False
                self.done += 1
                out = damaged.data[: piece.start] + goaway_frame() + damaged.data[piece.start :]
                damaged = Damaged(out, damaged.marks, damaged.truncation)
        self._settled = True
        return damaged


class GoawayProxy(FaultProxy):
    """A fault proxy that can also send GOAWAY to its clients."""

    def _make_pipe(self, connection: int, direction: Direction) -> Pipe:
        pipe = super()._make_pipe(connection, direction)
        if direction is Direction.TO_CLIENTS:
            pipe.damager = Insertion()
        return pipe

    def send_goaway(self) -> None:
        """Have each open connection send GOAWAY before its next frame."""
        for connection in self._connections:
            damager = connection.pipes[Direction.TO_CLIENTS].damager
            assert isinstance(damager, Insertion)
            damager.ordered = True
