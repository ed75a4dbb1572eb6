"""Members of a consumer group: in Go, in Python, in this process or in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from liftbridge_aio import Client, StartAt
from liftbridge_aio.wire import proto
from support.groups.group_history import Commit, Handled, History, Place, Sent, Share
from support.groups.python_member import take_part

HERE: Final = Path(__file__).resolve().parent
CURSORS: Final = "__cursors"
JOIN_TIMEOUT: Final = 30.0
LEAVE_TIMEOUT: Final = 10.0
SERVER_TRIES: Final = 5_000_000_000
"""Nanoseconds for which a server tries to store a position that nobody gave a deadline."""

Tell = Callable[[dict[str, Any]], None]


class Member(ABC):
    """A member of a group that tells what it does.

    Attributes:
        name: Its consumer id.
        told: Everything that it told, as it came, to look at when a test fails.
    """

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        self._history = history

    @property
    def failures(self) -> list[str]:
        """Return the failures that it reported."""
        return [each["text"] for each in self.told if each["event"] == "failed"]

    @property
    def share(self) -> Share | None:
        """Return its last known assignment; None before the first."""
        return self._history.share_of(self.name)

    @abstractmethod
    async def start(self) -> None:
        """Let it join."""

    @abstractmethod
    async def leave(self) -> None:
        """Let it leave the group in order.

        Raises:
            TimeoutError: It did not within 10 seconds.
        """

    @abstractmethod
    async def end(self) -> None:
        """End it whatever it does; nothing happens if it has ended."""

    def _take(self, told: dict[str, Any]) -> None:
        self.told.append(told)
        match told.get("event"):
            case "handled":
                offset, value = told["offset"], told["value"]
                self._history.handled.append(
                    Handled(self.name, place_of(told), offset, value, told["at"])
                )
            case "assigned":
                places = frozenset(
                    Place(each["stream"], partition)
                    for each in told.get("assignments", ())
                    for partition in each["partitions"]
                )
                last = self.share
                if last is None or (last.epoch, last.places) != (told["epoch"], places):
                    share = Share(told["epoch"], places, told["at"])
                    self._history.shares[self.name].append(share)
            case "commit":
                sent = Sent(self.name, place_of(told), told["offset"], told["at"])
                self._history.sent.append(sent)
            case "commit-ended":
                # One that failed may be stored all the same, while the server still tries.
                until = told["at"] + (SERVER_TRIES if "text" in told else 0)
                self._history.answered(self.name, place_of(told), told["offset"], until)
            case None:
                told |= {"event": "failed", "text": told.get("error", str(told))}


class LocalMember(Member):
    """A member in Python that is a task of this process, with a client of its own."""

    def __init__(
        self, name: str, history: History, take_part: Callable[[Tell], Coroutine[None, None, None]]
    ) -> None:
        super().__init__(name, history)
        self._take_part = take_part
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def leave(self) -> None:
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await self.end()

    async def end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        try:
            await self._take_part(self._take)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test asks for it
            self._take({"event": "failed", "text": f"{type(error).__name__}: {error}"})


class MemberProcess(Member):
    """A member in a process of its own, which leaves when its input ends.

    It tells what it does as JSON, one value per line.
    """

    def __init__(
        self,
        name: str,
        history: History,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, history)
        self._command = command
        self._environment = environment or {}
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=os.environ | dict(self._environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._listening = asyncio.create_task(self._listen(self._process.stdout))

    def freeze(self) -> None:
        """Stop it from running without ending it (SIGSTOP): its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run again after `freeze` (SIGCONT)."""
        self._signal(signal.SIGCONT)

    async def leave(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await self._process.wait()
        await self._listened()

    async def end(self) -> None:
        """Kill it, as a crash does (SIGKILL); nothing happens if it has ended."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._listened()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def _listened(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening

    async def _listen(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            self._take(json.loads(line))
        assert self._process is not None
        code = await self._process.wait()
        if code not in {0, -signal.SIGKILL}:
            self._take({"event": "failed", "text": f"it ended with {code}"})


def place_of(told: Mapping[str, Any]) -> Place:
    """The partition that an event is about."""
    return Place(told["stream"], told["partition"])


@dataclass(frozen=True, slots=True)
class Group:
    """A group whose members are made here.

    Attributes:
        name: Its id.
        streams: What it reads.
        addresses: The brokers.
        commit_interval: Seconds from one commit of a member to the next.
        history: What happens in it.
    """

    name: str
    streams: tuple[str, ...]
    addresses: tuple[str, ...]
    commit_interval: float = 0.5
    history: History = field(default_factory=History)

    @property
    def cursor_id(self) -> str:
        """Under which its positions are stored."""
        return f"__group:{self.name}"

    def in_go(self, name: str, program: Path, heartbeat: float) -> MemberProcess:
        """A member in Go, which fetches its assignments each `heartbeat` seconds."""
        milliseconds = (str(round(1000 * each)) for each in (self.commit_interval, heartbeat))
        command: tuple[str | Path, ...] = (
            *(program, ",".join(self.addresses), "member", self.name, name),
            *(*milliseconds, *self.streams),
        )
        log_calls = {"GRPC_BINARY_LOG_FILTER": "proto.API/*"}
        return MemberProcess(name, self.history, command, log_calls)

    def in_python(self, name: str) -> LocalMember:
        """A member in Python, in this process."""

        def run(tell: Tell) -> Coroutine[None, None, None]:
            return take_part(
                self.addresses, self.name, self.streams, name, self.commit_interval, tell
            )

        return LocalMember(name, self.history, run)

    def in_python_apart(self, name: str) -> MemberProcess:
        """A member in Python, in a process of its own."""
        command: tuple[str | Path, ...] = (
            *(sys.executable, HERE / "python_member.py", ",".join(self.addresses), self.name, name),
            *(str(self.commit_interval), *self.streams),
        )
        return MemberProcess(name, self.history, command)

    @asynccontextmanager
    async def watched(self, client: Client) -> AsyncIterator[None]:
        """Note every position that is stored, in the order in which the server stores them."""
        partitions = (await client.fetch_metadata([CURSORS])).streams[CURSORS].partitions
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(_cancelled_at_the_end())
            for number in partitions:
                tasks.append(asyncio.create_task(self._watch(client, number)))
            yield

    async def _watch(self, client: Client, partition: int) -> None:
        stored = client.subscribe(
            CURSORS, partition=partition, start=StartAt.earliest(), resubscribe_timeout=None
        )
        async with stored:
            async for message in stored:
                cursor = proto.Cursor.parse(message.value)
                if cursor.cursor_id == self.cursor_id:
                    place = Place(cursor.stream, cursor.partition)
                    self.history.commits.append(Commit(place, cursor.offset, message.timestamp))


@asynccontextmanager
async def _cancelled_at_the_end() -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that run while the context is open; one that failed makes itself heard at its end."""
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


@asynccontextmanager
async def running(members: Iterable[Member]) -> AsyncIterator[None]:
    """Let members take part, the first of them first; all end at the end, whatever happens.

    Of two that make the same group at once, one is refused.

    Raises:
        AssertionError: Something went wrong for the first.
        TimeoutError: It had no share within 30 seconds.
    """
    first, *others = members
    try:
        await first.start()
        async with asyncio.timeout(JOIN_TIMEOUT):
            while first.share is None:
                assert not first.failures, first.failures
                await asyncio.sleep(0.02)
        await asyncio.gather(*(member.start() for member in others))
        yield
    finally:
        await asyncio.gather(*(member.end() for member in (first, *others)))
