"""The data source `liftbridge` of Spark, through PySpark.

    from liftbridge_aio.spark import register

    register(spark)
    orders = spark.readStream.format("liftbridge").option("servers", …).option("stream", …).load()

It needs the extra `[spark]`; nothing else of the package does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import SparkSourceError
from .process_warnings import tell_unheard_warnings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkSourceError", "register"]

tell_unheard_warnings()  # here, as every process of Spark that runs anything of ours imports this


def register(spark: SparkSession) -> None:
    """Make the format `liftbridge` known to a session. May be called again.

    The package has to be installed wherever Spark runs Python: on the driver and on the executors.

    Raises:
        ImportError: pyspark or pyarrow is missing, or too old.
    """
    try:
        import pyarrow as _  # noqa: F401, ICN001, PLC0415 - fails here rather than on executors

        from .source import LiftbridgeDataSource  # noqa: PLC0415 - needs pyspark
    except ImportError as error:
        text = f"Spark's parts are missing ({error}): pip install 'liftbridge-aio[spark]'"
        raise ImportError(text) from error
    spark.dataSource.register(LiftbridgeDataSource)
