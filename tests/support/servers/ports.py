"""Ports for servers of the tests."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import IO, Final

_FIRST: Final = 12_000
_PER_SLOT: Final = 1_250
_SLOTS: Final = 16
"""Below the ports that systems give to outgoing connections, which would take one meanwhile."""
_lock: Final = threading.Lock()
_given: Final[set[int]] = set()
_random: Final = random.Random()


def free_ports(count: int) -> list[int]:
    """So many different ports of 127.0.0.1 that nobody listens on.

    None is given twice, as a server takes a while to listen; and each process that asks has ports
    of its own.
    """
    slot, _ = _claim_slot()
    ports = range(_FIRST + slot * _PER_SLOT, _FIRST + (slot + 1) * _PER_SLOT)
    found: list[int] = []
    with _lock:
        if len(_given) > _PER_SLOT // 2:
            _given.clear()  # those that were given long ago
        while len(found) < count:
            port = _random.choice(ports)
            if port not in _given and _is_free(port):
                _given.add(port)
                found.append(port)
    return found


@cache
def _claim_slot() -> tuple[int, IO[str] | None]:
    """Claim ports for as long as this process runs, by the lock of a file that it holds open."""
    for slot in range(_SLOTS):
        file = Path(tempfile.gettempdir(), f"liftbridge-aio-ports-{slot}").open("w")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            return slot, file
    return os.getpid() % _SLOTS, None


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
