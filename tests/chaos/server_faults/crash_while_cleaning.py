"""The server ends as a process when its cleaner and a publish begin a segment at the same moment.

Both make the files of the same name; who comes second removes them, and cuts the index that the
other has in memory (commitlog.go `split`, index.go `Close`). A write to it is a SIGBUS.
"""

from __future__ import annotations

import time

from .nodes import Nodes, running, soon
from .raw import LEADER, Refused, encode
from .verdict import show

SECONDS = 12.0
TRIES = 3


def one_try(nodes: Nodes, number: int) -> str:
    """Publish to a stream of tiny segments whose cleaner never rests."""
    stream, server = f"stream-{number}", nodes["n1"]
    limits = ((7, 100), (9, 1), (10, 200))  # messages, interval in ms, bytes of a segment
    fields = b"".join(encode((key, encode((1, value)))) for key, value in limits)
    soon("a leader", lambda: server.create(stream, 1, fields))
    began, count = time.monotonic(), 0
    while time.monotonic() < began + SECONDS and not nodes.ended_by_itself("n1"):
        try:
            server.publish(stream, bytes(100), LEADER, timeout=1.0)
            count += 1
        except Refused:
            continue
    if not nodes.ended_by_itself("n1"):
        return ""
    words = nodes.last_words("n1", ("unexpected fault", "panic:", "fatal error"))
    nodes.start("n1")
    return f"gone after {count} messages in {time.monotonic() - began:.1f} s: {words}"


if __name__ == "__main__":
    with running(1) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
