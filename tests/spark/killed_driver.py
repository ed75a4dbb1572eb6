"""A driver of its own that a test ends with kill -9: a query whose batch stops in the middle.

Usage: killed_driver.py FOLDER SERVERS STREAM JAVA_OPTIONS
"""

from __future__ import annotations

import sys
from pathlib import Path

from liftbridge_aio.spark.local_session import local_session
from spark.halting_query import SMALL_BATCHES, start_query

if __name__ == "__main__":
    folder, servers, stream = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    settings = {**SMALL_BATCHES, "spark.driver.extraJavaOptions": sys.argv[4]}
    with local_session("killed", folder / "killed", master="local[1]", settings=settings) as spark:
        start_query(spark, folder, servers, stream, halt="wait").awaitTermination()
