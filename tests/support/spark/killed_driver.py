"""A driver of its own: a session that comes to its end, then one that a test ends with kill -9.

Usage: killed_driver.py FOLDER SERVERS STREAM

The second session runs a query whose batch stops in the middle. On stdout: the id of the Java
process of each session.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from liftbridge_aio.spark.session.local_session import local_session
from support.spark.halting_query import SMALL_BATCHES, start_query


def tell_java(spark: Any) -> None:
    sys.stdout.write(f"{spark.sparkContext._gateway.proc.pid}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    folder, servers, stream = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    before = dict(os.environ)
    with local_session("first", folder / "first", master="local[1]") as spark:
        tell_java(spark)
    assert dict(os.environ) == before
    with local_session(
        "killed", folder / "killed", master="local[1]", settings=SMALL_BATCHES
    ) as spark:
        tell_java(spark)
        start_query(spark, folder, servers, stream, halt="wait").awaitTermination()
