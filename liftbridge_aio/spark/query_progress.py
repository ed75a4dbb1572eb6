"""How far a streaming query is: added up from what Spark reports batch by batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.errors import LiftbridgeError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_OUR_ERROR: Final = re.compile(r"\[LIFTBRIDGE_[A-Z_]+\] .*")
_END_OF_TRACE: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")


class QueryFailed(LiftbridgeError):
    """Spark gave up; the text is the one line of Spark's pages that says why."""


def query_failed(error: Exception) -> QueryFailed:
    """Make an error to show from one of Spark's, which hold pages of traces."""
    text = str(error).strip()
    raised = _END_OF_TRACE.findall(text) or [text.partition("\n")[0] or type(error).__name__]
    ours = [found[0] for line in raised if (found := _OUR_ERROR.search(line))]
    failed = QueryFailed([*raised, *ours][-1])
    failed.__cause__ = error
    return failed


@dataclass(frozen=True, slots=True)
class Progress:
    """What a query has done so far."""

    batches: int
    """Those that read something."""
    rows_read: int
    rows_late: int
    """Rows that came after their window was over, and are in no total."""


class ProgressCounter:
    """Adds up what Spark reports of each batch; it keeps only the newest reports itself."""

    def __init__(self) -> None:
        self.total = Progress(0, 0, 0)
        self._last = -1

    def update(self, query: StreamingQuery) -> None:
        """Take in what is new; call it at least every few seconds.

        Raises:
            QueryFailed: the query has failed.
        """
        for report in query.recentProgress:
            self._add(report)
        failure = query.exception()
        if failure is not None:
            raise query_failed(failure)

    def _add(self, report: Any) -> None:
        before = self.total
        # While there is nothing to read, Spark reports the next batch again and again.
        if report["batchId"] <= self._last or not report["numInputRows"]:
            return
        self._last = report["batchId"]
        late = sum(part["numRowsDroppedByWatermark"] for part in report["stateOperators"])
        self.total = Progress(
            before.batches + 1, before.rows_read + report["numInputRows"], before.rows_late + late
        )
