"""After a kill of a lone server what it had acked cannot be read until something is published.

The high watermark is written to disk every five seconds; after a restart readers are served up to
there, and nobody looks at what the log holds beyond it before the next message comes.
"""

from __future__ import annotations

from .nodes import Nodes, running, soon
from .verdict import show

COUNT = 5
TRIES = 3


def one_try(nodes: Nodes, number: int) -> str:
    """Publish, kill, start, read; publish and read again."""
    stream, server = f"stream-{number}", nodes["n1"]
    server.create(stream, 1)
    for at in range(COUNT):
        server.publish(stream, b"%d" % at)
    nodes.kill("n1")
    nodes.start("n1")
    soon("a leader", lambda: server.partition(stream).newest_offset == COUNT - 1)
    before = len(server.read(stream, COUNT, timeout=1.0))
    soon("an ack", lambda: server.publish(stream, b"next") == COUNT)
    after = len(server.read(stream, COUNT))
    if before == COUNT:
        return ""
    return f"{before} of {COUNT} acked messages could be read, and {after} after the next publish"


if __name__ == "__main__":
    with running(1) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
