"""Progress and failure of a streaming query, from what Spark reports of each batch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.errors import LiftbridgeError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


BAD_RECORDS: Final = "bad_records_"
"""The beginning of the names of metrics that count what a source could not parse."""
_OUR_ERROR: Final = re.compile(r"\[LIFTBRIDGE_[A-Z_]+\] .*")
_STATE: Final = re.compile(r"(?: SQLSTATE: \w+)+$")
"""What Spark adds to texts that SQL raises."""
_END_OF_TRACE: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")


class QueryFailed(LiftbridgeError):
    """A query failed; the text is the line of Spark's error that says why."""


def query_failed(error: Exception) -> QueryFailed:
    """Convert an error of Spark, whose text has pages of traces, into one with one line."""
    text = str(error).strip()
    raised = _END_OF_TRACE.findall(text) or [text.partition("\n")[0] or type(error).__name__]
    ours = [found[0] for line in raised if (found := _OUR_ERROR.search(line))]
    failed = QueryFailed(_STATE.sub("", [*raised, *ours][-1]))
    failed.__cause__ = error
    return failed


@dataclass(frozen=True, slots=True)
class Progress:
    """The rows and batches that a query has read so far."""

    batches: int
    """Batches that read at least one row."""
    rows_read: int
    rows_late: int
    """Rows that were dropped, as they arrived after the end of their window."""
    lag: int = 0
    """Offsets that were available and not read yet when the last batch was planned."""
    bad_records: int = 0
    """Records that were not JSON of the fields that the source has, and malformed acks."""


class ProgressCounter:
    """Adds up Spark's reports of batches, of which Spark keeps only the newest."""

    def __init__(self) -> None:
        self.total = Progress(0, 0, 0)
        self._last = -1

    def update(self, query: StreamingQuery) -> None:
        """Add new reports; call it at least every few seconds.

        Raises:
            QueryFailed: the query has failed.
        """
        for report in query.recentProgress:
            self._add(report)
            self.total = replace(self.total, lag=query_lag(report))
        failure = query.exception()
        if failure is not None:
            raise query_failed(failure)

    def _add(self, report: Any) -> None:
        before = self.total
        # While there is nothing to read, Spark reports the next batch repeatedly.
        if report["batchId"] <= self._last or not report["numInputRows"]:
            return
        self._last = report["batchId"]
        bad = sum(
            found[0]
            for name, found in (report.get("observedMetrics") or {}).items()
            if name.startswith(BAD_RECORDS)
        )
        late = sum(part["numRowsDroppedByWatermark"] for part in report["stateOperators"])
        self.total = replace(
            before,
            batches=before.batches + 1,
            rows_read=before.rows_read + report["numInputRows"],
            rows_late=before.rows_late + late,
            bad_records=before.bad_records + bad,
        )


def query_lag(report: Any) -> int:
    """Return how many offsets the sources of a query had beyond the end of a micro-batch.

    Args:
        report: a progress of Spark: `query.lastProgress`, which is None before the first batch,
            that of a listener, or either as JSON.
    """
    if report is None:
        return 0
    lag = 0
    for source in report["sources"]:
        ends = (_offsets(source["latestOffset"]), _offsets(source["endOffset"]))
        lag += sum(latest - ends[1].get(place, 0) for place, latest in ends[0].items())
    return max(lag, 0)


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    """Return the offset of each stream and partition; nothing for sources of other kinds."""
    try:
        streams = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return {
        (stream, number): offset
        for stream, parts in (streams.items() if isinstance(streams, dict) else ())
        for number, offset in (parts.items() if isinstance(parts, dict) else ())
        if number.isdecimal()
    }
