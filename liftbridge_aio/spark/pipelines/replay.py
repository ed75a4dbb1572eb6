"""Publish an archive, or another table with its columns, into streams; resume where it stopped.

The rows are written in parts, one after the other: the batches of an archive, or ranges of offsets
of another table. Each part is a batch write with an id of its own, so that a part that is written
again after a crash is committed once, and the file `replay.json` in the checkpoint names the last
part that is complete. Within a part one task has all rows of a partition, in order.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from liftbridge_aio._runtime.file_lock import FileLock, FileLocked
from liftbridge_aio.errors import UsageError
from liftbridge_aio.spark.core.option_table import CONNECTION_NAMES, EXACTLY_ONCE_NAMES
from liftbridge_aio.spark.core.options import WriteOptions
from liftbridge_aio.spark.errors import InvalidColumns, InvalidOption

from .compaction import CHECKPOINT, ORDER, read_archive
from .json_file import read_json, replace_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_STATE: Final = "replay.json"
_LOCK: Final = "_lock"
_REPLAYS: Final = "_replays"
"""The folder in an archive with the checkpoints of its replays; readers of Parquet ignore it."""
_VERSION: Final = 1
_OWN_NAMES: Final = (*CONNECTION_NAMES, *EXACTLY_ONCE_NAMES, "stream", "topic", "delivery")
_NEEDED: Final = ("value", "partition", "offset")
_WHOLE_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_WRITTEN: Final = ("stream", "partition", "key", "value", "headers")
_STEPS_PER_SECOND: Final = 10
"""Steps in which a task with a rate hands its rows on."""


class ReplayRefused(UsageError):
    """The replay cannot be started or resumed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The rows to publish, and where.

    Attributes:
        servers: addresses as `host:port,host:port`.
        table: folder of an archive, or path of another table that Spark reads.
        streams: the archived streams to publish; empty: all of them.
        to: the stream to publish to; None: each row to the stream that it names.
        format: Spark's format of a table that is no archive.
        checkpoint: the folder with the position; None: one in the archive.
        rate: most rows per second; None: as many as possible.
        max_messages: the offsets of a part of a table that is no archive.
        exactly_once: True to commit each row once; False: rows of an interrupted part may repeat.
        options: further options of the sink, such as `publishTimeout`.
        read_options: options with which Spark reads a table that is no archive, such as `header`.
        schema: the columns of such a table, as `value string, partition int, offset bigint`; None:
            those that it has.
    """

    servers: str
    table: Path
    streams: tuple[str, ...] = ()
    to: str | None = None
    format: str = "parquet"
    checkpoint: Path | None = None
    rate: float | None = None
    max_messages: int = 500_000
    exactly_once: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    read_options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def __post_init__(self) -> None:
        """Check what is possible before Spark starts and servers are called.

        Raises:
            InvalidOption: an option is invalid, or the other fields determine it.
            ReplayRefused: the streams are ambiguous, or a path is missing.
        """
        own = {name.lower() for name in _OWN_NAMES}
        for name in self.options:
            if name.lower() in own:
                raise InvalidOption(f"a replay sets the option {name} itself")
        if not self.table.exists():
            raise ReplayRefused(f"{self.table} does not exist")
        if self.checkpoint is None and not self.is_archive:
            raise ReplayRefused(
                f"{self.table} is no archive: name a folder for the position of its replay"
            )
        if self.is_archive and (self.read_options or self.schema):
            raise _refused(
                f"{self.table} is an archive, which has its own format and columns",
                "leave out the schema and the options for reading",
            )
        if self.to is not None and len(self.streams) > 1:
            raise ReplayRefused(
                f"{len(self.streams)} streams cannot keep their order in one, {self.to}"
            )
        WriteOptions.parse(self.sink_options("0", "0"), streaming=False)

    @property
    def is_archive(self) -> bool:
        """True if the table was made by `pipeline archive`."""
        return (self.table / CHECKPOINT).is_dir()

    @property
    def position(self) -> Path:
        """The folder with the position."""
        names = ",".join(sorted(self.streams)) or "all"
        name = names if self.to is None else f"{names} to {self.to}"
        return self.checkpoint or self.table / _REPLAYS / quote(name, safe=" ,")

    def sink_options(self, replay: str, part: str) -> dict[str, str]:
        """Return the options of the sink for a part."""
        options = {**self.options, "servers": self.servers}
        if self.to is not None:
            options["stream"] = self.to
        if self.exactly_once:
            options["delivery"] = "exactly_once"
            options["writeId"] = f"replay {replay} part {part}"
            options["decisionStream"] = f"spark-decisions-replay-{replay}"
        return options


class Part(NamedTuple):
    """A part of a replay."""

    number: int
    rows: int


class Replay:
    """A replay, from where its checkpoint says. Only one process may run it: see `replay_lock`.

    Args:
        spark: a session in which the source is registered.
        plan: the rows, and where to publish them.

    Raises:
        InvalidColumns: the table lacks a column.
        ReplayRefused: the table or the plan does not fit the checkpoint, or has no such stream.
    """

    def __init__(self, spark: SparkSession, plan: ReplayPlan) -> None:
        self._plan = plan
        self._file = plan.position / _STATE
        self._state = self._resumed()
        self._rows, unit = self._table(spark)
        self._unit = unit
        self._tasks = 1
        self.parts = self._parts()
        """The parts that are not complete, in their order."""

    @property
    def rows_before(self) -> int:
        """The number of rows that are complete."""
        rows: int = self._state["rows"]
        return rows

    def write(self, part: Part) -> None:
        """Publish a part, and note it as complete. Blocks; may be repeated after any failure.

        Raises:
            PySparkException: it failed; the next run publishes it.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415 - optional

        rows = self._rows.where(f.expr(self._unit) == part.number)
        if self._plan.streams:
            rows = rows.where(f.col("stream").isin(*self._plan.streams))
        keys = [name for name in ("stream", "partition") if name in rows.columns]
        order = [name for name in ("stream", *ORDER) if name in rows.columns]
        rows = rows.repartition(self._tasks, *keys).sortWithinPartitions(*order)
        rows = rows.select(*(name for name in _WRITTEN if name in rows.columns))
        if self._plan.rate is not None:
            limit = partial(throttled, rate=self._plan.rate / self._tasks)
            rows = rows.mapInArrow(limit, rows.schema)
        if not self._file.exists():  # the id must be the same when the part is written again
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_json(self._file, self._state)
        options = self._plan.sink_options(self._state["id"], str(part.number))
        rows.write.format("liftbridge").mode("append").options(**options).save()
        self._state |= {"done": part.number, "rows": self.rows_before + part.rows}
        replace_json(self._file, self._state)

    def cancel(self) -> None:
        """Cancel `write` from another thread; it then fails."""
        self._rows.sparkSession.sparkContext.cancelAllJobs()

    def _resumed(self) -> dict[str, Any]:
        plan = self._plan
        asked = {"streams": sorted(plan.streams), "to": plan.to}
        state = read_json(self._file)
        if state is None:
            size = plan.max_messages
            new = {"version": _VERSION, "id": str(uuid.uuid4()), "done": -1, "rows": 0}
            state = {**new, "offsets": size, **asked}
        for name, value in {"version": _VERSION, **asked}.items():
            if state.get(name) != value:
                raise _refused(
                    f"{self._file} has {name} {state.get(name)!r}, and this replay {value!r}",
                    "name another checkpoint, or resume that replay as it began",
                )
        return state

    def _table(self, spark: SparkSession) -> tuple[DataFrame, str]:
        """Return the rows, and the SQL for the number of the part of a row."""
        plan = self._plan
        if plan.is_archive:
            return read_archive(spark, plan.table), "batch"
        reader = spark.read.format(plan.format).options(**plan.read_options)
        if plan.schema is not None:
            reader = reader.schema(plan.schema)
        rows = reader.load(str(plan.table))
        missing = [name for name in _NEEDED if name not in rows.columns]
        if missing:
            text = f"{plan.table} lacks {', '.join(missing)}; it has {', '.join(rows.columns)}"
            error = InvalidColumns(text)
            error.hint = "for CSV with a first line of names, read it with the option header=true"
            raise error
        types = {each.name: each.dataType.simpleString() for each in rows.schema}
        for name in ("partition", "offset"):
            if types[name] not in _WHOLE_NUMBERS:
                text = f"the column {name} of {plan.table} is {types[name]}, and no whole number"
                error = InvalidColumns(text)
                error.hint = "give a schema, such as 'value string, partition int, offset bigint'"
                raise error
        if "stream" not in rows.columns and "topic" in rows.columns:
            rows = rows.withColumnRenamed("topic", "stream")
        if "stream" not in rows.columns and (plan.to is None or plan.streams):
            raise InvalidColumns(f"{plan.table} has no column stream or topic")
        kept = [name for name in (*_WRITTEN, "offset") if name in rows.columns]
        return rows.select(*kept), f"offset div {self._state['offsets']}"

    def _parts(self) -> list[Part]:
        from pyspark.sql import functions as f  # noqa: PLC0415 - optional

        plan, state, rows = self._plan, self._state, self._rows
        keys = [name for name in ("stream", "partition") if name in rows.columns]
        counted = rows.groupBy(f.expr(self._unit).alias("part"), *keys).count().collect()
        found = {row["stream"] for row in counted} if "stream" in keys else set()
        if unknown := sorted(set(plan.streams) - found):
            raise _refused(
                f"{plan.table} has no messages of {', '.join(unknown)}",
                f"it has those of {', '.join(sorted(found)) or 'no stream'}",
            )
        if plan.streams:
            counted = [row for row in counted if row["stream"] in plan.streams]
        elif plan.to is not None and len(found) > 1:
            raise _refused(
                f"{plan.table} has {len(found)} streams, which cannot keep their order in one",
                f"name one of {', '.join(sorted(found))}",
            )
        tasks = len({tuple(row[name] for name in keys) for row in counted})
        self._tasks = max(1, min(tasks, rows.sparkSession.sparkContext.defaultParallelism))
        parts: dict[int, int] = {}
        for row in counted:
            parts[row["part"]] = parts.get(row["part"], 0) + row["count"]
        before = sum(rows for number, rows in parts.items() if number <= state["done"])
        if before != state["rows"]:
            raise _refused(
                f"{plan.table} has {before} rows in the parts that are complete, and had"
                f" {state['rows']} when they were published",
                "publish it as another replay, with another checkpoint",
            )
        return [Part(*each) for each in sorted(parts.items()) if each[0] > state["done"]]


