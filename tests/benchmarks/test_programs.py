"""Programs are run once, bounded in time, and whatever they do is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.cases import Case, Kind
from benchmarks.processes import are_running
from benchmarks.programs import FillFailed, fill, run_program
from benchmarks.summary import Failed, Measured, Run

LINE = {"version": "1", "messages": 10, "seconds": 1.0, "client_cpu_seconds": 0.5, "errors": 0}


def run(code: str, timeout: float = 20.0) -> Run:
    return run_program([sys.executable, "-c", code], [os.getpid()], 5, timeout)


def test_what_a_program_measured_is_taken_with_what_the_server_used() -> None:
    done = run(f"print({json.dumps(LINE)!r})")
    assert isinstance(done, Measured)
    assert done.outcome.messages_per_second == 10
    assert done.server_messages == 5
    assert done.server_cpu_seconds is not None
    assert done.server_cpu_seconds >= 0


def test_a_server_that_has_gone_leaves_no_figure() -> None:
    gone = 2**22 + 1  # above the highest process id that there can be
    done = run_program([sys.executable, "-c", f"print({json.dumps(LINE)!r})"], [gone], 0, 20.0)
    assert isinstance(done, Measured)
    assert done.server_cpu_seconds is None


def test_a_process_runs_until_it_ends_though_nobody_has_waited_for_it() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert are_running([os.getpid(), process.pid])
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not are_running([os.getpid(), process.pid])
    assert not are_running([process.pid])


def test_of_a_failure_the_last_line_is_told_and_no_path() -> None:
    done = run("raise ValueError('it broke')")
    assert done == Failed("exit code 1: ValueError: it broke")
    assert run("raise SystemExit(3)") == Failed("exit code 3: ")


def test_a_program_that_does_not_end_is_ended() -> None:
    assert run("import time; time.sleep(60)", timeout=0.3) == Failed("not done within 0 s")


@pytest.mark.parametrize(
    ("printed", "what"),
    [(LINE | {"errors": 1}, "lost"), ({"unsupported": "cannot publish"}, "cannot publish")],
)
def test_a_stream_that_is_not_filled_is_no_stream_to_read(
    printed: dict[str, object], what: str
) -> None:
    def command(_: list[str]) -> list[str]:
        return [sys.executable, "-c", f"print({json.dumps(printed)!r})"]

    with pytest.raises(FillFailed, match=what):
        fill(command, Case(Kind.CONSUME, 10), "127.0.0.1:1", "stream")
