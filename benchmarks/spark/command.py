"""The command `python -m benchmarks spark-…`: a server, Spark, and measurements with them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import USUAL_SIZE
from benchmarks.clients import UnknownClient, commands
from benchmarks.flags import Flags
from benchmarks.serving import running
from benchmarks.terminal import Terminal

from . import memory, microbatch, samples
from .contest import Bench, ContenderFailed
from .kafka import NAME as KAFKA
from .kafka import KafkaUnavailable, RunningKafka, connector, running_kafka
from .read import measure_reads
from .session import SparkFailed, spark_session
from .write import measure_writes

FAILURES: Final = (ContenderFailed, KafkaUnavailable, SparkFailed)
"""Errors that prevent any measurement; the text of each says why."""

PEERS: Final = (KAFKA,)
"""Allowed values of `--peers`."""

ALL: Final = "spark"
NAMES: Final = ("spark-read", "spark-write", "spark-microbatch", "spark-memory", ALL)

_CLIENT: Final = "ours-batches"
_CORES: Final = 2
_ROWS: Final = 1_000_000
_QUICK_ROWS: Final = 2_000


class SparkBenchmarks:
    """The benchmarks with Spark, by name; figures are added where the results are kept."""

    def __init__(self, flags: Flags, terminal: Terminal, figures: dict[str, Any]) -> None:
        self._flags = flags
        self._terminal = terminal
        self._figures = figures

    def run(self, name: str) -> None:
        """Run one of `NAMES`, or all of them, on one server and in one session of Spark.

        Raises:
            UnknownClient: A peer is not known here.
            Exception: One of `FAILURES`, or the server could not be started.
        """
        measures = {
            "spark-read": self._reads,
            "spark-write": self._writes,
            "spark-microbatch": self._microbatches,
            "spark-memory": self._memory,
        }
        with self._bench() as bench:
            for each, measure in measures.items():
                if name in {each, ALL}:
                    measure(bench)

    def _reads(self, bench: Bench) -> None:
        for found in measure_reads(bench, self._partitions):
            self._show("spark_read", found)

    def _writes(self, bench: Bench) -> None:
        for found in measure_writes(bench, self._partitions):
            self._show("spark_write", found)

    def _microbatches(self, bench: Bench) -> None:
        for found in microbatch.measure_microbatches(bench):
            if isinstance(found, microbatch.Floors):
                self._keep("spark_microbatch_floors", found.as_json())
                rows = microbatch.floor_rows(found)
                self._terminal.show_table(found.title, microbatch.FLOOR_COLUMNS, rows)
            else:
                self._show("spark_microbatch", found)

    def _memory(self, bench: Bench) -> None:
        growth = memory.measure_memory(bench)
        self._keep("spark_memory", growth.as_json())
        title = "memory of Spark's Python workers"
        self._terminal.show_table(title, memory.COLUMNS, [memory.growth_row(growth)])

    @contextmanager
    def _bench(self) -> Iterator[Bench]:
        flags, choice = self._flags, self._flags.choice
        if unknown := set(flags.clients) - set(PEERS):
            raise UnknownClient(
                f"there is nothing {min(unknown)!r} beside Spark; there is {', '.join(PEERS)}"
            )
        with_kafka = KAFKA in flags.clients
        with ExitStack() as stack:
            jars = connector() if with_kafka else ()
            kafka = stack.enter_context(_kafka()) if with_kafka else None
            self._terminal.tell("starting the server and Spark")
            server = stack.enter_context(running(flags.server, 1))
            spark = stack.enter_context(spark_session(_CORES, jars))
            self._figures["spark_versions"] = spark.versions
            yield Bench(
                server=server,
                spark=spark,
                client=commands((_CLIENT,))[_CLIENT],
                rounds=flags.rounds,
                rows=choice.messages or (_QUICK_ROWS if choice.quick else _ROWS),
                size=(*choice.sizes, USUAL_SIZE)[0],
                tell=self._terminal.tell,
                quick=choice.quick,
                kafka=kafka,
            )

    @property
    def _partitions(self) -> tuple[int, ...]:
        return self._flags.choice.partitions or (1, 2)

    def _show(self, key: str, found: samples.Comparison) -> None:
        self._keep(key, found.as_json())
        rows = samples.comparison_rows(found)
        self._terminal.show_table(found.title, samples.COLUMNS, rows)
        if said := samples.verdict(found):
            self._terminal.say(f"  {said}")

    def _keep(self, key: str, found: dict[str, Any]) -> None:
        self._figures.setdefault(key, []).append(found)


@contextmanager
def _kafka() -> Iterator[RunningKafka]:
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-") as folder,
        running_kafka(Path(folder).resolve()) as kafka,
    ):
        yield kafka
