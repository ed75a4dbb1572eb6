"""Takes messages of chosen subjects out of the bytes from NATS, before nats-py reads them.

nats-py spends as much on a message as all else that is done with it. What the lane does not take
goes on unchanged, in order, and frame by frame: errors, pings, other messages and those with
headers, which NATS sends where nobody listens on the subject of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

_END: Final = b"\r\n"
_MESSAGE: Final = b"MSG "
_WITH_HEADERS: Final = b"HMSG "
_LONGEST_LINE: Final = 4096
"""As long as nats-py takes a line to be; a longer one is passed on, to be refused there."""
_TOO_MANY_DIGITS: Final = 20
_MOST_LINES: Final = 1024

Taker: TypeAlias = Callable[[list[bytes]], None]
"""Takes the payloads of messages that came together, in order; must not raise."""


class MessageLane:
    """The lane of one connection at a time."""

    # State: `_held` are bytes of a frame that has not come in full, `_missing` how many more of
    # them are known to be needed, so that a large message is put together once.

    def __init__(self) -> None:
        self.takers: dict[bytes, Taker] = {}
        """By subject."""
        self._lines: dict[bytes, tuple[int, bytes]] = {}
        """Results of `_read_line`: most frames begin as one before."""
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
            if payloads:
                taker(payloads)
        return b"".join(passed)

    def _split(self, data: bytes, passed: list[bytes], taken: dict[Taker, list[bytes]]) -> int:
        """Read all frames that are complete; return where the first other one begins."""
        lines, takers = self._lines, self.takers
        position = keep_from = 0
        last, payloads = b"", None
        while (line_end := data.find(_END, position)) >= 0:
            line = data[position:line_end]
            size, subject = lines.get(line) or self._read_line(line)
            end = line_end + size
            if end > len(data):
                break
            if subject != last:
                last, taker = subject, takers.get(subject)
                payloads = taken.setdefault(taker, []) if taker is not None else None
            if payloads is not None:
                payloads.append(data[line_end + 2 : end - 2])
                if keep_from < position:
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

    def _read_line(self, line: bytes) -> tuple[int, bytes]:
        """Return the bytes from the end of a line to that of its frame, and whose message it is.

        There is no subject where nobody may take the frame.
        """
        if not line.startswith((_MESSAGE, _WITH_HEADERS)):
            return len(_END), b""
        words = line.split()
        if not words[-1].isdigit() or len(words[-1]) >= _TOO_MANY_DIGITS:
            return len(_END), b""  # nats-py refuses it
        size = 2 * len(_END) + int(words[-1])
        found = size, words[1] if line.startswith(_MESSAGE) else b""
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        self._lines[line] = found
        return found


def publish_head(subject: str, reply: str = "") -> bytes:
    """Return how commands begin that publish to a subject, which must have been checked."""
    return f"PUB {subject} {reply} ".encode() if reply else f"PUB {subject} ".encode()


def parse_publish_head(head: bytes) -> tuple[str, str]:
    """Return the subject and the reply subject, which may be empty."""
    _, subject, *reply = head.decode().split()
    return subject, "".join(reply)


def publish_commands(head: bytes, payloads: Sequence[bytes]) -> bytes:
    """Return the bytes that publish messages to the subject of a head."""
    size = len(payloads[0])
    if len(payloads) == 1:
        return b"".join((_line(head, size), payloads[0], _END))
    if all(len(each) == size for each in payloads):
        line = _line(head, size)
        return b"".join((line, (_END + line).join(payloads), _END))
    return b"".join([b"%b%b\r\n" % (_line(head, len(each)), each) for each in payloads])


@lru_cache(maxsize=_MOST_LINES)
def _line(head: bytes, size: int) -> bytes:
    return b"%b%d\r\n" % (head, size)
