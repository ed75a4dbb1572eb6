"""Run streaming queries for a command: Spark, progress, warnings, and the way to their end."""

from __future__ import annotations

import asyncio
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import UsageError
from liftbridge_aio.options import ClientOptions
from liftbridge_aio.tls import TLS

from .arguments import BadArgument
from .output import say, write_json
from .running import stop_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from liftbridge_aio.spark.session.process_warnings import WarningsInLog
    from liftbridge_aio.spark.session.query_progress import ProgressCounter
    from liftbridge_aio.spark.session.session_thread import SessionThread

CHECK_INTERVAL: Final = 0.3
"""Seconds between two checks of a run."""
_REPORT_INTERVAL: Final = 10.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of the rows that a query, or a whole run, has read."""

    rows: int = 0
    rate: float = 0.0
    """Rows per second since the last report; in the end, over the whole run."""
    lag: int = 0
    """Rows that are available and not read yet, as far as it is known."""
    batches: int = 0
    bad_records: int = 0
    """Messages among them that could not be parsed: as records of a source, or as acks."""

    def as_json(self) -> dict[str, float]:
        """Return the figures for a line of JSON."""
        return asdict(self) | {"rate": round(self.rate, 1)}

    def __str__(self) -> str:
        return (
            f"{self.rows:,} messages in {self.batches:,} batches so far,"
            f" {self.rate:,.0f} per second, lag {self.lag:,}{self.bad}"
        )

    @property
    def bad(self) -> str:
        """The number of bad records, for the end of a line; empty if there are none."""
        return f", {self.bad_records:,} bad records" if self.bad_records else ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run."""

    complete: bool
    """False if a signal ended it."""
    total: Totals
    totals: Mapping[str, Totals] = field(default_factory=dict)
    """The same by query."""


class Reporter:
    """Reports progress every ten seconds: on stderr, or as lines of JSON on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._started = self._reported = time.monotonic()
        self._rows_reported = 0

    def report(self, rows: int, batches: int, lag: int, bad_records: int = 0) -> None:
        """Report, if it is time and something happened since the last report."""
        now = time.monotonic()
        seconds = now - self._reported
        if rows == self._rows_reported or seconds < _REPORT_INTERVAL:
            return
        rate = (rows - self._rows_reported) / seconds
        totals = Totals(rows, rate, lag, batches, bad_records)
        self._reported, self._rows_reported = now, rows
        if self._as_json:
            write_json(totals.as_json())
        else:
            say(str(totals))

    def ended(self, rows: int, batches: int, lag: int, bad_records: int = 0) -> Totals:
        """Return the figures of the whole run."""
        seconds = max(time.monotonic() - self._started, 1e-3)
        return Totals(rows, rows / seconds, lag, batches, bad_records)


async def run_queries(
    name: str,
    master: str,
    start: Callable[[SparkSession], Mapping[str, StreamingQuery]],
    begun: str,
    *,
    as_json: bool,
    settings: Mapping[str, str] | None = None,
) -> Ended:
    """Start Spark and queries, report progress, and end them with the last query or by a signal.

    Args:
        name: of the run, for Spark's own tools.
        master: Spark's master URL.
        start: starts the queries, by name.
        begun: said when they are started.
        as_json: True to report progress as JSON.
        settings: further settings of the session.

    Raises:
        QueryFailed: a query failed.
    """
    from liftbridge_aio.spark.session.query_progress import ProgressCounter  # noqa: PLC0415 (help)

    with stop_signals() as stop:
        async with spark_session(name, master, settings) as spark:
            queries = await spark.call(start)
            say(begun)
            counters = {each: ProgressCounter() for each in queries}
            reporter = Reporter(as_json=as_json)
            async with _stopped_at_the_end(spark, queries):
                complete = await _wait_for_end(spark, queries, counters, reporter, stop)
            await spark.call(lambda _: _update(queries, counters))
    totals = {each: reporter.ended(*_sums({each: counter})) for each, counter in counters.items()}
    return Ended(complete, reporter.ended(*_sums(counters)), totals)


@asynccontextmanager
async def spark_session(
    name: str, master: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[SessionThread]:
    """Run Spark within the context, and show the warnings in its log until the end."""
    # help must not wait for these
    from liftbridge_aio.spark.session.process_warnings import WarningsInLog  # noqa: PLC0415
    from liftbridge_aio.spark.session.session_thread import SessionThread  # noqa: PLC0415

    with own_folder() as folder:
        found = WarningsInLog(folder / "spark.log")
        say("starting Spark")
        session = SessionThread(name, folder, master=master, settings=settings)
        async with session as spark, asyncio.TaskGroup() as group:
            shown = group.create_task(_show_warnings(found))
            try:
                yield spark
            finally:
                shown.cancel()
        _warn(found)


@contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder for what Spark writes, and delete it."""
    with tempfile.TemporaryDirectory(
        prefix="liftbridge-spark-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@contextmanager
def strict_options() -> Iterator[None]:
    """Refuse unknown options of Spark, which a command line has by mistake.

    Raises:
        BadArgument: there is one.
    """
    from liftbridge_aio.spark.core.option_table import UnknownOption  # noqa: PLC0415 (help)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownOption)
        try:
            yield
        except UnknownOption as unknown:
            raise BadArgument(str(unknown)) from None


def check_installed() -> None:
    """Check that Spark's packages are there.

    Raises:
        UsageError: one is missing.
    """
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"pipelines need {' and '.join(missing)}: pip install 'liftbridge-aio[spark]'"
        )


def client_settings(options: ClientOptions) -> dict[str, str]:
    """Return the client's options from flags and environment as options of Spark's source."""
    default = ClientOptions()
    settings = {}
    for name in (each.name for each in fields(ClientOptions)):
        value = getattr(options, name)
        if name != "tls" and value != getattr(default, name):
            settings[f"liftbridge.{name}"] = str(value).lower()
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
async def _stopped_at_the_end(
    spark: SessionThread, queries: Mapping[str, StreamingQuery]
) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for query in queries.values():
            await spark.call(lambda _, query=query: query.stop())  # type: ignore[misc]


async def _wait_for_end(
    spark: SessionThread,
    queries: Mapping[str, StreamingQuery],
    counters: Mapping[str, ProgressCounter],
    reporter: Reporter,
    stop: asyncio.Event,
) -> bool:
    """Wait until all queries end or `stop` is set; return True if they ended."""
    while not stop.is_set():
        active = await spark.call(lambda _: any(query.isActive for query in queries.values()))
        await spark.call(lambda _: _update(queries, counters))
        if not active:
            return True
        reporter.report(*_sums(counters))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), CHECK_INTERVAL)
    return False


def _update(queries: Mapping[str, StreamingQuery], counters: Mapping[str, ProgressCounter]) -> None:
    for name, query in queries.items():
        counters[name].update(query)


def _sums(counters: Mapping[str, ProgressCounter]) -> tuple[int, int, int, int]:
    """Return rows, batches, lag and bad records of all queries together."""
    totals = [counter.total for counter in counters.values()]
    return (
        sum(each.rows_read for each in totals),
        sum(each.batches for each in totals),
        sum(each.lag for each in totals),
        sum(each.bad_records for each in totals),
    )


async def _show_warnings(found: WarningsInLog) -> None:
    while True:
        _warn(found)
        await asyncio.sleep(CHECK_INTERVAL)


def _warn(found: WarningsInLog) -> None:
    for text in found.new():
        say(f"warning: {text}")
