"""Groups, and what is built on the client: server-sent events and the command line."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from unittest import mock

from liftbridge_aio import (
    ConnectionFailed,
    ConsumerGroup,
    EndReason,
    Message,
    NotGroupMember,
    PartitionPaused,
    RequestTimeout,
    StartAt,
)
from liftbridge_aio.cli import app
from liftbridge_aio.integrations.event_stream import EventStream, Write
from liftbridge_aio.integrations.service import Service
from matrix.cells import ALL, GOES_ON, NOTHING, PARTITIONS, PROBE, Cell, On, Place, ended
from matrix.operations import operation

GROUPS: Final = "Groups"
BUILT_ON: Final = "Web and command line"
EARLIEST: Final = StartAt.earliest()

POSITION: Final = 2
"""Position that the group of a stream has stored for each partition before the state arises."""


def group_of(place: Place) -> str:
    """The group that has read a stream before."""
    return f"readers-of-{place.stream}"


# Groups

SILENCE: Final = 1.0
"""Seconds without a message after which a group waits for what is to come."""


Places = dict[tuple[int, int], bytes]
"""The values of messages by partition and offset."""


def to_read(cell: Cell, start: Mapping[int, int]) -> Places:
    """Return the messages that the log holds from the start on."""
    return {
        (partition, at): value
        for partition, first in start.items()
        for at, value in cell.place.logs.get(partition, {}).items()
        if at >= first
    }


def last_to_read(cell: Cell) -> Places:
    """Return the last message of each partition, as earlier ones may be compacted by then."""
    return to_read(cell, {partition: end - 1 for partition, end in cell.place.ends.items()})


@dataclass(slots=True)
class Member:
    """A member of a group and what it has been handed, once or, after a break, again."""

    group: ConsumerGroup
    found: Places = field(default_factory=dict)
    probed: set[int] = field(default_factory=set)

    async def next(self) -> Message:
        """Read the next message."""
        return await anext(self.group)

    async def take(self) -> Message:
        """Take the next message."""
        message = await self.next()
        if message.value == PROBE:
            self.probed.add(message.partition)
        else:
            self.found[message.partition, message.offset] = message.value
        return message

    async def take_all(self, wanted: Places) -> str:
        """Read until each of these has come."""
        while not wanted.keys() <= self.found.keys():
            await self.take()
        wrong = {place: self.found[place] for place in wanted if self.found[place] != wanted[place]}
        if wrong:
            return f"read {wrong}"
        return ALL if wanted else NOTHING

    async def share(self, cell: Cell, start: Mapping[int, int]) -> str:
        """Read what the log holds from the start on, and what is published; then a group waits."""
        async with cell.probing(cell.place.logs) as probing:
            result = await self.take_all(to_read(cell, start))
            probes = await probing
            while len(self.probed) < probes:
                await self.take()
        if result not in {ALL, NOTHING}:
            return result
        if probes and probes == len(cell.place.logs):
            return GOES_ON
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE if cell.place.logs else None):
                return f"{result}, then {await self.take()}"
        return f"{result}, waits"


class HandlingMember(Member):
    """A member that is handed messages by `run`."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run a handler meanwhile."""
        self.handed = asyncio.Queue[Message]()
        self.run = asyncio.create_task(self.hand_on())
        try:
            yield
        finally:
            self.run.cancel()
            await asyncio.wait([self.run])

    async def hand_on(self) -> None:
        """Hand on each message that the handler is called with."""
        await self.group.run(self.handed.put, concurrency=2)

    async def next(self) -> Message:
        taking = asyncio.create_task(self.handed.get())
        try:
            await asyncio.wait([taking, self.run], return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                await self.run
                raise AssertionError("the run has ended")
            return taking.result()
        finally:
            taking.cancel()


@asynccontextmanager
async def member(cell: Cell, group_id: str, *, unpause: bool = False) -> AsyncIterator[Member]:
    """Be a member; who leaves where servers are away, or was expelled, cannot commit any more."""
    group = cell.user.group(group_id, [cell.stream], start=EARLIEST, unpause=unpause)
    await group.__aenter__()
    try:
        yield Member(group)
    finally:
        with suppress(NotGroupMember, ConnectionFailed, RequestTimeout):
            await group.aclose()


@operation(GROUPS, "a group begins")
async def begin_group(cell: Cell) -> str:
    async with member(cell, f"{cell.stream}-new") as one:
        return await one.share(cell, dict.fromkeys(cell.place.logs, 0))


async def go_on_in_group(cell: Cell, *, unpause: bool = False) -> str:
    async with member(cell, f"{cell.stream}-old", unpause=unpause) as one:
        cell.begun.set()
        ends = dict(cell.place.ends)
        wanted = last_to_read(cell)
        while not wanted.keys() <= one.found.keys():
            message = await one.take()
            with suppress(NotGroupMember):
                await one.group.commit(message)
        await cell.until_arisen()
        return await one.share(cell, ends)


operation(GROUPS, "a group in the middle", midway=True)(go_on_in_group)
operation(GROUPS, "in the middle, unpause=True", midway=True)(partial(go_on_in_group, unpause=True))


@operation(GROUPS, "group run in the middle", midway=True)
async def run_group(cell: Cell) -> str:
    async with member(cell, f"{cell.stream}-run") as one:
        handling = HandlingMember(one.group)
        async with handling.running():
            cell.begun.set()
            ends = dict(cell.place.ends)
            await handling.take_all(last_to_read(cell))
            await cell.until_arisen()
            return await handling.share(cell, ends)


@operation(GROUPS, "a group takes over")
async def take_over_group(cell: Cell) -> str:
    """Begin behind the positions that another member has stored."""
    async with member(cell, group_of(cell.place)) as one:
        start = {p: POSITION + 1 if p in PARTITIONS else 0 for p in cell.place.logs}
        return await one.share(cell, start)


async def read_backlog(cell: Cell, *, unpause: bool = False) -> str:
    """Read what is there while nobody publishes, or see what blocks it."""
    wanted = to_read(cell, dict.fromkeys(cell.place.logs, 0))
    async with member(cell, f"{cell.stream}-late", unpause=unpause) as one:
        reading = asyncio.create_task(one.take_all(wanted))
        try:
            while not reading.done():
                for error in one.group.blocked.values():
                    if isinstance(error, PartitionPaused) and not unpause:
                        return f"blocked by {type(error).__name__}"
                await asyncio.wait([reading], timeout=0.05)
            return await reading
        finally:
            reading.cancel()


operation(GROUPS, "a backlog", on=On.SHARED)(read_backlog)
operation(GROUPS, "a backlog, unpause=True")(partial(read_backlog, unpause=True))


# Server-sent events


@operation(BUILT_ON, "server-sent events")
async def send_events(cell: Cell) -> str:
    """Serve a browser that begins at the earliest message, until the probe has come."""
    sent, here = bytearray(), asyncio.Event()
    statuses: list[int] = []

    async def write(data: bytes) -> None:
        sent.extend(data)
        if PROBE in sent:
            here.set()

    async with AsyncExitStack() as stack:

        async def begin(status: int) -> Write:
            statuses.append(status)
            await stack.enter_async_context(cell.probing([0]))
            return write

        events = EventStream(cell.stream, None, partition=0, start=EARLIEST)
        await events.serve(Service(cell.user), begin, here.wait)
    if statuses != [200]:
        return f"status {statuses[0]}"
    blocks = [_fields(block) for block in sent.decode().split("\n\n")]
    told = [block for block in blocks if "data" in block]
    offsets = [
        int(block["id"].partition("@")[0])
        for block in told
        if block.get("event") in {None, "binary"}
    ]
    kept = sorted(cell.place.logs.get(0, {}))
    last = told[-1] if told else {}
    if last.get("event") == "failure":
        return f"failure {json.loads(last['data'])['error']}"
    if last.get("event") == "end":
        reason = EndReason(last["data"])
        return ended(ALL, reason) if offsets == kept else f"told {offsets} instead of {kept}"
    goes_on = offsets[: len(kept)] == kept and len(offsets) > len(kept)
    return GOES_ON if goes_on else f"told {offsets} instead of {kept} and the probe"


def _fields(block: str) -> dict[str, str]:
    lines = [line.partition(": ") for line in block.splitlines() if ": " in line]
    return {name: value for name, _, value in lines}


# Commands

_output: ContextVar[io.StringIO] = ContextVar("_output")


class _OutputOfTask(io.StringIO):
    """Takes what is printed to where the task that prints it wants it, or nowhere."""

    def write(self, text: str) -> int:
        out = _output.get(None)
        return len(text) if out is None else out.write(text)


@contextmanager
def output_by_task() -> Iterator[None]:
    """Let commands that run side by side print apart."""
    with mock.patch("sys.stdout", _OutputOfTask()), mock.patch("sys.stderr", io.StringIO()):
        yield


async def command(cell: Cell, *words: str, out: io.StringIO | None = None) -> list[Any]:
    """Run a command with --json in this event loop and return what it printed."""
    servers = ",".join(cell.stage.world.addresses)
    flags = ("--json", "--servers", servers, "--timeout", f"{cell.user.options.call_timeout}s")
    function, bound, _ = app.parse_args([*words, *flags])
    out = io.StringIO() if out is None else out

    async def run() -> None:
        _output.set(out)
        await inspect.unwrap(function)(*bound.args, **bound.kwargs)

    await asyncio.create_task(run())
    return [json.loads(line) for line in out.getvalue().split("\n") if line]


def tailed(cell: Cell, lines: list[dict[str, Any]]) -> str:
    """Say whether a command showed just what the log holds."""
    found = sorted((line["partition"], line["offset"]) for line in lines)
    wanted = sorted((partition, at) for partition, log in cell.place.logs.items() for at in log)
    if found != wanted:
        return f"shown {found} instead of {wanted}"
    return ALL if wanted else NOTHING


@operation(BUILT_ON, "tail --no-follow", on=On.SHARED)
async def tail(cell: Cell) -> str:
    lines = await command(cell, "tail", cell.stream, "--from", "earliest", "--no-follow")
    return tailed(cell, lines)


@operation(BUILT_ON, "tail")
async def tail_and_follow(cell: Cell) -> str:
    kept = sum(map(len, cell.place.logs.values()))
    out = io.StringIO()

    async def probe() -> None:
        while out.getvalue().count("\n") < kept:  # noqa: ASYNC110 - text has no event
            await asyncio.sleep(0.01)
        await cell.probe(cell.place.logs)

    probing = asyncio.create_task(probe())
    try:
        count = str(kept + max(len(cell.place.logs), 1))
        words = ("tail", cell.stream, "--from", "earliest", "--count", count)
        lines = await command(cell, *words, out=out)
    finally:
        probing.cancel()
    probes = [line for line in lines if line.get("value") == PROBE.decode()]
    result = tailed(cell, [line for line in lines if line not in probes])
    if result in {ALL, NOTHING} and len(probes) == len(cell.place.logs):
        return GOES_ON
    return result


@operation(BUILT_ON, "tail of the last", on=On.SHARED)
async def tail_last(cell: Cell) -> str:
    words = ("tail", cell.stream, "--from", "last:100", "--no-follow")
    return tailed(cell, await command(cell, *words))


@operation(BUILT_ON, "groups show", on=On.SHARED)
async def show_group(cell: Cell) -> str:
    [[group]] = await command(cell, "groups", "show", group_of(cell.place), "--stream", cell.stream)
    shown = {
        (one["partition"], one["position"], one["lag"])
        for one in group["positions"]
        if one["stream"] == cell.stream
    }
    partitions = {partition for partition, _, _ in shown}
    if partitions != set(cell.place.logs):
        return f"partitions {sorted(partitions)}"
    lags = {f"lag {lag} from {position}" for _, position, lag in shown}
    return ", ".join(sorted(lags))
