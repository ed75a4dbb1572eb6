"""`liftbridge-aio pipeline`: run pipelines on Spark, which starts and ends with the command."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, Parameter, validators

from .arguments import DURATION_HELP, BadArgument, parse_duration
from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags, Integer
from .output import say, write_json, write_line, write_table
from .pipeline_runs import (
    check_installed,
    client_settings,
    run_queries,
    spark_session,
    strict_options,
)
from .running import CLIENT, TABLES, in_event_loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from liftbridge_aio.spark.core.pipeline_file import PipelineFile
    from liftbridge_aio.spark.pipelines.archive import ArchivePlan


app = App(
    name="pipeline",
    help="Run pipelines on Spark, which starts and ends with them, and count what they wrote.",
)

_INTERRUPTED: Final = 130
_AT_LEAST_ONE: Final = validators.Number(gte=1)

_FEW_TASKS: Final = {"spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
"""Spark's default, 200 tasks for each shuffle, is for clusters."""

Master = Annotated[str, Parameter(help="Spark's master URL.")]
SourceOptions = Annotated[
    tuple[str, ...],
    Parameter(
        name="--option",
        negative="",
        show_default=False,
        help="name=value, an option of Spark's source, such as failOnDataLoss=false; may be"
        " repeated.",
    ),
]
ReaderOptions = Annotated[
    tuple[str, ...],
    Parameter(
        name="--read-option",
        negative="",
        show_default=False,
        help="name=value, an option with which Spark reads a table that is no archive, such as"
        " header=true; may be repeated.",
    ),
]
SinkOptions = Annotated[
    tuple[str, ...],
    Parameter(
        name="--option",
        negative="",
        show_default=False,
        help="name=value, an option of Spark's sink, such as publishTimeout=60; may be repeated.",
    ),
]


_ARCHIVE_USAGE: Final = "Usage: liftbridge-aio pipeline archive --to PATH [OPTIONS] [STREAMS...]"
_REPLAY_USAGE: Final = "Usage: liftbridge-aio pipeline replay --from PATH [OPTIONS] [STREAMS...]"


