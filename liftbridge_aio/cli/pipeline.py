"""`liftbridge-aio pipeline`: run pipelines on Spark, which starts and ends with the command."""

from __future__ import annotations

import asyncio
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, Parameter, validators

from liftbridge_aio.errors import UsageError
from liftbridge_aio.options import ClientOptions
from liftbridge_aio.tls import TLS

from .arguments import DURATION_HELP, BadArgument, parse_duration
from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags, Integer
from .output import say, write_json, write_line, write_table
from .running import CLIENT, TABLES, in_event_loop, stop_signals

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from liftbridge_aio.spark.pipelines.archive import ArchivePlan
    from liftbridge_aio.spark.session.process_warnings import WarningsInLog
    from liftbridge_aio.spark.session.query_progress import ProgressCounter
    from liftbridge_aio.spark.session.session_thread import SessionThread

    from .console import Console
    from .totals_scenario import TotalsReport

app = App(
    name="pipeline",
    help="Run pipelines on Spark, which starts and ends with them, and count what they wrote.",
)

_INTERRUPTED: Final = 130
_CHECK_INTERVAL: Final = 0.3
"""Seconds between two checks of a query."""
_REPORT_INTERVAL: Final = 10.0
_AT_LEAST_ONE: Final = validators.Number(gte=1)

Master = Annotated[str, Parameter(help="Spark's master URL.")]


@app.command
@in_event_loop(*CLIENT, *TABLES)
async def totals(
    *,
    events: Annotated[
        Integer, Parameter(validator=validators.Number(gte=1000), help="Sales to publish.")
    ] = 24_000,
    limit: Annotated[str, Parameter(help=f"Timeout of the whole run ({DURATION_HELP}).")] = "150s",
    as_json: AsJson = False,
) -> int:
    """Run an example pipeline: sales in one stream, totals of time windows in another.

    A client publishes to the embedded broker, Spark computes the totals, and a subscriber reads
    them meanwhile. The exit code is 0 only if the totals match what was published.

    For example:

        liftbridge-aio pipeline totals
    """
    _check_installed()
    seconds = parse_duration(limit)
    # help must not wait for these
    from .console import Console, step_printer  # noqa: PLC0415
    from .totals_scenario import TotalsScenario  # noqa: PLC0415

    console = Console(stderr=as_json, emoji=False, highlight=False)
    console.print("[bold]liftbridge-aio pipeline totals[/]: an embedded broker and Spark")
    with _own_folder() as folder:
        report = await TotalsScenario(events, folder, seconds, step_printer(console)).run()
    if as_json:
        write_json(asdict(report) | {"held": report.held})
    else:
        _print_results(console, report)
    if not report.held:
        say("error: the totals do not match what was published")
    return 0 if report.held else 1


def _print_results(console: Console, report: TotalsReport) -> None:
    from .console import print_checks, print_figures  # noqa: PLC0415 (help must not wait for it)

    print_figures(
        console,
        (
            ("events published", f"{report.events:,}"),
            ("totals written by Spark", f"{report.totals:,}"),
            ("of them, read before the last event was published", f"{report.early_totals:,}"),
            ("sales in all totals", f"{report.counted:,}"),
            ("batches", f"{report.batches:,}"),
            ("seconds to start Spark", f"{report.start_seconds:.1f}"),
            ("seconds in all", f"{report.seconds:.1f}"),
        ),
    )
    print_checks(console, report.checks)


