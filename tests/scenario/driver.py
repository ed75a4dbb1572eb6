"""The Spark driver: `python -m scenario.driver FOLDER SERVERS`, in a process of its own.

One query writes totals of the invoices exactly once, another one archives the invoices. Where they
stand is in the folder, so that the next driver goes on there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from liftbridge_aio.spark.pipelines.archive import ArchivePlan, start_archive
from liftbridge_aio.spark.session.local_session import local_session
from scenario.orders import INVOICES, LATENESS, TOTALS, WINDOW
from support.spark.totals_pipeline import TotalsPlan, start_totals

_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}


def main(folder: Path, servers: str) -> None:
    """Run until a query fails, or until the process is ended."""
    totals = TotalsPlan(
        servers=servers,
        events=INVOICES,
        totals=TOTALS,
        checkpoint=str(folder / "totals"),
        window=WINDOW,
        lateness=LATENESS,
    )
    archive = ArchivePlan(servers=servers, streams=(INVOICES,), folder=folder / "archive")
    with local_session(
        "scenario", folder / "spark", master="local[2]", settings=_SETTINGS
    ) as spark:
        queries = (
            start_totals(spark, totals, "200 milliseconds"),
            start_archive(spark, archive, every="500 milliseconds"),
        )
        while True:
            for query in queries:
                if not query.isActive:
                    raise SystemExit(str(query.exception()))
            time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
