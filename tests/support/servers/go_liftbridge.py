"""The official client of Liftbridge as a program, to compare ours with."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.servers.build import BIN, HERE, build

MODULE: Final = HERE / "go_client"
BOUND: Final = 45.0

_REPEATABLE: Final = {
    "create": "stream already exists",
    "delete": "stream does not exist",
    "readonly": None,
    "consume": None,
}
"""Commands that change streams or groups, and how a repetition of what was done is refused, if it
is. A member that was joined twice is given up by its group in time."""
_ANSWER_LOST: Final = ("raft operation timed out", "code = DeadlineExceeded")
"""The texts of errors after which the server may have made the change."""


class GoClientError(Exception):
    """An error that go-liftbridge returned."""


def go_client_path() -> Path:
    """Path of the program, built or not; its name changes with its source."""
    return BIN / f"go-client-{_version()}"


def build_go_client() -> Path:
    """The path of the program, built now if this is the first time.

    Raises:
        ServerUnavailable: No Go, or the build failed.
    """
    target = go_client_path()
    changed = max(source.stat().st_mtime for source in MODULE.glob("*.go"))
    if target.exists() and target.stat().st_mtime < changed:
        target.unlink()
    return build(".", target, MODULE)


def _version() -> str:
    found = re.search(r"go-liftbridge/v2 (v\S+)", (MODULE / "go.mod").read_text())
    assert found is not None
    return found[1]


@dataclass(frozen=True, slots=True)
class GoClient:
    """Runs one command of the program after the other, each in a process of its own.

    Attributes:
        program: The executable.
        address: The server: ``host:port``.
    """

    program: Path
    address: str

    async def run(self, *arguments: object) -> list[Any]:
        """Run a command and return its output, line by line.

        A server loses some answers to changes that it makes; these commands are repeated.

        Raises:
            GoClientError: go-liftbridge returned an error; the text is its own.
        """
        try:
            async with self.running(*arguments) as lines:
                return [line async for line in lines]
        except GoClientError as error:
            lost = any(text in str(error) for text in _ANSWER_LOST)
            if arguments[0] not in _REPEATABLE or not lost:
                raise
        try:
            async with self.running(*arguments) as lines:
                return [line async for line in lines]
        except GoClientError as error:
            done = _REPEATABLE[str(arguments[0])]
            if done is None or done not in str(error):
                raise
            return []

    @asynccontextmanager
    async def running(self, *arguments: object) -> AsyncIterator[AsyncIterator[Any]]:
        """A command while it runs: the lines that it prints, as they come.

        Raises:
            GoClientError: While lines are read: go-liftbridge returned an error.
        """
        process = await asyncio.create_subprocess_exec(
            self.program,
            *(self.address, *map(str, arguments)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(BOUND):
                yield self._lines(process.stdout)
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _lines(self, output: asyncio.StreamReader) -> AsyncIterator[Any]:
        async for line in output:
            value = json.loads(line)
            if isinstance(value, dict) and "error" in value:
                raise GoClientError(value["error"])
            yield value
