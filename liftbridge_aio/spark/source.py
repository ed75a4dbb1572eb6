"""The data source `liftbridge`: the class that Spark calls to read and write.

Spark pickles sources, readers and writers between the driver, its planning processes and the
executors. So none of them holds a connection, and modules that only executors need are imported
there.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .core.options import ExtraColumns, ReadOptions, WriteOptions
from .errors import InvalidColumns
from .read.pushdown import PushdownReader
from .read.readers import BatchReader, StreamReader
from .read.schema import spark_schema, spark_types


class LiftbridgeDataSource(DataSource):
    """Streams of Liftbridge as DataFrames, to read and to write; see the package's README."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "liftbridge"

    def schema(self) -> str:
        """Return the columns of a read.

        Raises:
            InvalidOption: an option for columns is neither true nor false.
        """
        return spark_schema(ExtraColumns.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query.

        Raises:
            InvalidOption: an option is wrong or missing.
            InvalidColumns: `schema` was given and is not that of a stream.
        """
        options = ReadOptions.parse(self.options, streaming=False)
        _check_columns(schema, options.columns)
        if options.pushdown_filters:
            return PushdownReader(options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query.

        Raises:
            InvalidOption: an option is wrong or missing.
            InvalidColumns: `schema` was given and is not that of a stream.
        """
        options = ReadOptions.parse(self.options, streaming=True)
        _check_columns(schema, options.columns)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write.

        Raises:
            InvalidOption: an option is wrong or missing.
            InvalidColumns: the DataFrame has columns that cannot be written.
        """
        from .write.sink import BatchSink  # noqa: PLC0415 - reading has no use for it

        return BatchSink(WriteOptions.parse(self.options, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a micro-batch.

        Raises:
            InvalidOption: an option is wrong or missing.
            InvalidColumns: the DataFrame has columns that cannot be written.
        """
        from .write.sink import StreamSink  # noqa: PLC0415 - reading has no use for it

        return StreamSink(WriteOptions.parse(self.options, streaming=True), schema, overwrite)


def _check_columns(schema: StructType, columns: ExtraColumns) -> None:
    expected = spark_types(columns)
    given = {field.name: field.dataType.simpleString() for field in schema}
    if list(given.items()) != list(expected.items()):
        error = InvalidColumns(f"a stream has the columns {expected}, not {given}")
        error.hint = "leave schema() out; options such as includeHeaders add columns"
        raise error
