"""Spark as a program to be measured: it does the jobs that come on stdin, one line of JSON each.

    python -m benchmarks.spark.program FOLDER CORES [JAR…]

Each job is answered by a line of JSON on stdout; the first line says what it runs on. It ends with
stdin. All that Spark writes goes to the folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

SETTINGS: Final = {
    "spark.driver.memory": "2g",
    # Progress of every batch is read when the query has ended.
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.shuffle.partitions": "2",
}


def main(words: list[str]) -> None:
    """Serve until stdin ends."""
    from liftbridge_aio.spark.session.local_session import local_session  # noqa: PLC0415 - optional

    from .jobs import JOBS  # noqa: PLC0415 - as above
    from .nothing import NothingDataSource  # noqa: PLC0415 - as above

    folder, cores, *jars = words
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no answer
    settings = {**SETTINGS, "spark.jars": ",".join(jars)} if jars else SETTINGS
    with local_session(
        "benchmarks", Path(folder), master=f"local[{cores}]", settings=settings
    ) as spark:
        spark.dataSource.register(NothingDataSource)
        _answer(answers, {"spark": spark.version, "java": _java_version(spark)})
        for line in sys.stdin:
            job = json.loads(line)
            try:
                figures = JOBS[job["job"]](spark, job)
            except Exception as error:  # noqa: BLE001 - told to who asked, whatever it is
                figures = {"failed": f"{type(error).__name__}: {error}"}
            _answer(answers, figures)


def _java_version(spark: Any) -> str:
    return str(spark.sparkContext._jvm.System.getProperty("java.version"))  # noqa: SLF001 - there is no other way


def _answer(answers: Any, figures: dict[str, Any]) -> None:
    answers.write(json.dumps(figures) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
