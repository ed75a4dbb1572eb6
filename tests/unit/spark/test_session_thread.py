"""A failure of Spark's Java process is reported on one line, whatever py4j raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from liftbridge_aio.spark.session.query_progress import QueryFailed
from liftbridge_aio.spark.session.session_thread import SessionThread

GONE = "Spark's Java process ended or does not respond"
FAILURES = {
    "refused": (ConnectionRefusedError(111, "Connection refused"), f"^{GONE}.*refused$"),
    "reset": (Py4JNetworkError("Error while sending or receiving"), f"^{GONE}.*receiving$"),
    "raised": (
        Py4JError("An error occurred while calling o1.start.\n: java.io.IOException: no\n\tat x"),
        r"^An error occurred while calling o1\.start\. : java\.io\.IOException: no$",
    ),
}


@pytest.mark.parametrize(("failure", "text"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_of_the_java_process_is_told_in_a_line(
    tmp_path: Path, failure: Exception, text: str
) -> None:
    thread = SessionThread("test", tmp_path, master="local[1]")
    thread._session = None  # type: ignore[assignment]  # no Spark is needed to lose it

    def work(_: object) -> None:
        raise failure

    with pytest.raises(QueryFailed, match=text):
        await thread.call(work)
    await thread._end()
