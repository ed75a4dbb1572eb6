"""Runs a client's program once, bounded in time, and reads what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from .outcome import BadOutput, Unsupported, parse
from .own_programs import environment
from .processes import cpu_seconds
from .summary import Failed, Measured, Run

_KILL_TIMEOUT: Final = 5.0
_LAST_WORDS: Final = 300


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
    with subprocess.Popen(
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
        words = complaints.strip() or output.strip()
        return Failed(f"exit code {process.returncode}: {words[-_LAST_WORDS:]}")
    try:
        outcome = parse(output)
    except BadOutput as error:
        return Failed(str(error))
    if isinstance(outcome, Unsupported):
        return outcome
    spent = None if before is None or after is None else after - before
    return Measured(outcome, spent, server_messages)
