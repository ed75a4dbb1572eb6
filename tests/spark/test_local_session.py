"""The session that pipelines start: quick to start its workers, quiet, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio.spark.session.local_session import _write_worker_python, log_tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_import_the_installed_pyspark_not_the_zip(tmp_path: Path) -> None:
    python = _write_worker_python(tmp_path)
    path = os.pathsep.join(["/a b/*", "/spark/pyspark.zip", "/spark/py4j-0.10.9-src.zip", "/c"])
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, *sys.argv)"
    shown = subprocess.run(
        [python, "-c", code, "x y", "*"],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": os.defpath, "PYTHONPATH": path},
    )
    assert shown.stdout == f"/a b/*:/c {sys.executable} -c x y *\n"


def test_workers_are_this_python_and_know_the_package(spark: SparkSession) -> None:
    def look(_: object) -> list[str]:
        import pyspark  # noqa: PLC0415

        import liftbridge_aio  # noqa: PLC0415

        return [sys.executable, pyspark.__file__, liftbridge_aio.__file__]

    import pyspark  # noqa: PLC0415

    import liftbridge_aio  # noqa: PLC0415

    seen = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert seen == [[sys.executable, pyspark.__file__, liftbridge_aio.__file__]]


def test_a_session_is_what_it_was_asked_to_be(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2,2]"
    assert spark.sparkContext.appName == "tests"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.spark
def test_a_spark_that_cannot_start_says_why(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from liftbridge_aio.spark.session.local_session import local_session, SparkDidNotStart\n"
        "settings = {'spark.driver.memory': '1x'}\n"
        "try:\n"
        "    with local_session('x', Path(sys.argv[1]), settings=settings): pass\n"
        "except SparkDidNotStart as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "-Xmx1x" in done.stdout
    assert "-Xmx1x" in log_tail(tmp_path)
