"""Run the pipeline that a file describes: views for sources and steps, a query for each sink."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.spark.core.pipeline_file import (
    FAIL,
    PipelineFile,
    PipelineFileError,
    Sink,
    Source,
    Step,
)
from liftbridge_aio.spark.core.row_columns import row_columns
from liftbridge_aio.spark.core.toml_lines import FIRST_LINE, KeyPath
from liftbridge_aio.spark.errors import BadRecord, InvalidColumns
from liftbridge_aio.spark.session.query_progress import BAD_RECORDS

from .checkpoints import note_query
from .json_columns import JSON_OPTIONS
from .pipeline_folders import check_folders
from .source_rows import source_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MESSAGE: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
"""The parts of the column `message`, which views of JSON values have beside their fields."""
_PARTS: Final = frozenset({"key", "headers", "partition", "stream", "topic"})
"""Columns of a result that are no fields of a value."""
_BAD: Final = "__bad_record"
"""The field in which Spark keeps a value that is not JSON of the other fields."""
_ORIGIN: Final = (("stream", "topic"), ("partition", "partition"), ("offset", "offset"))
"""Headers of a dead letter, below `dead-letter-`, and the columns that they are from."""
_NEAR: Final = 0.9
"""Similarity, by difflib, from which a setting that Spark does not know is misspelt."""
_SQL_LINE: Final = re.compile(r"\(?line (\d+),? (?:position|pos) ")


def analyse(
    spark: SparkSession, pipeline: PipelineFile, folder: Path
) -> list[tuple[Sink, DataFrame]]:
    """Return the rows for each sink. No server is called.

    Args:
        spark: a session in which the source is registered.
        pipeline: what the file describes.
        folder: where the file is; paths in it begin there.

    Raises:
        PipelineFileError: a type, a statement, a function, a result or a folder is wrong; the text
            names the line of the file.
    """
    check_folders(pipeline, folder)
    frames: dict[str, DataFrame] = {}
    bad: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        with _located(pipeline, ("sources", source.name, "value")):
            frames[source.name], bad[source.name] = _views(spark, source)
        if source.watermark is not None:
            with _located(pipeline, ("sources", source.name, "watermark")):
                mark, rows = source.watermark, frames[source.name]
                frames[source.name] = rows.withWatermark(mark.column, mark.delay)
        frames[source.name].createOrReplaceTempView(source.name)
    for step in pipeline.steps:
        place = ("sql", FIRST_LINE) if step.sql else ("python",)
        with _located(pipeline, ("steps", step.name, *place)):
            frames[step.name] = _result(spark, step, frames, folder)
        frames[step.name].createOrReplaceTempView(step.name)
    return [
        (sink, _rows(spark, pipeline, sink, (bad if sink.dead_letters else frames)[sink.source]))
        for sink in pipeline.sinks
    ]


def unknown_settings(spark: SparkSession, pipeline: PipelineFile) -> list[str]:
    """Return what is probably wrong with the settings of Spark, each with its line.

    Libraries have settings of their own, so only those count that are similar to one of Spark's,
    or that begin as those of its SQL do.
    """
    java: Any = spark._jvm  # noqa: SLF001 - there is no public list of all settings
    entries = java.org.apache.spark.internal.config.ConfigEntry
    unknown = [name for name in pipeline.settings if entries.findEntry(name) is None]
    if not unknown:
        return []
    known = [entry.key() for entry in entries.listAllEntries().toArray()]
    mistakes = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, 1, _NEAR)
        if near or (name.startswith("spark.sql.") and not name.startswith("spark.sql.catalog.")):
            hint = f"; did you mean {near[0]}?" if near else ""
            problem = f"Spark knows no setting {name}{hint}"
            mistakes.append(pipeline.error(("spark", name), problem).message)
    return mistakes


def start_pipeline(
    spark: SparkSession,
    pipeline: PipelineFile,
    folder: Path,
    write_line: Callable[[str], None],
) -> dict[str, StreamingQuery]:
    """Start a query for each sink, and return them by the names of the sinks.

    Args:
        spark: a session in which the source is registered.
        pipeline: what the file describes.
        folder: where the file is; paths in it begin there.
        write_line: called with each row for the console.

    Raises:
        PipelineFileError: see `analyse`; no query was started.
    """
    analysed = analyse(spark, pipeline, folder)
    checkpoint = folder / pipeline.checkpoint
    queries: dict[str, StreamingQuery] = {}
    try:
        for sink, rows in analysed:
            writer = (
                _to(sink, rows, folder, write_line)
                .outputMode(sink.mode)
                .option("checkpointLocation", str(checkpoint / sink.name))
                .queryName(sink.name)
            )
            if pipeline.trigger is None:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=pipeline.trigger)
            with _located(pipeline, ("sinks", sink.name)):
                queries[sink.name] = query = writer.start()
            if sink.kind == "parquet":
                note_query(folder / sink.target, query.id)
    except BaseException:
        for query in queries.values():
            query.stop()
        raise
    return queries


def _views(spark: SparkSession, source: Source) -> tuple[DataFrame, DataFrame]:
    """Return the rows of a source, and its bad records as dead letters."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional
    from pyspark.sql.types import StructType  # noqa: PLC0415 - optional

    rows = source_rows(spark, source.options, source.name)
    if source.value is None:
        return rows, rows
    fields: Any = StructType.fromDDL(source.value)
    fields = fields.add(_BAD, "string")
    json = f.from_json(
        f.col("value").cast("string"), fields, {"columnNameOfCorruptRecord": _BAD}
    ).alias("fields")
    parsed = rows.select(json, f.struct(*_MESSAGE).alias("message"), "value")
    # An empty value makes no row, and no text of a bad one either.
    is_bad = f.col("fields").isNull() | f.col(f"fields.{_BAD}").isNotNull()
    good = ~is_bad
    if source.on_bad_record == FAIL:
        good = f.when(is_bad, f.raise_error(_complaint(source))).otherwise(good)
    counted = parsed.observe(f"{BAD_RECORDS}{source.name}", f.count_if(is_bad).alias("bad"))
    return (
        counted.where(good).select("fields.*", "message").drop(_BAD),
        parsed.where(is_bad).select("message.key", "value", _dead_letter_headers()),
    )


