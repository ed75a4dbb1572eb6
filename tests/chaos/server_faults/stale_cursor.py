"""A cursor that was stored reads as an older one, or as none, after its leader has died.

The new leader looks through its log up to its own high watermark, which may lag behind what was
committed, and keeps what it found until the next time that the cursor is stored.
"""

from __future__ import annotations

from .nodes import Nodes, NotInTime, running, soon
from .raw import Refused
from .verdict import show, tell

STREAM = "probe"
TRIES = 5


def one_try(nodes: Nodes, number: int) -> str:
    """Store a cursor, kill the leader at once, and ask the next one, twice."""
    cursor = f"cursor-{number}"
    leader = nodes.leader("__cursors", nodes.names[0])
    for position in range(1, 6):
        nodes[leader].set_cursor(cursor, STREAM, position)
    others = [name for name in nodes.names if name != leader]
    nodes.kill(leader)
    new = nodes.leader("__cursors", others[0], old=leader)
    answers: list[int] = []

    def answered() -> bool:
        answers.append(nodes[new].fetch_cursor(cursor, STREAM))
        return True

    soon("an answer", answered)
    soon("the same answer later", answered)
    nodes.start(leader)
    try:
        soon("all in sync", lambda: len(nodes[new].partition("__cursors").isr) == len(nodes.names))
        answers.append(nodes[new].fetch_cursor(cursor, STREAM))
    except (NotInTime, Refused) as error:
        tell(f"later: {error}")
    stale = [answer for answer in answers if answer != position]
    return f"stored {position}, read as {answers}, also when all was well again" if stale else ""


if __name__ == "__main__":
    with running(3) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
