"""A query whose first task halts when some of its rows have passed, for tests of bad days."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import liftbridge_aio
from liftbridge_aio.spark.write_report import WriteReport, write_report
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS: Final = 400
SMALL_BATCHES: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
"""So that rows reach the sink while others of their task are still to come."""

_BEFORE_THE_HALT: Final = 6
"""Batches that a task hands on before it halts; some wait in buffers on their way."""
_PADDING: Final = 2000
BOUND: Final = 100.0
"""Seconds after which what is waited for has failed."""
START_BOUND: Final = 200.0
"""Seconds in which a Spark of its own starts and comes to its first rows."""

Halt = Literal["wait", "raise", "kill", "lose", "never"]
"""The action of the task's first attempt halfway: wait for the file `go`, then go on, raise,
or end its worker process or the whole executor with SIGKILL."""


def start_query(
    spark: SparkSession,
    folder: Path,
    servers: str,
    stream: str,
    *,
    halt: Halt,
    source: str | None = None,
    **options: Any,
) -> StreamingQuery:
    """Start a query that writes ROWS rows as one batch with one task.

    Args:
        spark: with SMALL_BATCHES.
        folder: for input, checkpoint and the file `go`; the same for the same query again.
        servers: where to.
        stream: where to.
        halt: what happens in the middle.
        source: where from, with `values` in it; without it they come from a file.
        **options: further ones, of the sink.
    """
    if source is None:
        lines = folder / "lines"
        if not lines.exists():
            lines.mkdir()
            (lines / "0.txt").write_text("".join(f"{value}\n" for value in values()))
        frame = spark.readStream.text(str(lines))
    else:
        reader = spark.readStream.format("liftbridge").option("servers", servers)
        reader = reader.option("stream", source).option("startingOffsets", "earliest")
        frame = reader.load().selectExpr("cast(value as string) as value")
    frame = frame.mapInArrow(halting(folder, halt), "value string")
    writer = frame.writeStream.format("liftbridge").option("servers", servers)
    writer = writer.option("stream", stream).option("includeWriteId", "true")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).options(**options)
    return writer.trigger(availableNow=True).start()


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query, and raise what it ends with."""
    try:
        query.awaitTermination()
    finally:
        query.stop()


def finish_halted(query: StreamingQuery, folder: Path, is_there: Callable[[], object]) -> None:
    """Let a query go on once its first rows are there, and wait for its end."""
    try:
        wait_for(lambda: bool(is_there()))
        (folder / "go").touch()
    except BaseException:
        query.stop()
        raise
    finish(query)


@contextmanager
def killed_driver(
    program: str, folder: Path, servers: str, stream: str, when: Callable[[], object]
) -> Iterator[str]:
    """Run a driver that is beside this module until something holds, and give what it said.

    At the end it and its Java process are ended with kill -9.
    """
    tests, root = Path(__file__).parents[2], Path(liftbridge_aio.__file__).parents[1]
    said = folder / "said"
    with said.open("w") as output:
        driver = subprocess.Popen(
            [sys.executable, Path(__file__).with_name(program), folder, servers, stream],
            env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{root}"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_for(lambda: bool(when()) or driver.poll() is not None, START_BOUND)
        assert driver.poll() is None, said.read_text()
        yield said.read_text()
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(BOUND)


def values() -> list[str]:
    """Make the rows, each with its number."""
    return [f"{row} {'x' * _PADDING}" for row in range(ROWS)]


def row_number(value: bytes) -> int:
    """Return which of the rows it is."""
    return int(value.split()[0])


def wait_for(condition: Callable[[], bool], bound: float = BOUND) -> None:
    """Block until it holds: what is waited for happens in other processes."""
    deadline = time.monotonic() + bound
    while not condition():
        assert time.monotonic() < deadline, "the condition that the test waits for never held"
        time.sleep(0.05)


def check_all_rows(log: LogClient, stream: str) -> WriteReport:
    """Check that every row is there, and that each repeat was counted; return what was counted."""
    messages = log.read_all(stream)
    assert {row_number(message.value) for message in messages} == set(range(ROWS))
    report = log.run(lambda client: write_report(client, stream))
    assert (report.rows, report.gaps, report.unmarked) == (ROWS, 0, 0)
    assert report.repeats == len(messages) - ROWS
    return report


def halting(
    folder: Path, halt: Halt
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make a function for `mapInArrow` that passes batches on, and halts the first task once.

    Args:
        folder: with the file `go`; which process was ended is noted in the file `ended` there.
        halt: what happens.
    """
    go, ended, before, bound = str(folder / "go"), str(folder / "ended"), _BEFORE_THE_HALT, BOUND

    # A function within a function is pickled whole: workers cannot import modules of tests.
    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os  # noqa: PLC0415 - runs in a worker
        import signal  # noqa: PLC0415
        import time  # noqa: PLC0415

        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        first = context is not None and (context.partitionId(), context.attemptNumber()) == (0, 0)
        halts = halt != "never" and first
        for number, batch in enumerate(batches):
            if halts and number == before:
                deadline = time.monotonic() + bound
                while not os.path.exists(go) and time.monotonic() < deadline:  # noqa: PTH110
                    time.sleep(0.02)
                victim = os.getpid()
                if halt == "lose":  # workers are forked by a daemon, which the executor started
                    with open(f"/proc/{os.getppid()}/stat") as stat:  # noqa: PTH123
                        victim = int(stat.read().rsplit(") ", 1)[1].split()[1])
                if halt in {"kill", "lose"}:
                    with open(ended, "w") as note, open(f"/proc/{victim}/comm") as program:  # noqa: PTH123
                        note.write(f"{victim} {program.read()}")
                    os.kill(victim, signal.SIGKILL)
                if halt == "raise":
                    raise RuntimeError("a task that fails after it published")
            yield batch

    return pass_on
