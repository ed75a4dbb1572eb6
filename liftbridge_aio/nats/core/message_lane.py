"""Takes messages of chosen subjects out of the bytes from NATS, before nats-py reads them.

nats-py spends as much on a message as all else that is done with it. What the lane does not take
goes on unchanged, in order, and frame by frame: errors, pings, other messages and those with
headers, which NATS sends where nobody listens on the subject of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

_END: Final = b"\r\n"
_MESSAGE: Final = b"MSG "
_WITH_HEADERS: Final = b"HMSG "
_LONGEST_LINE: Final = 4096
"""As long as nats-py takes a line to be; a longer one is passed on, to be refused there."""
_TOO_MANY_DIGITS: Final = 20

Taker: TypeAlias = Callable[[list[bytes]], None]
"""Takes the payloads of messages that came together, in order; must not raise."""


class MessageLane:
    """The lane of one connection at a time."""

    # State: `_held` are bytes of a frame that has not come in full, `_missing` how many more of
    # them are known to be needed, so that a large message is put together once.

    def __init__(self) -> None:
        self.takers: dict[bytes, Taker] = {}
        """By subject."""
        self._held: list[bytes] = []
        self._missing = 0

    def reset(self) -> None:
        """Begin with the first frame of another connection."""
        self._held.clear()
        self._missing = 0

    def feed(self, data: bytes) -> bytes:
        """Take what is the lane's, call the takers, and return the rest."""
        if self._held:
            self._held.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return b""
            data = b"".join(self._held)
            self._held.clear()
        passed: list[bytes] = []
        taken: dict[Taker, list[bytes]] = {}
        begin = self._split(data, passed, taken)
        if begin < len(data):
            self._held.append(data[begin:])
        for taker, payloads in taken.items():
            taker(payloads)
        return b"".join(passed)

    def _split(self, data: bytes, passed: list[bytes], taken: dict[Taker, list[bytes]]) -> int:
        """Read all frames that are complete; return where the first other one begins."""
        takers = self.takers
        position = keep_from = 0
        while (line_end := data.find(_END, position)) >= 0:
            is_message = data.startswith(_MESSAGE, position)
            end = line_end + 2
            if is_message or data.startswith(_WITH_HEADERS, position):
                line = data[position:line_end].split()
                if line[-1].isdigit() and len(line[-1]) < _TOO_MANY_DIGITS:  # else it is refused
                    end += int(line[-1]) + 2
                    if end > len(data):
                        break
                    if is_message and (taker := takers.get(line[1])) is not None:
                        taken.setdefault(taker, []).append(data[line_end + 2 : end - 2])
                        passed.append(data[keep_from:position])
                        keep_from = end
            position = end
        if line_end < 0:
            self._missing = 1
            if len(data) - position > _LONGEST_LINE:
                position = len(data)  # it is no frame
        else:
            self._missing = end - len(data)
        passed.append(data[keep_from:position])
        return position


def publish_command(subject: str, payload: bytes, reply: str) -> bytes:
    """Return the bytes that publish a message; its parts must have been checked."""
    head = f"PUB {subject} {reply} {len(payload)}" if reply else f"PUB {subject} {len(payload)}"
    return b"".join((head.encode(), _END, payload, _END))
