"""Warnings reach somebody, also in processes in which nobody set up logging."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from liftbridge_aio.spark.session.process_warnings import WarningsInLog

WARN = "logging.getLogger('liftbridge_aio.spark').warning('%d rows are gone', 3)"


def said(tmp_path: Path, setup: str = "") -> tuple[str, str]:
    """Return stdout and stderr of a process that imports the package and warns."""
    code = f"import logging, sys\nimport liftbridge_aio.spark\n{setup}\n{WARN}\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
        cwd=tmp_path,
    )
    return done.stdout, done.stderr


def test_a_warning_that_nobody_listens_to_is_in_the_log_of_spark(tmp_path: Path) -> None:
    out, err = said(tmp_path)
    assert out == ""
    assert err.endswith(" WARNING liftbridge_aio.spark: 3 rows are gone\n")
    log = tmp_path / "spark.log"
    found = WarningsInLog(log)
    assert found.new() == []
    log.write_text(f"26/11/21 ERROR Utils: …\n{err}{err}a line that is not")
    assert found.new() == ["3 rows are gone"]
    log.write_text(f"{log.read_text()} whole\n{err.replace('3', '4')}{err}")
    assert found.new() == ["4 rows are gone"]


def test_a_program_that_sets_up_logging_gets_each_warning_once(tmp_path: Path) -> None:
    root = said(tmp_path, "logging.basicConfig(stream=sys.stdout, format='%(message)s')")
    assert root == ("3 rows are gone\n", "")
    package = "logging.getLogger('liftbridge_aio').addHandler(logging.StreamHandler(sys.stdout))"
    assert said(tmp_path, package) == ("3 rows are gone\n", "")
