"""The whole of it, end to end: a server, our client, a table, a chart and JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOUND = 50.0


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=BOUND,
    )


def test_without_a_name_they_are_listed() -> None:
    done = run()
    assert done.returncode == 0
    assert "consume" in done.stdout
    assert "goals" in done.stdout


@pytest.mark.parametrize("name", ["publish", "consume"])
def test_our_client_is_measured_on_the_embedded_broker(name: str, tmp_path: Path) -> None:
    file, chart = tmp_path / "new" / "results.json", tmp_path / "chart.svg"
    done = run(
        *(name, "--server", "embedded", "--quick", "--peers", "ours", "--rounds", "1"),
        *("--message-size", "250", "--messages", "500", "--output", "json"),
        *("--json", str(file), "--chart", str(chart)),
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    assert results == json.loads(file.read_text())
    assert str(tmp_path) not in done.stdout
    [case] = results["cases"]
    [ours] = case["clients"]
    assert (case["kind"], ours["client"], ours["messages"]) == (name, "ours", 500)
    assert ours["messages_per_second"]["median"] > 0
    assert ours["client_cpu_seconds_per_million"]["median"] > 0
    assert [run["errors"] for run in ours["runs"]] == [0]
    assert chart.read_text().startswith("<svg")


def test_what_was_measured_is_kept_when_it_is_ended_and_nothing_else_is(tmp_path: Path) -> None:
    file, folder = tmp_path / "results.json", tmp_path / "tmp"
    folder.mkdir()
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks", "publish", "--server", "embedded"),
            *("--peers", "ours", "--rounds", "1", "--messages", "300"),
            *("--window", "10,20" + ",30" * 50),  # it must not be done before the signal comes
            *("--json", str(file)),
        ],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            assert any("window 20, ack leader: first try" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert process.wait(BOUND) == 130
        finally:
            process.kill()
    [case, *_] = json.loads(file.read_text())["cases"]
    assert case["window"] == 10
    assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    done = run("consume", "--server", "embedded", "--peers", "ours", "--json", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"error: {tmp_path} cannot be written\n"


def test_a_client_that_is_not_known_is_told() -> None:
    done = run("consume", "--peers", "nobody", "--server", "embedded")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no client 'nobody'")
    assert "Traceback" not in done.stderr
