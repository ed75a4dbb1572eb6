"""Runs conformance cases: a client's adapter in a process of its own, and a real server.

Stricter than the published runner: an error that a case does not expect fails it, whatever else
the reply says, and so does an error that does not come.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

REPLY_TIMEOUT: Final = 30.0
SHUTDOWN_TIMEOUT: Final = 5.0
FAULTS: Final = "/_test/inject-error"
LONGEST_REPLY: Final = 1 << 24

Command = dict[str, Any]
Reply = dict[str, Any]
Step = Callable[["Run"], Awaitable[None]]
Cases = dict[str, Sequence[Step]]

_runs = itertools.count(1)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


class CaseFailed(AssertionError):
    """The client, or the server, did something else than the case expects."""


class AdapterProcess:
    """An adapter: commands go to its input and replies come from its output, as lines of JSON.

    Attributes:
        command: How it is started.
        url: The server that it is told to use.
        features: What it claims to have, once it runs.
    """

    def __init__(self, command: Sequence[str | os.PathLike[str]], url: str) -> None:
        self.command = command
        self.url = url
        self.features: dict[str, bool] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._busy = False

    async def send(self, command: Command) -> Reply:
        """Return the reply to a command.

        The adapter is started at the first one, and anew after one whose reply never came.
        Cancelling it leaves that reply behind.

        Raises:
            CaseFailed: No reply within 30 seconds, or none that can be read.
        """
        if self._busy:
            await self.kill()
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LONGEST_REPLY,
            )
            reply = await self._exchange({"type": "init", "serverUrl": self.url})
            if reply.get("success") is not True:
                raise CaseFailed(f"the adapter refused to start: {reply}")
            self.features = reply.get("features", {})
        return await self._exchange(command)

    async def _exchange(self, command: Command) -> Reply:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self._busy = True
        process.stdin.write(json.dumps(command).encode() + b"\n")
        try:
            async with asyncio.timeout(REPLY_TIMEOUT):
                await process.stdin.drain()
                line = await process.stdout.readline()
            reply = json.loads(line)
        except (OSError, TimeoutError, ValueError) as error:
            raise CaseFailed(f"no reply to {command}: {error!r}") from error
        if not isinstance(reply, dict):
            raise CaseFailed(f"no reply to {command}, but {reply!r}")
        self._busy = False
        return reply

    async def aclose(self) -> None:
        """End the adapter, by force if it does not heed `shutdown`. Idempotent."""
        process = self._process
        if process is None or process.stdin is None or self._busy:
            await self.kill()
            return
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                process.stdin.write(b'{"type": "shutdown"}\n')
                await process.communicate()
        except (OSError, TimeoutError):
            pass
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End the adapter at once. Idempotent."""
        process, self._process, self._busy = self._process, None, False
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@dataclass(slots=True)
class Run:
    """One run of a case.

    Attributes:
        adapter: The client's adapter.
        http: Requests to the server beside the client.
        number: Makes the paths of its streams unique.
        offsets: The offsets of all replies so far, as `append1`, `append2`, `read1`, …
        background: The read that goes on meanwhile, if any.
        undo: What to do at the end of the case.
    """

    adapter: AdapterProcess
    http: aiohttp.ClientSession
    number: int = field(default_factory=lambda: next(_runs))
    offsets: dict[str, str] = field(default_factory=dict)
    background: asyncio.Task[None] | None = None
    undo: list[Callable[[], Awaitable[object]]] = field(default_factory=list)

    def path(self, stream: str) -> str:
        """Return the path of a stream, which no other run has."""
        return f"/case-{os.getpid()}-{self.number}-{stream}"

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return self.adapter.url + path

    def resolve(self, text: str) -> str:
        """Return the text with the offsets that its `${variables}` stand for."""
        return _VARIABLE.sub(lambda found: self.offsets[found[1]], text)

    def keep_offset(self, kind: str, offset: object) -> None:
        """Keep the offset of a reply under the next name of its kind.

        Raises:
            CaseFailed: It is none.
        """
        if not isinstance(offset, str) or not offset:
            raise CaseFailed(f"{kind}: the offset is {offset!r}")
        count = sum(name.startswith(kind) for name in self.offsets)
        self.offsets[f"{kind}{count + 1}"] = offset


async def run_case(steps: Sequence[Step], adapter: AdapterProcess) -> None:
    """Run a case.

    Cancelling it leaves the adapter behind a command; the next case starts it anew.

    Args:
        steps: The case.
        adapter: The client's adapter.

    Raises:
        CaseFailed: A step did not go as expected.
    """
    async with aiohttp.ClientSession() as http:
        run = Run(adapter, http)
        async with _at_the_end(run):
            for step in steps:
                await step(run)
            check(run.background is None, "the case never waits for its read")


@asynccontextmanager
async def _at_the_end(run: Run) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if run.background is not None:
            run.background.cancel()
            await asyncio.gather(run.background, return_exceptions=True)
        for undo in run.undo:
            await undo()


def check(holds: object, message: str) -> None:
    """Fail the case unless a condition holds.

    Raises:
        CaseFailed: It does not.
    """
    if not holds:
        raise CaseFailed(message)
