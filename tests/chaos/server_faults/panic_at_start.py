"""A lone server ends by itself in its first start, and the next start works.

It creates its own streams as soon as it leads. If Raft does not answer within five seconds, it
steps down, which a server without peers does not survive (server.go `startRaftLeadershipLoop`).
Here it is frozen for that long; a slow disk and a lost answer (`lost_raft_answer.py`) do the same.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .nodes import Nodes, running, soon
from .verdict import show

TRIES = 10
RAFT_TIMEOUT = 5.0
LEADS = "Server became metadata leader"
STEP = 0.001


@contextmanager
def busy_disk() -> Iterator[None]:
    """Write to the disk all the while, so that Raft needs some milliseconds for an entry."""
    done = threading.Event()

    def write() -> None:
        with tempfile.TemporaryFile() as file:
            while not done.is_set():
                file.seek(0)
                file.write(bytes(2**16))
                os.fsync(file.fileno())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def one_try(nodes: Nodes, number: int) -> str:
    """Start without data, and freeze the server just when it has become the leader."""
    with busy_disk():
        nodes.start_anew("n1")
        soon("a leader", lambda: nodes.says("n1", LEADS), poll=STEP)
        time.sleep(number % 5 * STEP)
        nodes.freeze("n1")
    time.sleep(RAFT_TIMEOUT + 1.0)
    nodes.thaw("n1")
    time.sleep(1.0)
    if not nodes.ended_by_itself("n1"):
        return ""
    words = nodes.last_words("n1", ("panic:",))
    nodes.start("n1")
    soon("a server that works", lambda: nodes["n1"].create("stream", 1))
    return f"{words}; the next start works"


if __name__ == "__main__":
    with running(1, {"activity.stream.enabled": "true"}) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
