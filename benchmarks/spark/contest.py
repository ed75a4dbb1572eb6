"""Contenders that take turns on the same rows, A B C A B C."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.cases import Case
from benchmarks.processes import cpu_seconds
from benchmarks.programs import Command, run_program
from benchmarks.serving import RunningServer
from benchmarks.streams import count_messages, create_stream, delete_stream, fill_stream
from benchmarks.summary import Measured

from .kafka import RunningKafka
from .samples import Sample
from .session import SparkFailed, SparkSessionProcess

JOB_TIMEOUT: Final = 180.0

Contender = Callable[[], Sample]
"""Does it once."""


class ContenderFailed(Exception):
    """A run came to nothing; the text says which, and why."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Requirements of a measurement.

    Attributes:
        server: Where streams are.
        spark: The session.
        client: The command of our client, reading by lists.
        rounds: How often each contender has its turn.
        rows: Of a run.
        size: Bytes of a value.
        tell: Is told how far it has come.
        quick: Whether it is enough that it works.
        kafka: Beside ours, if asked for.
    """

    server: RunningServer
    spark: SparkSessionProcess
    client: Command
    rounds: int
    rows: int
    size: int
    tell: Callable[[str], None]
    quick: bool = False
    kafka: RunningKafka | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def take_turns(
        self, title: str, contenders: Mapping[str, Contender]
    ) -> dict[str, list[Sample]]:
        """Let each warm up once, unless it is enough that it works, and then have its turns.

        Raises:
            ContenderFailed: A run came to nothing.
        """
        samples: dict[str, list[Sample]] = {name: [] for name in contenders}
        for number in range(1 if self.quick else 0, self.rounds + 1):
            for name, run in contenders.items():
                try:
                    sample = run()
                except SparkFailed as error:
                    raise ContenderFailed(f"{title}: {name}: {error}") from error
                when = f"round {number} of {self.rounds}" if number else "warm-up"
                self.tell(f"{title}: {when}, {name}: {sample.rows_per_second:,.0f} rows/s")
                if number:
                    samples[name].append(sample)
        return samples

    def client_alone(self, case: Case, stream: str) -> Sample:
        """Our client in a process of its own."""
        words = self.client(case.words(self.server.addresses[0], stream, case.messages))
        done = run_program(words, self.server.pids, case.server_messages, JOB_TIMEOUT)
        if not isinstance(done, Measured):
            raise ContenderFailed(done.reason)
        if done.outcome.errors:
            raise ContenderFailed("messages were lost")
        outcome = done.outcome
        return Sample(
            rows=outcome.messages,
            seconds=outcome.seconds,
            python_cpu_seconds=outcome.client_cpu_seconds,
            server_cpu_seconds=done.server_cpu_seconds,
        )

    def on_spark(self, job: Mapping[str, Any], server: Sequence[int] | None = None) -> Sample:
        """A job of Spark.

        Args:
            job: See `jobs`.
            server: The processes of the server that it uses, if that is another one.
        """
        figures, used = self.figures(job, server)
        return Sample(
            rows=figures["rows"],
            seconds=figures["seconds"],
            python_cpu_seconds=figures["python_cpu_seconds"],
            java_cpu_seconds=figures["java_cpu_seconds"],
            server_cpu_seconds=used,
        )

    def figures(
        self, job: Mapping[str, Any], server: Sequence[int] | None = None
    ) -> tuple[dict[str, Any], float | None]:
        """Return Spark's figures of a job, and the processor time of the server meanwhile."""
        pids = self.server.pids if server is None else server
        before = cpu_seconds(pids)
        figures = self.spark.do(job, JOB_TIMEOUT)
        after = cpu_seconds(pids)
        return figures, None if before is None or after is None else after - before

    def new_stream(self, partitions: int = 1) -> str:
        """Make a stream that is empty."""
        name = f"spark-{next(self._numbers)}"
        create_stream(self.server.addresses, name, partitions, 1)
        return name

    def filled_stream(self, rows: int, partitions: int = 1) -> str:
        """Make a stream with rows in it, as many in each partition."""
        name = self.new_stream(partitions)
        self.tell(f"filling {name} with {rows:,} rows")
        fill_stream(self.server.addresses, name, partitions, rows, self.size)
        return name

    def forget(self, stream: str) -> None:
        """Delete a stream with all that is in it."""
        delete_stream(self.server.addresses, stream)

    def expect(self, stream: str, partitions: int, rows: int) -> None:
        """See that a stream holds as many rows as were written.

        Raises:
            ContenderFailed: It does not.
        """
        stored = count_messages(self.server.addresses, stream, partitions)
        if stored != rows:
            raise ContenderFailed(f"{stream} holds {stored:,} rows, not {rows:,}")

    def new_topic(self, kafka: RunningKafka, partitions: int = 1) -> str:
        """Make a topic in Kafka."""
        name = f"spark-{next(self._numbers)}"
        job = {"job": "topic", "servers": kafka.address, "topic": name, "partitions": partitions}
        self.spark.do(job, JOB_TIMEOUT)
        return name

    def filled_topic(self, kafka: RunningKafka, rows: int, partitions: int = 1) -> str:
        """Make a topic in Kafka with rows in it."""
        name = self.new_topic(kafka, partitions)
        self.tell(f"filling Kafka's {name} with {rows:,} rows")
        job = {"job": "write", "rows": rows, "size": self.size, "tasks": partitions}
        self.spark.do(job | {"format": "kafka", "options": kafka.writing(name)}, JOB_TIMEOUT)
        return name

    def liftbridge(self, stream: str, **options: object) -> dict[str, str]:
        """Options of the source and of the sink."""
        more = {name: str(value) for name, value in options.items()}
        return {"servers": ",".join(self.server.addresses), "stream": stream, **more}

    def nothing(self, rows: int, tasks: int = 1, rows_per_batch: int = 0) -> dict[str, str]:
        """Options of the source that does nothing."""
        numbers = {
            "rows": rows,
            "size": self.size,
            "tasks": tasks,
            "rowsPerBatch": rows_per_batch,
        }
        return {name: str(number) for name, number in numbers.items()}