@app.command(usage="Usage: liftbridge-aio pipeline archive --to PATH [OPTIONS] [STREAMS...]")
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
    option: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="name=value, an option of Spark's source, such as failOnDataLoss=false; may be"
            " repeated.",
        ),
    ] = (),
    master: Master = "local[*]",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Copy streams to Parquet files, up to now or continuously; the next run continues from there.

    Files are in stream=…/date=…/batch=N/ (dates in UTC). A batch that was interrupted is written
    again and replaces its files, so that nothing is stored twice. Ctrl-C and SIGTERM interrupt the
    running batch and end the command cleanly; with --follow this is the way to end it.

    For example:

        liftbridge-aio pipeline archive orders --to archive
        liftbridge-aio pipeline archive --pattern "orders.*" --to archive --follow
    """
    _check_installed()
    plan = _archive_plan(streams, pattern, to, start, max_messages, option, connection)
    trigger = f"{max(1, round(parse_duration(every) * 1000))} milliseconds" if follow else None
    with stop_signals() as stop, _own_folder() as folder:
        # help must not wait for these
        from liftbridge_aio.spark.pipelines.archive import archive_lock, start_archive  # noqa: PLC0415
        from liftbridge_aio.spark.session.process_warnings import WarningsInLog  # noqa: PLC0415
        from liftbridge_aio.spark.session.query_progress import ProgressCounter  # noqa: PLC0415
        from liftbridge_aio.spark.session.session_thread import SessionThread  # noqa: PLC0415

        _check(plan)
        counter = ProgressCounter()
        spark_warnings = WarningsInLog(folder / "spark.log")
        with archive_lock(plan.folder):
            say("starting Spark")
            async with SessionThread("archive", folder, master=master) as spark:
                query = await spark.call(
                    lambda session: start_archive(session, plan, every=trigger)
                )
                say(f"archiving to {plan.folder}")
                async with _stopped_at_the_end(spark, query):
                    ended = await _wait_for_end(spark, query, counter, spark_warnings, stop)
                await spark.call(lambda _: counter.update(query))
        _warn(spark_warnings)
    done = counter.total
    if as_json:
        write_json(
            {"messages": done.rows_read, "batches": done.batches, "folder": str(plan.folder)}
        )
    else:
        write_line(f"{done.rows_read} messages in {done.batches} batches to {plan.folder}")
    return 0 if ended or follow else _INTERRUPTED


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
        message = "name the streams to archive, or give a --pattern for their names"
        raise BadArgument(message)
    options = _client_settings(connection.client().options)
    for pair in option:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            message = f"{pair!r} is not an option; write name=value"
            raise BadArgument(message)
        options[name] = value
    return ArchivePlan(
        servers=",".join(connection.addresses),
        streams=streams,
        pattern=pattern,
        folder=to.resolve(),
        start=start,
        max_messages=max_messages,
        options=options,
    )


def _check(plan: ArchivePlan) -> None:
    """Check a plan before Spark starts."""
    from liftbridge_aio.spark.core.option_table import UnknownOption  # noqa: PLC0415
    from liftbridge_aio.spark.pipelines.archive import check_plan  # noqa: PLC0415 (help must not wait)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownOption)  # as on a command line it is a mistake
        try:
            check_plan(plan)
        except UnknownOption as unknown:
            raise BadArgument(str(unknown)) from None


def _warn(found: WarningsInLog) -> None:
    for text in found.new():
        say(f"warning: {text}")


def _client_settings(options: ClientOptions) -> dict[str, str]:
    """Return the client's options from flags and environment as options of Spark's source."""
    default = ClientOptions()
    settings = {}
    for field in fields(ClientOptions):
        value = getattr(options, field.name)
        if field.name != "tls" and value != getattr(default, field.name):
            settings[f"liftbridge.{field.name}"] = str(value).lower()
    if options.tls is not None:
        settings |= _tls_settings(options.tls)
    return settings


def _tls_settings(tls: TLS) -> dict[str, str]:
    """Return files and names; Spark's processes read the password from their environment."""
    files = {name: getattr(tls, name) for name in ("ca", "cert", "key")}
    settings = {
        f"liftbridge.tls_{name}": str(Path(path).resolve())
        for name, path in files.items()
        if path is not None
    }
    if tls.server_name is not None:
        settings["liftbridge.tls_server_name"] = tls.server_name
    return {"liftbridge.tls": "true", **settings}


@asynccontextmanager
async def _stopped_at_the_end(spark: SessionThread, query: StreamingQuery) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await spark.call(lambda _: query.stop())


async def _wait_for_end(
    spark: SessionThread,
    query: StreamingQuery,
    counter: ProgressCounter,
    spark_warnings: WarningsInLog,
    stop: asyncio.Event,
) -> bool:
    """Wait until a query ends or `stop` is set, and report progress; return True if it ended."""
    reported = time.monotonic()
    rows_reported = 0
    while not stop.is_set():
        active: bool = await spark.call(lambda _: query.isActive)
        await spark.call(lambda _: counter.update(query))
        _warn(spark_warnings)
        if not active:
            return True
        rows = counter.total.rows_read
        if rows > rows_reported and time.monotonic() - reported >= _REPORT_INTERVAL:
            reported, rows_reported = time.monotonic(), rows
            say(f"{rows:,} messages in {counter.total.batches:,} batches so far")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _CHECK_INTERVAL)
    return False


@contextmanager
def _own_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="liftbridge-spark-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def _check_installed() -> None:
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        text = f"pipelines need {' and '.join(missing)}: pip install 'liftbridge-aio[spark]'"
        raise UsageError(text)
