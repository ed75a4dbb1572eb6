"""A message that only the leader had is acked and then gone, though the leader comes back.

This is what an ack of the leader alone means. With a min ISR of 1, the default, it is the same for
acks of all as soon as the leader is the only one in sync.
"""

from __future__ import annotations

from .nodes import Nodes, running, soon
from .raw import ALL, LEADER
from .verdict import show

TRIES = 3


def one_try(nodes: Nodes, number: int) -> str:
    """Publish while the followers are frozen, kill the leader, and let the others go on."""
    seen = [_lost(nodes, f"leader-{number}", LEADER), _lost(nodes, f"all-{number}", ALL)]
    return "; ".join(filter(None, seen))


def _lost(nodes: Nodes, stream: str, policy: int) -> str:
    witness = nodes.names[0]
    nodes[witness].create(stream, len(nodes.names))
    leader = nodes.leader(stream, witness)
    nodes[leader].publish(stream, b"kept")
    followers = nodes.followers(stream, leader)
    nodes.freeze(*followers)
    try:
        # Without a majority nobody leaves the in-sync set, so ALL gets no ack here.
        nodes[leader].publish(stream, b"acked", LEADER)
    finally:
        nodes.kill(leader)
        nodes.thaw(*followers)
    new = nodes.leader(stream, followers[0], old=leader)
    soon("an ack of the new leader", lambda: nodes[new].publish(stream, b"new", policy) >= 0)
    nodes.start(leader)
    soon("the old leader", lambda: nodes[leader].publish(stream, b"healthy") >= 0)
    values = [each.value for each in nodes[new].read(stream, 3)]
    return "" if b"acked" in values else f"offset 1 was acked and is {values[1].decode()!r} now"


if __name__ == "__main__":
    with running(3) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
