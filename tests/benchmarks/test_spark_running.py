"""Spark is measured end to end, with next to no rows, on the embedded broker."""

from __future__ import annotations

import json
import os
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
BOUND = 400.0  # seconds; some twenty where nothing else runs


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


def results_of(name: str) -> dict[str, Any]:
    done = run(
        *(name, "--server", "embedded", "--quick", "--rounds", "1", "--partitions", "2"),
        *("--messages", "240", "--output", "json"),
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def assert_compared(found: dict[str, Any], *names: str) -> None:
    assert [each["name"] for each in found["contenders"]] == list(names)
    assert all(each["runs"][0]["rows_per_second"] > 0 for each in found["contenders"])


@pytest.mark.spark
@pytest.mark.timeout(BOUND + 10)
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


def test_what_is_not_known_beside_spark_is_told() -> None:
    done = run("spark-read", "--peers", "ours", "--server", "embedded", bound=30)
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is nothing 'ours' beside Spark")
