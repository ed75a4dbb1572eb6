"""A driver of its own, which a test ends with kill -9 while it commits a batch exactly once.

Usage: committing_driver.py FOLDER SERVERS STREAM
"""

from __future__ import annotations

import sys
from pathlib import Path

from liftbridge_aio.spark.session.local_session import local_session
from support.spark.halting_query import SMALL_BATCHES, start_query

if __name__ == "__main__":
    folder, servers, stream = Path(sys.argv[1]), *sys.argv[2:]
    with local_session(
        "killed", folder / "killed", master="local[1]", settings=SMALL_BATCHES
    ) as spark:
        query = start_query(spark, folder, servers, stream, halt="never", delivery="exactly_once")
        query.awaitTermination()
