"""Readers of Server-Sent Events that cost next to nothing: sockets whose bytes are counted.

Arguments: port, path with its query, number of readers, the text that ends a reading. One line is
written once all have been sent a control event, and another, with the bytes of all since then and
the processor time of this process for them, once all have been sent the end.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import sys
from collections.abc import Iterator
from typing import Final

_BUFFER: Final = bytearray(1 << 20)
_OVERLAP: Final = 200
"""Bytes of a control event, and of the end, that are sought where chunks meet."""


def read(port: int, path: str, readers: int, end: bytes) -> None:
    """Read until all have been sent the end, and write what it took."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    sockets: dict[int, socket.socket] = {}
    with select.epoll() as poll:
        for _ in range(readers):
            opened = socket.create_connection(("127.0.0.1", port))
            opened.sendall(request)
            opened.settimeout(0)
            sockets[opened.fileno()] = opened
            poll.register(opened, select.EPOLLIN)
        for _ in _chunks(poll, sockets, b"streamNextOffset"):
            pass
        print(json.dumps({"readers": readers}), flush=True)
        before = _processor_time()
        received = sum(_chunks(poll, sockets, end))
    print(json.dumps({"received": received, "cpu": _processor_time() - before}), flush=True)


def _chunks(poll: select.epoll, sockets: dict[int, socket.socket], wanted: bytes) -> Iterator[int]:
    """Yield the sizes of chunks, until something wanted was in those of all sockets."""
    waiting, rests = set(sockets), dict.fromkeys(sockets, b"")
    view = memoryview(_BUFFER)
    while waiting:
        for number, _ in poll.poll():
            size = sockets[number].recv_into(view)
            if not size:
                raise EOFError
            yield size
            tail = rests[number] + bytes(view[max(0, size - _OVERLAP) : size])
            if wanted in tail:
                waiting.discard(number)
            rests[number] = tail[-_OVERLAP:]


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    read(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].encode())
