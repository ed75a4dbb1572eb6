"""A query whose first task halts when some of its rows are published, for tests of bad days."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

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
_BOUND: Final = 100.0

Halt = Literal["wait", "raise", "kill", "lose", "never"]
"""What the first attempt of the task does in the middle: wait for the file `go`, then go on, raise,
or end its worker process or the whole executor with SIGKILL."""


def start_query(
    spark: SparkSession, folder: Path, servers: str, stream: str, *, halt: Halt, **options: Any
) -> StreamingQuery:
    """Start a query that writes ROWS rows as one batch with one task.

    Args:
        spark: with SMALL_BATCHES.
        folder: for input, checkpoint and the file `go`; the same for the same query again.
        servers: where to.
        stream: where to.
        halt: what happens in the middle.
        **options: further ones, of the sink.
    """
    lines = folder / "lines"
    if not lines.exists():
        lines.mkdir()
        text = "".join(f"{row} {'x' * _PADDING}\n" for row in range(ROWS))
        (lines / "0.txt").write_text(text)
    frame = spark.readStream.text(str(lines)).mapInArrow(
        _halting(str(folder / "go"), halt), "value string"
    )
    writer = frame.writeStream.format("liftbridge").option("servers", servers)
    writer = writer.option("stream", stream).option("includeWriteId", "true")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).options(**options)
    return writer.trigger(availableNow=True).start()


def row_number(value: bytes) -> int:
    """Return which of the rows it is."""
    return int(value.split()[0])


def _halting(go: str, halt: Halt) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    before, bound = _BEFORE_THE_HALT, _BOUND

    # A function within a function is pickled whole: workers cannot import modules of tests.
    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os  # noqa: PLC0415 - runs in a worker
        import signal  # noqa: PLC0415
        import time  # noqa: PLC0415

        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        halts = halt != "never" and context is not None and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if halts and number == before:
                deadline = time.monotonic() + bound
                while not os.path.exists(go) and time.monotonic() < deadline:  # noqa: PTH110
                    time.sleep(0.02)
                if halt == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if halt == "lose":  # workers are forked by a daemon, which the executor started
                    with open(f"/proc/{os.getppid()}/stat") as stat:  # noqa: PTH123
                        os.kill(int(stat.read().rsplit(") ", 1)[1].split()[1]), signal.SIGKILL)
                if halt == "raise":
                    raise RuntimeError("a task that fails after it published")
            yield batch

    return pass_on
