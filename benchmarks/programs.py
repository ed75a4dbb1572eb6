"""Runs a client's program, bounded in time, and reads what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from .cases import Case, Kind
from .outcome import BadOutput, Unsupported, parse
from .own_programs import environment
from .processes import cpu_seconds
from .summary import Failed, Measured, Run

Command = Callable[[list[str]], list[str]]
"""Makes a whole command of the words of a case."""

_FILL_TIMEOUT: Final = 300.0
_FILL_WINDOW: Final = 10_000
_KILL_TIMEOUT: Final = 5.0
_LONGEST: Final = 300


class FillFailed(Exception):
    """The stream that clients were to read could not be filled; the text says why."""


def run_program(
    command: Sequence[str], server_pids: Sequence[int], server_messages: int, timeout: float
) -> Run:
    """Run a program to its end.

    Args:
        command: The program and its words.
        server_pids: The processes of the server, whose processor time is taken meanwhile.
        server_messages: Messages beside those of the run that the server handles: the warm-up.
        timeout: Seconds after which the program is ended and the run has failed.
    """
    before = cpu_seconds(server_pids)
    with subprocess.Popen(  # noqa: S603 - no shell, and our own words
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            output, complaints = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=_KILL_TIMEOUT)
            return Failed(f"not done within {timeout:.0f} s")
        except BaseException:
            process.kill()
            raise
    after = cpu_seconds(server_pids)
    if process.returncode != 0:
        # The last line only: those before it are where it happened, and full of paths.
        *_, words = ("", *(complaints.strip() or output.strip()).splitlines())
        return Failed(f"exit code {process.returncode}: {words[:_LONGEST]}")
    try:
        outcome = parse(output)
    except BadOutput as error:
        return Failed(str(error))
    if isinstance(outcome, Unsupported):
        return outcome
    spent = None if before is None or after is None else after - before
    return Measured(outcome, spent, server_messages)


def fill(filler: Command, case: Case, address: str, stream: str) -> None:
    """Publish what a case is to read.

    Args:
        filler: The command of a client that publishes, and fast.
        case: How many messages, of what size and in how many partitions.
        address: Of the server.
        stream: Is there already.

    Raises:
        FillFailed: It could not be done.
    """
    publishing = Case(Kind.PUBLISH, case.messages, case.message_size, case.partitions, _FILL_WINDOW)
    command = filler(publishing.words(address, stream, publishing.messages))
    filled = run_program(command, (), 0, _FILL_TIMEOUT)
    if not isinstance(filled, Measured) or filled.outcome.errors:
        reason = "messages were lost" if isinstance(filled, Measured) else filled.reason
        raise FillFailed(f"the stream could not be filled: {reason}")
