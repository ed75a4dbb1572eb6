"""The data source `liftbridge` of Spark, through PySpark.

    from liftbridge_aio.spark import register

    register(spark)
    orders = spark.readStream.format("liftbridge").option("servers", …).option("stream", …).load()

It needs the extra `[spark]`; no other part of the package does.

- `connection`: The connection of a Spark process: an event loop in a thread, and one client in it.
- `errors`: Errors of the Spark source and sink.
- `source`: The data source `liftbridge`: the class that Spark calls to read and write.
- `write_report`: Count repeated and missing rows in streams, by the ids that sinks put into
  headers.
- `core/`: Pure parts of the Spark source and sink: no event loop, clock, randomness or I/O.
- `pipelines/`: Pipelines that the command line runs.
- `read/`: Reading streams with Spark.
- `session/`: Local Spark sessions, and the progress and warnings of their queries.
- `write/`: Writing to streams with Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import SparkSourceError
from .pipelines.compaction import read_archive
from .session.process_warnings import write_unhandled_warnings
from .session.query_progress import query_lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkSourceError", "query_lag", "read_archive", "register"]

write_unhandled_warnings()  # here, as every process of Spark that uses the source imports this


def register(spark: SparkSession) -> None:
    """Register the format `liftbridge` with a session. May be called again.

    Install the package wherever Spark runs Python: on the driver and on the executors.

    Raises:
        ImportError: pyspark or pyarrow is missing, or too old.
    """
    try:
        import pyarrow as _  # noqa: F401, ICN001, PLC0415 - fails here rather than on executors

        from .source import LiftbridgeDataSource  # noqa: PLC0415 - needs pyspark
    except ImportError as error:
        raise ImportError(
            f"Spark's packages are missing ({error}): pip install 'liftbridge-aio[spark]'"
        ) from error
    spark.dataSource.register(LiftbridgeDataSource)


def __dir__() -> list[str]:
    return __all__
