"""Ports for servers of the tests."""

from __future__ import annotations

import os
import random
import socket
import threading
from functools import cache
from typing import Final

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
    slot = _claim_slot()
    ports = range(1 + _FIRST + slot * _PER_SLOT, _FIRST + (slot + 1) * _PER_SLOT)
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
def _claim_slot() -> int:
    """Claim ports for as long as this process runs, by the first of them, which it then holds."""
    for slot in range(_SLOTS):
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", _FIRST + slot * _PER_SLOT))
        except OSError:
            claim.close()
        else:
            claim.detach()  # and so never closed
            return slot
    return os.getpid() % _SLOTS


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Return True if somebody listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
