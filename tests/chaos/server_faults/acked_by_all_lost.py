"""Messages that were acked by all replicas are gone after two of three nodes were killed.

A node that starts and finds no leader for a partition cuts its log to the high watermark that it
last wrote to disk, which it does every five seconds. It stays in the in-sync set meanwhile, so it
can be chosen to lead, and then the third node, which was never touched, cuts off the same.
"""

from __future__ import annotations

import itertools

from .nodes import Nodes, running, soon
from .verdict import show

COUNT = 20
TRIES = 6


def one_try(nodes: Nodes, number: int) -> str:
    """Publish with acks of all, kill the leader and a follower, and start the follower first."""
    stream, witness = f"stream-{number}", nodes.names[0]
    if number:
        nodes.heal(f"healthy-{number}")
    nodes[witness].create(stream, len(nodes.names))
    leader = nodes.leader(stream, witness)
    acked = {}
    for at in range(COUNT):
        value = f"{stream}-{at}".encode()
        acked[nodes[leader].publish(stream, value)] = value
    follower, survivor = nodes.followers(stream, leader)
    nodes.kill(leader, follower)
    nodes.start(follower)
    new = nodes.leader(stream, survivor, old=leader)
    ways = itertools.cycle((survivor, follower))
    soon("an ack", lambda: nodes[next(ways)].publish(stream, b"after", timeout=1.0) >= 0, 40.0)
    found = {each.offset: each.value for each in nodes[new].read(stream, COUNT)}
    lost = [offset for offset, value in acked.items() if found.get(offset) != value]
    return f"{len(lost)} of {COUNT} messages acked by all are gone" if lost else ""


if __name__ == "__main__":
    with running(3) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
