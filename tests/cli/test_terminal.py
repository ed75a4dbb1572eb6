"""Commands on a terminal: progress, questions, and tables that are shown again and again."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from cli.conftest import BOUND, COMMAND, Run, Start, end, environment


@dataclass
class Terminal:
    """A command whose stdin and stderr are a terminal."""

    process: subprocess.Popen[str]
    descriptor: int
    shown: str = ""

    def read_until(self, text: str) -> None:
        """Wait until a text has been shown."""
        deadline = time.monotonic() + BOUND
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            try:
                self.shown += os.read(self.descriptor, 4096).decode()
            except OSError:  # the command has ended
                assert text in self.shown

    def answer(self, text: str) -> int:
        """Type a line and return the exit code."""
        os.write(self.descriptor, f"{text}\n".encode())
        return self.process.wait(BOUND)


@pytest.fixture
def terminal(broker_address: str) -> Iterator[Callable[..., Terminal]]:
    started = []

    def start(*words: str) -> Terminal:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            env=environment(broker_address) | {"TERM": "xterm"},
        )
        os.close(theirs)
        started.append(Terminal(process, ours))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate(timeout=BOUND)
        os.close(each.descriptor)


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "publish", "--duration", "1s", "--stream"),
        ("bench", "consume", "--start", "earliest", "--duration", "1s", "--json", "--stream"),
        ("publish", "--count", "20", "--rate", "20", "--create", "--partition", "0"),
    ],
    ids=["bench-publish", "bench-consume", "publish"],
)
def test_progress_is_shown_with_its_rate(
    run: Run, terminal: Callable[..., Terminal], words: tuple[str, ...], stream: str
) -> None:
    run("streams", "create", stream)
    command = terminal(*words, stream, *(("value",) if words[0] == "publish" else ()))
    command.read_until("/s")
    out, _ = command.process.communicate(timeout=BOUND)
    assert command.process.returncode == 0
    assert out, "the figures or the acks are on stdout, beside a terminal on stderr, too"
    if words[0] == "publish":
        assert len(out.splitlines()) == 20
        assert "/s" not in out


def test_a_stream_is_deleted_once_that_is_confirmed(
    run: Run, terminal: Callable[..., Terminal], stream: str
) -> None:
    run("streams", "create", stream)
    for answer in ("", "n", "no"):
        asking = terminal("streams", "delete", stream)
        asking.read_until(f"delete stream {stream} and all its messages? [y/N]")
        assert asking.answer(answer) == 1
        run("streams", "show", stream)
    asking = terminal("streams", "delete", stream)
    asking.read_until("[y/N]")
    assert asking.answer("y") == 0
    run("streams", "show", stream, code=1)


def test_a_question_ends_by_ctrl_c(
    run: Run, terminal: Callable[..., Terminal], stream: str
) -> None:
    run("streams", "create", stream)
    asking = terminal("streams", "delete", stream)
    asking.read_until("[y/N]")
    asking.process.send_signal(signal.SIGINT)
    assert asking.process.wait(BOUND) == 130
    assert terminal("streams", "delete", stream, "--yes").process.wait(BOUND) == 0


def test_a_group_is_moved_once_that_is_confirmed(
    run: Run, terminal: Callable[..., Terminal], stream: str
) -> None:
    run("publish", stream, "a", "b", "c", "--create")
    moving = ("groups", "set", stream, stream, "1")
    asking = terminal(*moving)
    asking.read_until(f"move group {stream}: {stream}/0 from none to 1? [y/N]")
    assert asking.answer("n") == 1
    assert run("cursor", "get", f"__group:{stream}", stream).out == ""
    assert terminal(*moving, "--yes").process.wait(BOUND) == 0
    assert run("cursor", "get", f"__group:{stream}", stream).out == "1\n"
    asking = terminal("groups", "reset", stream, "--to", "1")
    asking.read_until("[y/N]")
    assert asking.answer("y") == 0
    assert run("cursor", "get", f"__group:{stream}", stream).out == "0\n"


@pytest.mark.parametrize("noun", ["groups", "streams"])
def test_what_is_watched_is_shown_again_with_what_is_new(
    run: Run, start: Start, stream: str, noun: str
) -> None:
    run("publish", stream, "a", "--create")
    run("groups", "set", stream, stream, "0")
    watching = start(noun, "show", stream, "--watch", "--interval", "100ms", "--json")
    assert watching.stdout is not None
    assert '"high_watermark": 0' in watching.stdout.readline()
    run("publish", stream, "b")
    deadline = time.monotonic() + BOUND
    while '"high_watermark": 1' not in watching.stdout.readline():
        assert time.monotonic() < deadline
    watching.send_signal(signal.SIGINT)
    assert end(watching)[0] == 130
