"""A random script of what a server says on some calls, and what that amounts to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hyperframe.frame import SettingsFrame

from liftbridge_aio._core.status import Code
from support.peers.scripted_peer import OK_HEADERS, Peer, PeerStream, grpc_message

LIMIT: Final = 300
"""Messages may not be longer."""
CALLS: Final = 3

VIOLATIONS: Final = (
    b"\x00\x00\x04\x03\x00" + bytes(7) + b"\x01",  # a reset of the connection
    b"\x00\x00\x01\x00\x00" + bytes(4) + b"d",  # DATA on the connection
    b"\x00\x00\x04\x08\x00" + bytes(8),  # credit of nothing
    b"\x00\x40\x01\x06\x00" + bytes(4 + 2**14 + 1),  # a frame longer than we allow
    b"\x00\x00\x04\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff",  # headers that cannot be decoded
    2 * (b"\x00\x00\x04\x08\x00" + bytes(4) + b"\x7f\xff\xff\xff"),  # too much credit
)


@dataclass
class Said:
    """The frames that the server has sent on one call, and their outcome."""

    stream: PeerStream
    pending: bytearray = field(default_factory=bytearray)
    """Bytes of messages that are to go out."""
    body: bytearray = field(default_factory=bytearray)
    """Bytes that went out and count."""
    accepted: bool = False
    over: bool = False
    """The server must say no more on it."""
    left: bool = False
    code: Code | None = None
    broken: set[str] = field(default_factory=set)
    """The faults that broke the call in the same read as other frames."""

    def outcome(self) -> tuple[list[bytes], Code | None]:
        """Say which messages come of it, and with what code it ends."""
        messages: list[bytes] = []
        body = bytes(self.body)
        while len(body) >= 5:
            length = int.from_bytes(body[1:5], "big")
            if body[0]:
                return messages, Code.INTERNAL
            if length > LIMIT:
                return messages, Code.RESOURCE_EXHAUSTED
            if len(body) < 5 + length:
                break
            messages.append(body[5 : 5 + length])
            body = body[5 + length :]
        if body and self.code is Code.OK:
            return messages, Code.INTERNAL
        return messages, self.code


Step = bytes | int
"""Bytes that come, or the number of a call that the client leaves."""


class Script:
    """Frames of a server for some calls, made one after the other."""

    def __init__(self, choose: Callable[[str, int], int]) -> None:
        self.choose = choose
        self.peer = Peer()
        self.peer.take()
        self.calls = [Said(PeerStream(2 * number + 1, {}, 2**20, 2**16)) for number in range(CALLS)]
        self.peer.credit = 2**31 - 1
        self.steps: list[Step] = []
        self.gone = False
        """The connection is over."""

    def barrier(self) -> None:
        """Begin a new read."""
        said = self.peer.take()
        if said:
            self.steps.append(said)

    def break_with(self, calls: list[Said], say: Callable[[], None], *, how: str) -> None:
        """Say what breaks calls, either in a read of its own or with other things."""
        alone = self.choose("alone", 2) == 0
        if alone:
            self.barrier()
        say()
        if alone:
            self.barrier()
        for call in calls:
            if not (call.over or call.left):
                call.code = Code.UNAVAILABLE
            if not alone:
                call.broken.add(how)

    def say(self, what: str, call: Said, amount: int) -> None:
        """Say something if that is possible now."""
        self._note_what_comes_after_the_last()
        if what == "message":
            size = (0, 1, 4, 40, 299, 300)[amount % 6]
            call.pending += grpc_message(bytes([amount]) * size)
        elif what == "odd message":
            odd = grpc_message(b"odd", flag=1), grpc_message(bytes(LIMIT + 1))
            call.pending += odd[amount % 2]
        elif what == "leave":
            self.barrier()
            if not call.left:
                call.left = True
                self.steps.append(self.calls.index(call))
        elif what in {"ping", "unknown", "settings"}:
            self._say_what_changes_nothing(what, call, amount)
        elif what in {"goaway", "violation"}:
            self._say_the_last(what, amount)
        elif not call.over and not call.accepted:
            self._say_first(what, call, amount)
        elif not call.over:
            self._say_more(what, call, amount)

    def _note_what_comes_after_the_last(self) -> None:
        """Note that frames in one read with a GOAWAY, behind it, are a violation to h2."""
        for call in self.calls:
            if self.gone and "goaway" in call.broken:
                call.broken.add("violation")

    def _say_what_changes_nothing(self, what: str, call: Said, amount: int) -> None:
        if what == "ping":
            self.peer.ping()
        elif what == "unknown":
            number = amount % 2 * call.stream.number
            self.peer.raw(b"\x00\x00\x03\xfa\xff" + number.to_bytes(4, "big") + b"odd")
        else:
            self.peer.settings({SettingsFrame.INITIAL_WINDOW_SIZE: 2**16 + amount})

    def _say_the_last(self, what: str, amount: int) -> None:
        if self.gone:
            return
        if what == "goaway":
            self.break_with(self.calls, self.peer.go_away, how=what)
        else:
            wrong = VIOLATIONS[amount % len(VIOLATIONS)]
            self.break_with(self.calls, lambda: self.peer.raw(wrong), how=what)
        self.gone = True

    def _say_first(self, what: str, call: Said, amount: int) -> None:
        peer, stream = self.peer, call.stream
        if what in {"frame", "accept"}:
            peer.headers(stream, OK_HEADERS, pieces=1 + amount % 3)
            call.accepted = True
        elif what == "trailers":
            peer.refuse(stream, amount % 17, "words")
            self._over(call, Code(amount % 17))
        elif what == "odd headers":
            odd = {":status": "503"}, {**OK_HEADERS, "content-type": "text/html"}
            peer.headers(stream, odd[amount % 2], end=amount % 3 == 0)
            if amount % 3:
                peer.data(stream, b"<html>no</html>", end=amount % 3 == 1)
            self._over(call, Code.UNAVAILABLE)
        elif what == "reset":
            self.break_with([call], lambda: peer.reset(stream, amount % 14), how=what)
            self._over(call, Code.UNAVAILABLE)

    def _say_more(self, what: str, call: Said, amount: int) -> None:
        peer, stream = self.peer, call.stream
        if what == "frame":
            sizes = (len(call.pending), 0, 1, 5, 9, 100)
            size = min(sizes[amount % len(sizes)], len(call.pending))
            payload, call.pending = bytes(call.pending[:size]), call.pending[size:]
            padding = (None, None, 0, 7, 255)[self.choose("padding", 5)]
            end = self.choose("end", 10) == 0
            peer.data(stream, payload, padding=padding, end=end)
            self._count(call, payload)
            if end:
                self._over(call, Code.INTERNAL)
        elif what == "trailers":
            peer.end(stream, amount % 17, "words")
            self._over(call, Code(amount % 17))
        elif what == "reset":
            self.break_with([call], lambda: peer.reset(stream, amount % 14), how=what)
            self._over(call, Code.UNAVAILABLE)

    def _count(self, call: Said, payload: bytes) -> None:
        if not (call.left or self.gone):
            call.body += payload

    def _over(self, call: Said, code: Code) -> None:
        call.over = True
        if not (call.left or self.gone):
            call.code = code
