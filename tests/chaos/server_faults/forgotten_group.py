"""A coordinator that was restarted knows neither its groups nor their streams for some seconds.

The other nodes know the group all the while, and name the same coordinator.
"""

from __future__ import annotations

import time
from functools import partial

from .nodes import Nodes, running, soon
from .raw import Refused, Server, data_of, decode, encode
from .verdict import show

TRIES = 3
MEMBER = "member"
UNKNOWN = "consumer group does not exist"
PATIENT = {"groups.consumer.timeout": "60s", "groups.coordinator.timeout": "60s"}


def one_try(nodes: Nodes, number: int) -> str:
    """Join a group, kill its coordinator and start it, and ask it for the assignments."""
    stream, group = f"stream-{number}", f"group-{number}"
    if number:
        nodes.heal(f"healthy-{number}")
    first = nodes[nodes.names[0]]
    first.create(stream, len(nodes.names))
    first.call("JoinConsumerGroup", encode((1, group), (2, MEMBER), (3, stream)))
    for name in nodes.names:
        soon("the group", partial(_knows, nodes[name], group))
    coordinator = _coordinator(first, group)
    soon("assignments", lambda: _answer(nodes[coordinator], group) == "")
    other = next(name for name in nodes.names if name != coordinator)
    nodes.kill(coordinator)
    nodes.start(coordinator)
    began = time.monotonic()
    if UNKNOWN not in _answer(nodes[coordinator], group):
        return ""
    named = _coordinator(nodes[other], group)
    soon("assignments again", lambda: _answer(nodes[coordinator], group) == "")
    if named != coordinator:
        return ""
    return f"{coordinator} knew no group for {time.monotonic() - began:.1f} s, and others named it"


def _knows(server: Server, group: str) -> bool:
    return _coordinator(server, group) != ""


def _answer(server: Server, group: str) -> str:
    try:
        server.call("FetchConsumerGroupAssignments", encode((1, group), (2, MEMBER)))
    except Refused as refused:
        return str(refused)
    return ""


def _coordinator(server: Server, group: str) -> str:
    reply = decode(server.call("FetchMetadata", encode((2, group)), timeout=4.0))
    return data_of(decode(data_of(reply, 3)), 3).decode()


if __name__ == "__main__":
    with running(3, PATIENT) as nodes:
        show(lambda number: one_try(nodes, number), TRIES)
