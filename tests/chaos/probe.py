"""The independent witness: talks to the nodes past the proxies, with grpcio and bytes made by hand.

It is a program of its own and imports nothing of the client that is tested, nor of the tests but
`probe_calls` and `server_faults/raw`. It reads one JSON object a line, does what it says, and
answers with one line; see `COMMANDS`. Times are those of the machine's monotonic clock, which all
its processes share.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

import grpc

from chaos.probe_calls import FAILURES, Nodes
from chaos.server_faults.raw import ALL, Fields, data_of, decode, encode, number

CURSORS: Final = "__cursors"
EMPTY: Final = "empty"
PAUSE: Final = 0.05

Json = dict[str, Any]


def first_acks(request: Json) -> Json:
    """Publish to each partition with ack ALL until there is an ack, and store a raw cursor.

    Request: `nodes` (address by id), `targets` ([stream, partition]), `cursors` (how many
    partitions `__cursors` has), `prefix` of the numbers, `within` seconds. Keys and values are like
    those of the programs that publish orders: `0.w` and `0.w/7-0`.

    Reply: `acked_at` of the last of the first acks, or None; `sends` as [stream, partition, value,
    acked or not]; `missing` in words.
    """
    until = time.monotonic() + request["within"]
    targets = [(stream, partition) for stream, partition in request["targets"]]
    cursors = list(range(request["cursors"]))
    with ThreadPoolExecutor(len(targets) + len(cursors) or 1) as threads:
        acks = [
            threads.submit(_first_ack, request["nodes"], target, request["prefix"], until)
            for target in targets
        ]
        stored = [
            threads.submit(_first_cursor, request["nodes"], each, len(cursors), until)
            for each in cursors
        ]
    times, sends, missing = [], [], []
    for target, ack in zip(targets, acks, strict=True):
        at, tries = ack.result()
        sends += [[*target, value, acked] for value, acked in tries]
        times.append(at)
        if at is None:
            missing.append(f"no ack of {target[0]}/{target[1]}")
    for partition, each in zip(cursors, stored, strict=True):
        at = each.result()
        times.append(at)
        if at is None:
            missing.append(f"no cursor in {CURSORS}/{partition}")
    return {
        "acked_at": None if missing else max(each for each in times if each is not None),
        "sends": sends,
        "missing": ", ".join(missing),
    }


def _first_ack(
    addresses: Mapping[str, str], target: tuple[str, int], prefix: str, until: float
) -> tuple[float | None, list[tuple[str, bool]]]:
    nodes = Nodes(addresses)
    tries: list[tuple[str, bool]] = []
    try:
        while time.monotonic() < until:
            for node in addresses:
                key = f"{target[1]}.w"
                value = f"{key}/{prefix}-{len(tries)}"
                request = encode(
                    *((1, key), (2, value), (3, target[0]), (4, target[1])),
                    *((7, value), (8, ALL), (9, -1)),
                )
                tries.append((value, False))
                with suppress(*FAILURES):
                    reply = decode(nodes.ask(node, "Publish", request))
                    if number(decode(reply[1][-1]), 10) == 0:
                        tries[-1] = (value, True)
                        return time.monotonic(), tries
            time.sleep(PAUSE)
    finally:
        nodes.close()
    return None, tries


def _first_cursor(
    addresses: Mapping[str, str], partition: int, partitions: int, until: float
) -> float | None:
    cursor = next(
        name
        for name in (f"raw-{number}" for number in range(1000))
        if zlib.crc32(f"{name},raw,0".encode()) % partitions == partition
    )
    nodes = Nodes(addresses)
    position = time.monotonic_ns() // 1_000_000
    try:
        while time.monotonic() < until:
            for node in addresses:
                with suppress(*FAILURES):
                    request = encode((1, "raw"), (3, cursor), (4, position))
                    nodes.ask(node, "SetCursor", request)
                    return time.monotonic()
            time.sleep(PAUSE)
    finally:
        nodes.close()
    return None


def wait_whole(request: Json) -> Json:
    """Wait until all nodes agree, all replicas are in sync and have what the leaders had.

    Request: `nodes`, `advertised` (address by id that the nodes shall tell), `streams` that there
    are at least, `within` seconds. Reply: `whole_at` or None, `lacking` in words.
    """
    nodes = Nodes(request["nodes"])
    until = time.monotonic() + request["within"]
    lacking = "never asked"
    ends: dict[tuple[str, int], int] = {}
    try:
        while time.monotonic() < until:
            try:
                views = _views(nodes)
            except FAILURES as error:
                lacking = f"a node gives no metadata: {type(error).__name__}"
            else:
                found = _lacking(views, request)
                if found is None:
                    behind = _behind(views, ends)
                    if behind is None:
                        return {"whole_at": time.monotonic(), "lacking": ""}
                    found = behind
                lacking = found
            time.sleep(PAUSE)
    finally:
        nodes.close()
    return {"whole_at": None, "lacking": lacking}


def _views(nodes: Nodes) -> dict[str, Fields]:
    with ThreadPoolExecutor(len(nodes.addresses)) as threads:
        return dict(zip(nodes.addresses, threads.map(nodes.metadata, nodes.addresses), strict=True))


def _partitions(view: Fields) -> Iterator[tuple[str, int, Fields]]:
    for raw in view.get(2, []):
        stream = decode(raw)
        for entry in stream.get(4, []):
            partition = decode(data_of(decode(entry), 2))
            yield data_of(stream, 1).decode(), number(partition, 1), partition


def _lacking(views: Mapping[str, Fields], request: Json) -> str | None:
    advertised: Mapping[str, str] = request["advertised"]
    by_node = {
        node: {(stream, partition): state for stream, partition, state in _partitions(view)}
        for node, view in views.items()
    }
    wanted = {place for states in by_node.values() for place in states}
    if missing := {*request["streams"], CURSORS} - {stream for stream, _ in wanted}:
        return f"no node knows {sorted(missing)}"
    leaders: dict[tuple[str, int], bytes] = {}
    for node, states in by_node.items():
        brokers = {
            data_of(each, 1).decode(): f"{data_of(each, 2).decode()}:{number(each, 3)}"
            for each in map(decode, views[node].get(1, []))
        }
        for other, address in advertised.items():
            if brokers.get(other) != address:
                return f"{node} says that {other} is at {brokers.get(other)}"
        if unknown := wanted - states.keys():
            return f"{node} does not know {sorted(unknown)}"
        for place, state in states.items():
            if {*state.get(3, [])} != {*state.get(4, [])}:
                return f"{node} says that not all replicas of {place} are in sync"
            leader = data_of(state, 2)
            if leaders.setdefault(place, leader) != leader:
                return f"nodes disagree on who leads {place}"
    return None


def _behind(views: Mapping[str, Fields], ends: dict[tuple[str, int], int]) -> str | None:
    """Return which replica lacks a commit of the log that all had when first in sync."""
    if not ends:
        for view in views.values():
            for stream, partition, state in _partitions(view):
                place = (stream, partition)
                ends[place] = max(ends.get(place, -1), number(state, 6))
        return "replicas were in sync only once"
    for node, view in views.items():
        for stream, partition, state in _partitions(view):
            end = ends.get((stream, partition), -1)
            if node.encode() in state.get(3, []) and number(state, 5) < end:
                return f"{node} has committed {number(state, 5)} of {end} in {stream}/{partition}"
    return None


def read_logs(request: Json) -> Json:
    """All that is committed, as the leaders have it; not of cursors, which servers compact.

    Request: `nodes`, `since` as [stream, partition, offset to begin at].

    Reply: `logs` as [stream, partition, messages as [offset, value in Base64]]; `unread` in words.
    """
    since = {(stream, partition): offset for stream, partition, offset in request["since"]}
    nodes = Nodes(request["nodes"])
    logs, unread = [], []
    try:
        view = next(filter(None, map(partial(_view, nodes), nodes.addresses)), Fields())
        for stream, partition, state in _partitions(view):
            if stream == CURSORS:
                continue
            begin, node = since.get((stream, partition), 0), data_of(state, 2).decode()
            try:
                messages = _log(nodes, node, stream, partition, begin)
            except FAILURES as error:
                unread.append(f"{stream}/{partition} at {node}: {error!r}")
            else:
                logs.append([stream, partition, messages])
    finally:
        nodes.close()
    return {"logs": logs, "unread": ", ".join(unread) or ("" if logs else "no metadata")}


def _view(nodes: Nodes, node: str) -> Fields | None:
    with suppress(*FAILURES):
        return nodes.metadata(node)
    return None


def _log(nodes: Nodes, node: str, stream: str, partition: int, begin: int) -> list[tuple[int, str]]:
    # OFFSET to LATEST, from this node's own log, whoever leads.
    start = encode((1, stream), (2, partition), (3, 1), (4, begin), (6, 1), (8, 2))
    found = []
    try:
        for data in nodes.messages(node, start):
            fields = decode(data)
            found.append((number(fields, 1), base64.b64encode(data_of(fields, 3)).decode()))
    except grpc.RpcError as error:
        # Its orderly end, and what it says of a log without messages.
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED and EMPTY not in error.details():
            raise
    return found


COMMANDS: Final[Mapping[str, Callable[[Json], Json]]] = {
    "first_acks": first_acks,
    "wait_whole": wait_whole,
    "read_logs": read_logs,
}


def main() -> None:
    """Do what comes on the standard input until it ends."""
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.write(json.dumps(COMMANDS[request["do"]](request)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
