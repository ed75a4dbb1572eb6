"""A change of a group was made, but its answer does not come.

The server waits for Raft's answer on a channel that drops what comes before somebody waits
(raft.go `timeoutFuture`), and then answers "raft operation timed out" at the deadline. The faster
the disk and the busier the processor, the sooner it happens.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .nodes import Nodes, running
from .raw import Refused, Server, Value, encode
from .verdict import show

TRIES = 3
SECONDS = 30.0
MEMBERS = 8
TIMEOUT = 1.0
PATIENT = {"groups.consumer.timeout": "60s", "logging.level": "error"}
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
MADE = {
    "JoinConsumerGroup": "already a member",
    "LeaveConsumerGroup": "does not exist",
}
"""The refusal of a repeated change, by its procedure."""


@contextmanager
def busy_processors() -> Iterator[None]:
    """Keep each processor busy with two other processes."""
    busy = (sys.executable, "-c", "while True: pass")
    loops = [subprocess.Popen(busy) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def one_try(nodes: Nodes, number: int) -> str:
    """Let members join groups of their own and leave again, side by side."""
    stream, server = f"stream-{number}", nodes["n1"]
    server.create(stream, 1)
    end, seen = time.monotonic() + SECONDS, list[str]()
    with busy_processors(), ThreadPoolExecutor(MEMBERS) as pool:
        groups = [f"group-{number}-{member}" for member in range(MEMBERS)]
        list(pool.map(partial(_come_and_go, server, stream, end, seen), groups))
    return seen[0] if seen else ""


def _come_and_go(server: Server, stream: str, end: float, seen: list[str], group: str) -> None:
    count = 0
    while time.monotonic() < end and not seen:
        for procedure, made in MADE.items():
            fields: list[tuple[int, Value]] = [(1, group), (2, "member")]
            if procedure == "JoinConsumerGroup":
                fields.append((3, stream))
            count += 1
            try:
                server.call(procedure, encode(*fields), TIMEOUT)
            except Refused as refused:
                again = _repeated(server, procedure, encode(*fields))
                if made in again:
                    seen.append(f"change {count}, {procedure}: {refused}; repeated: {again}")


def _repeated(server: Server, procedure: str, request: bytes) -> str:
    try:
        server.call(procedure, request, TIMEOUT)
    except Refused as refused:
        return str(refused)
    return ""


if __name__ == "__main__":
    with running(1, PATIENT, data=MEMORY if MEMORY.is_dir() else None) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