@contextmanager
def replay_lock(plan: ReplayPlan) -> Iterator[None]:
    """Keep other commands from running the same replay within the context.

    Raises:
        ReplayRefused: another command runs it.
        OSError: the folder of the checkpoint cannot be created.
    """
    plan.position.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(plan.position / _LOCK)
    except FileLocked:
        raise ReplayRefused(f"another command runs the replay of {plan.position}") from None
    with lock:
        yield


def throttled(batches: Iterator[pa.RecordBatch], rate: float) -> Iterator[pa.RecordBatch]:
    """Pass rows on in small steps, no faster than `rate` per second."""
    started, passed = time.monotonic(), 0
    step = max(1, int(rate / _STEPS_PER_SECOND))
    for batch in batches:
        for begin in range(0, batch.num_rows, step):
            rows = batch.slice(begin, step)
            yield rows
            passed += rows.num_rows
            time.sleep(max(0.0, started + passed / rate - time.monotonic()))


def rate_settings(rate: float | None) -> dict[str, str]:
    """Return the settings of a session whose sink gets the rows of at most a second at once."""
    if rate is None:
        return {}
    return {"spark.sql.execution.arrow.maxRecordsPerBatch": str(max(1, min(10_000, int(rate))))}


def _refused(problem: str, hint: str) -> ReplayRefused:
    error = ReplayRefused(problem)
    error.hint = hint
    return error