@app.command(usage=_ARCHIVE_USAGE)
@in_event_loop(*TABLES)
async def archive(
    streams: Annotated[tuple[str, ...], Parameter(help="Streams to archive.")] = (),
    /,
    *,
    to: Annotated[Path, Parameter(help="Folder of the archive, created if missing.")],
    pattern: Annotated[
        str | None, Parameter(help="Regular expression for streams, instead of names.")
    ] = None,
    follow: Annotated[
        bool,
        Parameter(
            negative="", help="Continue with new messages, instead of ending at the newest one."
        ),
    ] = False,
    every: Annotated[
        str, Parameter(help=f"With --follow, interval between batches ({DURATION_HELP}).")
    ] = "30s",
    start: Annotated[
        Literal["earliest", "latest"], Parameter(help="Where a new archive begins.")
    ] = "earliest",
    max_messages: Annotated[
        Integer, Parameter(validator=_AT_LEAST_ONE, help="Most messages of a batch.")
    ] = 500_000,
    compact: Annotated[
        bool, Parameter(help="Merge the files of each date when it is over in UTC.")
    ] = True,
    option: SourceOptions = (),
    master: Master = "local[*]",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Copy streams to Parquet files, up to now or continuously; the next run continues from there.

    Files are in stream=…/date=…/batch=N/ (dates in UTC). A batch that was interrupted is written
    again and replaces its files, so that nothing is stored twice. The files of a date that is over
    are merged below _compacted/; read archives with read_archive(). Ctrl-C and SIGTERM interrupt
    the running batch and end the command cleanly; with --follow this is the way to end it.

    For example:

        liftbridge-aio pipeline archive orders --to archive
        liftbridge-aio pipeline archive --pattern "orders.*" --to archive --follow
    """
    check_installed()
    plan = _archive_plan(streams, pattern, to, start, max_messages, option, connection)
    plan = replace(plan, compacted=compact)
    trigger = f"{max(1, round(parse_duration(every) * 1000))} milliseconds" if follow else None
    # help must not wait for these
    from liftbridge_aio.spark.pipelines.archive import (  # noqa: PLC0415
        archive_lock,
        check_plan,
        start_archive,
    )

    with strict_options():
        check_plan(plan)
    with archive_lock(plan.folder):
        ended = await run_queries(
            "archive",
            master,
            lambda session: {"archive": start_archive(session, plan, every=trigger)},
            f"archiving to {plan.folder}",
            as_json=as_json,
        )
    done = ended.total
    if as_json:
        write_json(done.as_json() | {"messages": done.rows, "folder": str(plan.folder)})
    else:
        write_line(f"{done.rows} messages in {done.batches} batches to {plan.folder}")
    return 0 if ended.complete or follow else _INTERRUPTED


@app.command(usage=_REPLAY_USAGE)
@in_event_loop(*CLIENT, *TABLES)
async def replay(
    streams: Annotated[
        tuple[str, ...], Parameter(help="Archived streams to publish; default: all of them.")
    ] = (),
    /,
    *,
    table: Annotated[
        Path, Parameter(name="--from", help="Folder of an archive, or path of another table.")
    ],
    to: Annotated[
        str | None,
        Parameter(help="Stream to publish to. Default: each message to the stream it is from."),
    ] = None,
    rate: Annotated[
        Integer | None, Parameter(validator=_AT_LEAST_ONE, help="Most messages per second.")
    ] = None,
    delivery: Annotated[
        Literal["exactly_once", "at_least_once"],
        Parameter(help="With exactly_once each message is committed once, by transactions."),
    ] = "exactly_once",
    table_format: Annotated[
        str, Parameter(name="--format", help="Spark's format of a table that is no archive.")
    ] = "parquet",
    read_option: ReaderOptions = (),
    schema: Annotated[
        str | None,
        Parameter(
            help="Columns of a table that is no archive, as 'value string, partition int, offset"
            " bigint'. Default: those that it has."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, Parameter(help="Folder for the position. Default: one in the archive.")
    ] = None,
    max_messages: Annotated[
        Integer,
        Parameter(
            validator=_AT_LEAST_ONE,
            help="Offsets of a partition that are published together, of a table that is no"
            " archive; of an archive this is a batch.",
        ),
    ] = 500_000,
    option: SinkOptions = (),
    master: Master = "local[*]",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Publish an archive to streams again, or any table with its columns.

    Messages keep partition, key, value, headers and the order in each partition; offsets and
    timestamps are new. The streams must exist, with at least as many partitions. An interrupted
    replay continues when the same command is given again; Ctrl-C interrupts it. One that is
    complete publishes what was archived since.

    For example:

        liftbridge-aio pipeline replay orders --from archive --to orders-again --rate 5000
        liftbridge-aio pipeline replay --from orders.csv --format csv --read-option header=true \
            --schema "value string, partition int, offset bigint" --to orders --checkpoint replayed
    """
    check_installed()
    # help must not wait for these
    from liftbridge_aio.spark.pipelines.replay import ReplayPlan, replay_lock  # noqa: PLC0415

    from .pipeline_replay import run_replay  # noqa: PLC0415

    with strict_options():
        plan = ReplayPlan(
            servers=",".join(connection.addresses),
            table=table.resolve(),
            streams=streams,
            to=to,
            format=table_format,
            checkpoint=None if checkpoint is None else checkpoint.resolve(),
            rate=rate,
            max_messages=max_messages,
            exactly_once=delivery == "exactly_once",
            options=_options(option, connection),
            read_options=_pairs(read_option),
            schema=schema,
        )
    with replay_lock(plan):
        ended = await run_replay(plan, master, as_json=as_json)
    done = ended.total
    target = "their streams" if to is None else to
    if as_json:
        write_json(done.as_json() | {"checkpoint": str(plan.position)})
    else:
        write_line(f"{done.rows} messages in {done.batches} parts to {target}")
    return 0 if ended.complete else _INTERRUPTED


@app.command
@in_event_loop(*TABLES)
async def run(
    file: Annotated[Path, Parameter(help="TOML file that describes the pipeline.")],
    /,
    *,
    master: Master = "local[*]",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Run a pipeline that a TOML file describes: sources, SQL or Python, sinks.

    The file is checked first; errors name the line. The next run continues from the checkpoint that
    the file names. Rows for the console go to stdout, as JSON. Ctrl-C and SIGTERM end the command
    cleanly. The guide describes the format.

    For example:

        liftbridge-aio pipeline run totals.toml
    """
    check_installed()
    pipeline = _parsed(file, connection)
    # help must not wait for this
    from liftbridge_aio.spark.pipelines.file_pipeline import (  # noqa: PLC0415
        start_pipeline,
        unknown_settings,
    )
    from liftbridge_aio.spark.pipelines.pipeline_folders import pipeline_lock  # noqa: PLC0415

    folder = file.resolve().parent

    def start(session: SparkSession) -> dict[str, StreamingQuery]:
        _warn_of(unknown_settings(session, pipeline))
        return start_pipeline(session, pipeline, folder, write_line)

    with pipeline_lock(pipeline, folder):
        ended = await run_queries(
            f"pipeline {file.stem}",
            master,
            start,
            f"running {file}",
            as_json=as_json,
            settings=(_FEW_TASKS if master.startswith("local") else {}) | dict(pipeline.settings),
        )
    if as_json:
        sinks = {name: done.as_json() for name, done in ended.totals.items()}
        write_json(ended.total.as_json() | {"sinks": sinks})
    else:
        for name, done in ended.totals.items():
            say(f"{name}: {done.rows} messages in {done.batches} batches{done.bad}")
    return 0 if ended.complete or pipeline.trigger else _INTERRUPTED


@app.command
@in_event_loop(*TABLES)
async def check(
    file: Annotated[Path, Parameter(help="TOML file that describes the pipeline.")],
    /,
    *,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Check a file for `pipeline run`: its keys, options, SQL, functions and columns.

    Spark analyses the statements, so it is started; no server is called, and nothing is written.

    For example:

        liftbridge-aio pipeline check totals.toml
    """
    check_installed()
    pipeline = _parsed(file, connection)
    # help must not wait for these
    from liftbridge_aio.spark.pipelines.file_pipeline import (  # noqa: PLC0415
        analyse,
        unknown_settings,
    )
    from liftbridge_aio.spark.pipelines.pipeline_folders import check_folders  # noqa: PLC0415

    check_folders(pipeline, file.resolve().parent)
    settings = dict(pipeline.settings)
    async with spark_session(f"check {file.stem}", "local[1]", settings) as spark:
        _warn_of(await spark.call(lambda session: unknown_settings(session, pipeline)))
        results = await spark.call(
            lambda session: [
                (sink, rows.schema.simpleString())
                for sink, rows in analyse(session, pipeline, file.resolve().parent)
            ]
        )
    if as_json:
        write_json({"sinks": {sink.name: columns for sink, columns in results}})
    else:
        for sink, columns in results:
            write_line(f"{sink.name}: {columns}")


@app.command
@in_event_loop(*CLIENT, *TABLES)
async def repeats(
    streams: Annotated[tuple[str, ...], Parameter(help="Streams that Spark writes to.")],
    /,
    *,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Count rows that streams store more than once, because Spark ran a batch or task again.

    Rows are identified by the header that the sink writes with its option includeWriteId; messages
    without it are counted separately. Name all streams that one query writes to: rows of a task
    that are missing, though later ones are stored, count as gaps. Streams are read from start to
    present end; Spark is not needed.

    For example:

        liftbridge-aio pipeline repeats totals --json
    """
    from liftbridge_aio.spark.write_report import write_report  # noqa: PLC0415 (help must not wait)

    async with connection.client() as client:
        report = await write_report(client, *streams)
    if as_json:
        counts = {"rows": report.rows, "repeats": report.repeats, "gaps": report.gaps}
        batches = [batch._asdict() for batch in report.batches]
        write_json({"streams": streams, **counts, "unmarked": report.unmarked, "batches": batches})
        return
    if report.uneven:
        columns = ("Query", "Batch", "Rows", "Repeats", "Gaps", "Attempts")
        write_table("Batches with repeats or gaps", columns, report.uneven)
    write_line(report.summary)


def _archive_plan(
    streams: tuple[str, ...],
    pattern: str | None,
    to: Path,
    start: str,
    max_messages: int,
    option: tuple[str, ...],
    connection: ConnectionFlags,
) -> ArchivePlan:
    from liftbridge_aio.spark.pipelines.archive import ArchivePlan  # noqa: PLC0415 (help must not wait)

    if bool(streams) == bool(pattern):
        raise BadArgument("name the streams to archive, or give a --pattern for their names")
    return ArchivePlan(
        servers=",".join(connection.addresses),
        streams=streams,
        pattern=pattern,
        folder=to.resolve(),
        start=start,
        max_messages=max_messages,
        options=_options(option, connection),
    )


def _options(pairs: tuple[str, ...], connection: ConnectionFlags) -> dict[str, str]:
    """Return the options of a source or sink: those of the client, then those given."""
    return client_settings(connection.client().options) | _pairs(pairs)


def _pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the options that are given as `name=value`."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise BadArgument(f"{pair!r} is not an option; write name=value")
        options[name] = value
    return options


def _parsed(file: Path, connection: ConnectionFlags) -> PipelineFile:
    """Parse a file, before Spark starts."""
    from liftbridge_aio.spark.core.pipeline_file import parse_pipeline  # noqa: PLC0415

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"{file} cannot be read: {error}") from None
    options = client_settings(connection.client().options)
    pipeline = parse_pipeline(text, str(file), options, ",".join(connection.addresses))
    _warn_of(pipeline.mistakes)
    return pipeline


def _warn_of(mistakes: Iterable[str]) -> None:
    for text in mistakes:
        say(f"warning: {text}")
