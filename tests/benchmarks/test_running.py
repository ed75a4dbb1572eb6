"""The whole of it, end to end: a server, our client or Spark, a table, a chart and JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spark.samples import (
    CLIENT,
    COMMITTED,
    EXACTLY_ONCE,
    NOTHING,
    OURS,
    UNCOMMITTED,
    WITH_IDS,
)

ROOT = Path(__file__).resolve().parents[2]
BOUND = 50.0
SPARK_BOUND = 400.0  # seconds; some twenty where nothing else runs


def run(*words: str, bound: float = BOUND) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=bound,
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


@pytest.mark.parametrize(
    ("name", "client", "told"),
    [
        ("consume", "nobody", "there is no client 'nobody'"),
        ("spark-read", "ours", "there is nothing 'ours' beside Spark"),
    ],
)
def test_a_client_that_is_not_known_is_told(name: str, client: str, told: str) -> None:
    done = run(name, "--peers", client, "--server", "embedded")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {told}")
    assert "Traceback" not in done.stderr


def results_of(name: str) -> dict[str, Any]:
    done = run(
        *(name, "--server", "embedded", "--quick", "--rounds", "1", "--partitions", "2"),
        *("--messages", "240", "--output", "json"),
        bound=SPARK_BOUND,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def assert_compared(found: dict[str, Any], *names: str) -> None:
    assert [each["name"] for each in found["contenders"]] == list(names)
    assert all(each["runs"][0]["rows_per_second"] > 0 for each in found["contenders"])


@pytest.mark.spark
@pytest.mark.timeout(SPARK_BOUND + 10)
@pytest.mark.skipif(
    "LIFTBRIDGE_BY_HAND" not in os.environ,
    reason="measures for a minute; run it by hand with LIFTBRIDGE_BY_HAND=1",
)
def test_every_benchmark_with_spark_comes_to_its_end() -> None:
    results = results_of("spark")
    [read], [write] = results["spark_read"], results["spark_write"]
    assert_compared(read, CLIENT, OURS, COMMITTED, UNCOMMITTED, NOTHING)
    assert_compared(write, CLIENT, OURS, WITH_IDS, EXACTLY_ONCE, NOTHING)
    [to_nothing], [to_stream] = results["spark_microbatch"], results["spark_microbatch_floors"]
    assert to_nothing["share"]["median"] > 0
    assert set(to_stream["milliseconds"]) == {OURS, EXACTLY_ONCE, NOTHING}
    [memory] = results["spark_memory"]
    assert memory["rows"] == 240
    assert memory["total_bytes"]["median"] > 0
