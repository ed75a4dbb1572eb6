"""Pipelines as their users run them: they add up, go on where they were, and end when told to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.conftest import COMMAND, Run, Start, environment
from liftbridge_aio.cli.totals_checks import (
    Place,
    Total,
    check_each,
    check_followed,
    check_once,
    check_read,
    check_sum,
)

NINE = Place("2026-03-02T09:00+00:00", "Accra")
TEN = Place("2026-03-02T10:00+00:00", "Accra")
TOTALS = [(NINE, Total(2, 30)), (TEN, Total(1, 5))]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def finish(process: subprocess.Popen[str], seconds: float = 90) -> Ended:
    """Wait for the end of a command that runs Spark."""
    out, err = process.communicate(timeout=seconds)
    assert "Traceback" not in err
    return Ended(process.returncode, out, err)


@pytest.mark.spark
@pytest.mark.timeout(170)
def test_totals_add_up_while_the_pipeline_runs(start: Start) -> None:
    ended = finish(start("pipeline", "totals", "--events", "3000", "--json"), 160)
    report = json.loads(ended.out)
    assert (ended.code, report["held"], report["counted"]) == (0, True, 3000)
    assert [check["held"] for check in report["checks"]] == [True] * 5
    assert report["early_totals"] > 0
    title, *steps = ended.err.splitlines()
    assert title.startswith("liftbridge-aio pipeline totals")
    assert "3,000 published, 3,001 read in" in steps[-2]  # the one that ends the day among them
    assert steps[-1].endswith("all totals are there")


def test_what_does_not_add_up_is_noticed() -> None:
    assert check_sum(3, TOTALS).held
    assert not check_sum(4, TOTALS).held
    assert not check_sum(3, [*TOTALS, TOTALS[0]]).held


def test_wrong_missing_and_strange_totals_are_noticed() -> None:
    assert check_each(dict(TOTALS), TOTALS).held
    assert not check_each(dict(TOTALS), TOTALS[1:]).held
    assert not check_each({NINE: Total(2, 30)}, TOTALS).held
    assert not check_each({**dict(TOTALS), NINE: Total(2, 31)}, TOTALS).held


def test_totals_that_come_twice_or_not_at_all_are_noticed() -> None:
    assert check_once([NINE, TEN]).held
    assert not check_once([NINE, TEN, NINE]).held
    assert check_followed([NINE, TEN], [NINE, TEN]).held
    assert not check_followed([NINE, TEN], [NINE]).held


def test_events_that_spark_missed_or_found_too_late_are_noticed() -> None:
    assert check_read(5, 5, 0).held
    assert not check_read(5, 4, 0).held
    assert not check_read(5, 5, 1).held


def test_an_archive_needs_to_know_what_to_keep(run: Run, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "archive"))
    assert "a --pattern" in run("pipeline", "archive", *to, code=2).err
    both = run("pipeline", "archive", "orders", "--pattern", "o.*", *to, code=2)
    assert "a --pattern" in both.err


def test_an_archive_whose_checkpoint_is_gone_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "stream=orders").mkdir()
    ended = run("pipeline", "archive", "orders", "--to", str(tmp_path), code=1)
    assert "without its folder _checkpoint" in ended.err


def test_without_pyspark_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "from liftbridge_aio.cli import main\n"
        "sys.exit(main(['pipeline', 'totals']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "pip install 'liftbridge-aio[spark]'" in done.stderr


@pytest.mark.spark
@pytest.mark.timeout(170)
def test_an_archive_follows_its_stream_until_it_is_told_to_end(
    run: Run, start: Start, stream: str, tmp_path: Path
) -> None:
    import pyarrow.dataset as ds  # noqa: PLC0415

    def wait_for(pattern: str) -> None:
        while not list(tmp_path.glob(pattern)):
            assert process.poll() is None
            time.sleep(0.05)

    run("streams", "create", "s", "--subject", stream)
    run("publish", "s", "first", "second")
    to = ("--to", str(tmp_path / "archive"), "--master", "local[1]")
    process = start("pipeline", "archive", "s", *to, "--follow", "--every", "200ms")
    wait_for("archive/stream=s/*/batch=0/*.parquet")
    run("publish", "s", "third")
    wait_for("archive/stream=s/*/batch=1/*.parquet")
    process.send_signal(signal.SIGINT)
    ended = finish(process, 30)
    assert ended.code == 0
    assert ended.err.splitlines()[0] == "starting Spark"
    assert re.fullmatch(r"[23] messages in [12] batches to .*/archive\n", ended.out)
    table = ds.dataset(tmp_path / "archive", format="parquet").to_table()
    assert sorted(table.column("value").to_pylist()) == [b"first", b"second", b"third"]


@pytest.mark.spark
def test_ctrl_c_while_spark_starts_ends_it_cleanly(tmp_path: Path) -> None:
    """Also where the whole foreground group gets the signal, as from a terminal."""
    process = subprocess.Popen(
        [*COMMAND, "pipeline", "totals"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(None) | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert process.stdout is not None
    while "starting Spark" not in (line := process.stdout.readline()):
        assert line, "it ended"
    os.killpg(process.pid, signal.SIGINT)
    ended = finish(process, 60)
    assert (ended.code, ended.err) == (130, "")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # nothing of the group is left