def _complaint(source: Source) -> Column:
    """Return the text of the error about a bad record."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    return f.format_string(
        f"[{BadRecord.code}] the value of %s/%s at offset %s is not JSON with the fields of the"
        f" source {source.name}; to go on without it, set on_bad_record to skip or dead letter",
        *(f.col(f"message.{column}") for _, column in _ORIGIN),
    )


def _dead_letter_headers() -> Column:
    """Return the headers of a bad record, and where it was."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    origin = f.array(
        *(
            f.struct(
                f.lit(f"dead-letter-{name}").alias("key"),
                f.col(f"message.{column}").cast("string").cast("binary").alias("value"),
            )
            for name, column in _ORIGIN
        )
    )
    own = f.coalesce("message.headers", f.array().cast("array<struct<key:string,value:binary>>"))
    return f.concat(own, origin).alias("headers")


def _result(
    spark: SparkSession, step: Step, frames: dict[str, DataFrame], folder: Path
) -> DataFrame:
    from pyspark.sql import DataFrame as Rows  # noqa: PLC0415 - optional

    if step.sql is not None:
        return spark.sql(step.sql)
    module, name = step.python or ("", "")
    result = getattr(_module(module, folder), name)(dict(frames))
    if not isinstance(result, Rows):
        raise TypeError(f"{name} returned {type(result).__name__}, not a DataFrame")
    return result


def _module(name: str, folder: Path) -> Any:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = folder / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module of Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rows(spark: SparkSession, pipeline: PipelineFile, sink: Sink, rows: DataFrame) -> DataFrame:
    """Return the rows as the sink takes them, after checking that it can."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    path = ("sinks", sink.name)
    if sink.kind == "stream":
        if "value" not in rows.columns:
            fields = [name for name in rows.columns if name.lower() not in _PARTS]
            kept = [name for name in rows.columns if name.lower() in _PARTS]
            rows = rows.select(*kept, f.to_json(f.struct(*fields), JSON_OPTIONS).alias("value"))
        try:
            row_columns(rows.schema.fields, stream=sink.options["stream"])
        except InvalidColumns as error:
            raise pipeline.error((*path, "from"), str(error)) from None
    for name in sink.partition_by:
        if name not in rows.columns:
            raise pipeline.error(
                (*path, "partition_by"),
                f"{sink.source} has no column {name}, only {', '.join(rows.columns)}",
            )
    with _located(pipeline, (*path, "mode")):
        _check_streaming(spark, rows, sink.mode)
    return rows


def _check_streaming(spark: SparkSession, rows: DataFrame, mode: str) -> None:
    """Check what Spark checks when a query starts, such as that totals have a watermark."""
    java: Any = spark._jvm  # noqa: SLF001 - there is no public way to check without a start
    modes = java.org.apache.spark.sql.streaming.OutputMode
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(plan, modes.Append() if mode == "append" else modes.Complete())


def _to(sink: Sink, rows: DataFrame, folder: Path, write_line: Callable[[str], None]) -> Any:
    if sink.kind == "stream":
        return rows.writeStream.format("liftbridge").options(**sink.options)
    if sink.kind == "parquet":
        writer = rows.writeStream.format("parquet").option("path", str(folder / sink.target))
        return writer.partitionBy(*sink.partition_by)

    from pyspark.sql import functions as f  # noqa: PLC0415 - optional

    def show(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - Spark's signature
        for row in batch.select(f.to_json(f.struct("*"), JSON_OPTIONS)).toLocalIterator():
            write_line(row[0])

    return rows.writeStream.foreachBatch(show)


@contextmanager
def _located(pipeline: PipelineFile, path: KeyPath) -> Iterator[None]:
    """Turn errors of Spark and of functions into errors at a line of the file."""
    try:
        yield
    except PipelineFileError:
        raise
    except Exception as error:
        text = str(error).strip()
        found = _SQL_LINE.search(text) if path[-1] == FIRST_LINE else None
        problem = text.partition("\n")[0] or type(error).__name__
        if not type(error).__module__.startswith("pyspark"):
            problem = f"{type(error).__name__}: {problem}"
        raise pipeline.error(path, problem, int(found[1]) - 1 if found else 0) from error
