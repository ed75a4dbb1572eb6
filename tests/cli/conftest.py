"""The command line as its users run it: a process of its own, against a broker of its own."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from conftest import EMBEDDED, OTHER, PINNED, SERVERS
from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.cli import main

BOUND = 20.0
"""Seconds after which a command has failed."""

COMMAND = (sys.executable, "-W", "error", "-m", "liftbridge_aio")


class Result(NamedTuple):
    """The output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, which must be a single JSON value."""
        return json.loads(self.out)

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The lines of JSON that were written."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


def environment(servers: str | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LIFTBRIDGE_")}
    return kept | {"COLUMNS": "200"} | ({} if servers is None else {"LIFTBRIDGE_SERVERS": servers})


@pytest.fixture(scope="session")
def broker_address() -> Iterator[str]:
    """A broker started from the command line; all tests share it, each with its own streams."""
    with subprocess.Popen(
        [*COMMAND, "broker", "--port", "0", "--activity"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(None),
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[BlockingPortal]:
    """An event loop in a thread of its own, for what has to run while a command does."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def bare_broker_address(elsewhere: BlockingPortal) -> Iterator[str]:
    """A broker that keeps neither cursors nor activity."""
    broker = EmbeddedBroker(cursors_partitions=0)
    with elsewhere.wrap_async_context_manager(broker):
        yield broker.address


@pytest.fixture
def run(
    broker_address: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Runs a command to its end, in this process because that is quicker; checks the exit code."""

    def run(*words: str, code: int = 0, stdin: str = "", servers: str = broker_address) -> Result:
        for name in [name for name in os.environ if name.startswith("LIFTBRIDGE_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("LIFTBRIDGE_SERVERS", servers)
        monkeypatch.setenv("COLUMNS", "200")
        lines = tmp_path / "stdin"
        lines.write_text(stdin)
        with lines.open() as file, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", file)
            result = Result(main(words), *capsys.readouterr())
        assert result.code == code, result.err
        return result

    return run


@pytest.fixture(params=SERVERS)
def address(request: pytest.FixtureRequest) -> str:
    """Each server of the matrix in turn, all of which outlive the test."""
    if request.param == EMBEDDED:
        return str(request.getfixturevalue("broker_address"))
    fixtures = {PINNED: "real_server", OTHER: "other_server"}
    return str(request.getfixturevalue(fixtures[request.param]).address)


ON_EMBEDDED = pytest.mark.parametrize("address", [EMBEDDED], indirect=True)
"""For tests with `run_on_each` that prove nothing more on a real server."""


@pytest.fixture
def run_on_each(run: Run, address: str) -> Run:
    """As `run`, on each server of the matrix."""
    return functools.partial(run, servers=address)


@pytest.fixture
def start(broker_address: str) -> Iterator[Start]:
    """Starts commands that run until they are stopped; whatever is left is ended."""
    processes = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(broker_address),
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=BOUND)


def finish(
    *command: str, servers: str | None = None, stdout: int = subprocess.PIPE, **settings: str
) -> Result:
    """Run a process to its end, with these variables beside those of its environment."""
    done = subprocess.run(
        command,
        check=False,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=BOUND,
        env=environment(servers) | settings,
    )
    return Result(done.returncode, done.stdout or "", done.stderr)


def end(process: subprocess.Popen[str], bound: float = BOUND) -> Result:
    """Wait for a started command; it must not have shown how it is made."""
    try:
        out, err = process.communicate(timeout=bound)
    finally:
        process.kill()
    assert "Traceback" not in err
    assert "Warning" not in err
    return Result(process.returncode, out, err)


class ByClient(Protocol):
    """Does something with a client, over one connection where commands take one each."""

    def __call__(self, work: Callable[[Client], Awaitable[object]]) -> None:
        """Do it, and wait for its end."""


@pytest.fixture
def prepare(address: str) -> ByClient:
    """Prepares what a test with `run_on_each` starts from."""

    def prepare(work: Callable[[Client], Awaitable[object]]) -> None:
        async def connected() -> None:
            async with Client(address) as client:
                await work(client)

        asyncio.run(connected())

    return prepare


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A name for a stream that no other test uses."""
    return str(request.node.name)
