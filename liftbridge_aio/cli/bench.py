"""`liftbridge-aio bench`: measure how fast servers ack and deliver messages.

Flags and JSON keys are those of Liftbridge's own bench tools; durations are numbers here.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter, validators

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import Ack, AckPolicy, StartAt

from .arguments import DURATION_HELP, parse_duration, parse_start
from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags, Integer, OptionalInteger
from .output import say, write_json, write_table
from .running import CLIENT, TABLES, in_event_loop, progress_shown

_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class BenchFigures:
    """A run of a benchmark.

    Attributes:
        messages: Read, or published and acked.
        size: Bytes of their values, together.
        seconds: From the first call to the last message or ack.
        errors: Publishes that failed.
        latencies: Nanoseconds from each publish to its ack, in any order; empty if not measured.
    """

    messages: int
    size: int
    seconds: float
    errors: int = 0
    latencies: Sequence[int] = ()

    def as_json(self) -> dict[str, float | int]:
        """Return each figure by its key; `duration` in seconds, latencies in microseconds."""
        seconds = self.seconds
        rate = self.messages / seconds if seconds else 0.0
        throughput = self.size / seconds if seconds else 0.0
        return {
            "duration": round(seconds, 6),
            "total_messages": self.messages,
            "total_bytes": self.size,
            "messages_per_second": round(rate, 1),
            "bytes_per_second": round(throughput, 1),
            "mb_per_second": round(throughput / _MIB, 3),
            **self._latencies(),
            "errors": self.errors,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values for a table."""
        figures = self.as_json()
        rows = [
            ("messages", f"{self.messages:,}"),
            ("duration", f"{self.seconds:,.3f} s"),
            ("messages per second", f"{figures['messages_per_second']:,.0f}"),
            ("MiB per second", f"{figures['mb_per_second']:,.2f}"),
        ]
        rows += [
            (f"{key.replace('_', ' ')} of acks", _time_shown(value))
            for key, value in figures.items()
            if key.startswith("latency_")
        ]
        return [*rows, ("errors", f"{self.errors:,}")]

    def _latencies(self) -> dict[str, float]:
        ordered = sorted(self.latencies)
        if not ordered:
            return {}
        figures = {
            "min": ordered[0],
            "mean": sum(ordered) / len(ordered),
            **{name: _nearest_rank(ordered, share) for name, share in _QUANTILES.items()},
            "max": ordered[-1],
        }
        return {f"latency_{name}": round(value / 1000, 1) for name, value in figures.items()}


def _time_shown(microseconds: float) -> str:
    for limit, unit in ((1e3, "µs"), (1e6, "ms")):
        if microseconds < limit:
            return f"{microseconds / limit * 1e3:.3g} {unit}"
    return f"{microseconds / 1e6:,.2f} s"


def _nearest_rank(ordered: Sequence[int], share: float) -> int:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


app = App(
    name="bench", help="Measure the throughput of your servers: publish to them, or read from them."
)

_OFFSET: Final = "offset:"

Output = Annotated[
    Literal["text", "json"], Parameter(help="Output format; json is the same as --json.")
]
Stream = Annotated[str, Parameter(help="Name of the stream.")]
_OWN_STREAM: Final = "bench-stream"
_SHORT: Final = "3s"
_LONG: Final = "30s"
_AT_LEAST_ONE: Final = validators.Number(gte=1)
_AT_LEAST_NONE: Final = validators.Number(gte=0)


@app.command
@in_event_loop(*CLIENT, *TABLES)
async def publish(
    *,
    stream: Annotated[
        str | None,
        Parameter(help=f"Name of the stream. Default: {_OWN_STREAM}, created if it is missing."),
    ] = None,
    messages: Annotated[
        OptionalInteger,
        Parameter(
            validator=_AT_LEAST_ONE,
            help="Messages to publish. Default: as many as --duration allows.",
        ),
    ] = None,
    duration: Annotated[
        str | None,
        Parameter(
            help=f"End after this time ({DURATION_HELP}). Default: {_SHORT} without --messages."
        ),
    ] = None,
    message_size: Annotated[
        Integer, Parameter(validator=_AT_LEAST_NONE, help="Bytes of each value.")
    ] = 256,
    window: Annotated[
        Integer,
        Parameter(
            name=("--window", "--pub-batch"),
            validator=_AT_LEAST_ONE,
            help="Most unacknowledged messages; 1: each waits for the ack of the one before.",
        ),
    ] = 1,
    concurrent: Annotated[
        Integer,
        Parameter(validator=_AT_LEAST_ONE, help="Concurrent publishers, each with its own window."),
    ] = 1,
    partitions: Annotated[
        Integer,
        Parameter(validator=_AT_LEAST_ONE, help="Number of partitions to publish to, in turn."),
    ] = 1,
    ack_policy: Annotated[
        Literal["leader", "all", "none"], Parameter(help="When the server acks.")
    ] = "leader",
    create_stream: Annotated[
        bool, Parameter(negative="", help="Create the stream if it does not exist.")
    ] = False,
    subject: Annotated[
        str | None, Parameter(help="Subject of the created stream. Default: its name.")
    ] = None,
    delete_stream: Annotated[
        bool, Parameter(negative="", help="Delete the stream at the end, with all its messages.")
    ] = False,
    output: Output = "text",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Publish as fast as the servers ack, and show the rate and the latency of acks.

    The exit code is 1 if a publish failed. Latencies are in microseconds, `duration` in seconds.

    For example:

        liftbridge-aio bench publish
        liftbridge-aio bench publish --stream orders --window 4096 --ack-policy all --json
        liftbridge-aio bench publish --messages 20000 --partitions 3 --window 1024
    """
    name = stream or _OWN_STREAM
    if duration is None and messages is None:
        duration = _SHORT
    limit = math.inf if duration is None else parse_duration(duration)
    policy, together = AckPolicy[ack_policy.upper()], window * concurrent
    publishing = _Publishing(name, bytes(message_size), partitions, policy)
    waits_for_each = together == 1 and policy is not AckPolicy.NONE
    run = publishing.one_by_one if waits_for_each else publishing.windowed
    async with connection.client(max_in_flight=together) as client:
        if create_stream or stream is None:
            await client.create_stream(name, subject, partitions, exist_ok=True)
        async with (
            _deleted_at_the_end(client, name, wanted=delete_stream),
            progress_shown(lambda: publishing.done, messages),
        ):
            figures = await run(client, sys.maxsize if messages is None else messages, limit)
    _show(figures, f"Published to {name}", as_json=as_json or output == "json")
    if publishing.first_error is not None:
        say(f"error: {figures.errors} messages failed, the first: {publishing.first_error}")
    return 1 if figures.errors else 0


@app.command
@in_event_loop(*CLIENT, *TABLES)
async def consume(
    *,
    stream: Stream = _OWN_STREAM,
    partition: Annotated[Integer, Parameter(help="Partition to read.")] = 0,
    expected: Annotated[
        Integer,
        Parameter(
            validator=_AT_LEAST_NONE, help="End after this many messages; 0: only by --duration."
        ),
    ] = 0,
    duration: Annotated[
        str | None,
        Parameter(
            help=f"End after this time ({DURATION_HELP}). Default: {_SHORT}, or {_LONG} with"
            " --expected."
        ),
    ] = None,
    start: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="earliest, latest, new, offset:n, a time or -5m for ago.",
        ),
    ] = "earliest",
    output: Output = "text",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Read as fast as the servers deliver, and show the rate.

    The rate is measured until the last message. The exit code is 1 if fewer arrived than expected.

    For example:

        liftbridge-aio bench consume --expected 20000
        liftbridge-aio bench consume --stream orders --start -5m --duration 10s
    """
    start_at = parse_start(start.removeprefix(_OFFSET))
    duration = duration or (_LONG if expected else _SHORT)
    limit = parse_duration(duration)
    reading = _Reading()
    async with (
        connection.client() as client,
        progress_shown(lambda: reading.messages, expected or None),
    ):
        figures = await reading.run(client, stream, partition, start_at, expected, limit)
    _show(figures, f"Read from {stream}", as_json=as_json or output == "json")
    if figures.messages < expected:
        say(f"error: {figures.messages:,} of {expected:,} messages arrived within {duration}")
        return 1
    return 0


class _Publishing:
    """Publishes a number of equal messages and measures the latency of every ack."""

    def __init__(self, stream: str, value: bytes, partitions: int, policy: AckPolicy) -> None:
        self._stream = stream
        self._value = value
        self._partitions = partitions
        self._policy = policy
        self._latencies: list[int] = []
        self._errors = 0
        self._pending = 0
        self._all_done = asyncio.Event()
        self.first_error: BaseException | None = None

    @property
    def done(self) -> int:
        """Publishes that succeeded or failed."""
        return len(self._latencies) + self._errors

    async def one_by_one(self, client: Client, messages: int, limit: float) -> BenchFigures:
        """Publish each message after the ack of the one before; measures the whole call.

        Ends after so many messages or seconds.
        """
        start = time.perf_counter()
        for number in range(messages):
            if time.perf_counter() - start > limit:
                break
            began = time.perf_counter_ns()
            try:
                future = await client.publish_async(
                    self._stream,
                    self._value,
                    partition=number % self._partitions,
                    ack_policy=self._policy,
                )
                await future
            except LiftbridgeError as error:
                self._failed(error)
            else:
                self._latencies.append(time.perf_counter_ns() - began)
        return self._figures(time.perf_counter() - start)

    async def windowed(self, client: Client, messages: int, limit: float) -> BenchFigures:
        """Publish without waiting for each ack; the client limits the window.

        Latency is measured from when a message is queued, without the wait for the window. Ends
        after so many messages or seconds.
        """
        start = time.perf_counter()
        for number in range(messages):
            if time.perf_counter() - start > limit:
                break
            future = await client.publish_async(
                self._stream,
                self._value,
                partition=number % self._partitions,
                ack_policy=self._policy,
            )
            self._pending += 1
            future.add_done_callback(partial(self._ack_done, time.perf_counter_ns()))
        try:
            await client.flush()
        except LiftbridgeError as error:
            self.first_error = error
        if self._pending:  # the callbacks of the last acks are still to run
            self._all_done.clear()
            await self._all_done.wait()
        return self._figures(time.perf_counter() - start)

    def _ack_done(self, began: int, future: asyncio.Future[Ack | None]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None:
            self._latencies.append(time.perf_counter_ns() - began)
        else:
            self._failed(error)
        self._pending -= 1
        if not self._pending:
            self._all_done.set()

    def _failed(self, error: BaseException) -> None:
        self._errors += 1
        self.first_error = self.first_error or error

    def _figures(self, seconds: float) -> BenchFigures:
        acked = len(self._latencies)
        latencies = () if self._policy is AckPolicy.NONE else self._latencies
        return BenchFigures(acked, acked * len(self._value), seconds, self._errors, latencies)


class _Reading:
    """Reads messages and counts them."""

    def __init__(self) -> None:
        self.messages = 0

    async def run(
        self,
        client: Client,
        stream: str,
        partition: int,
        start: StartAt,
        expected: int,
        limit: float,
    ) -> BenchFigures:
        """Read until so many messages, or for so many seconds."""
        size = 0
        began = last = time.perf_counter()
        async with client.subscribe(stream, partition=partition, start=start) as reading:
            try:  # only now, as it takes a while to learn that a stream does not exist
                async with asyncio.timeout(limit) as end:
                    async for message in reading:
                        self.messages += 1
                        size += len(message.value)
                        last = time.perf_counter()
                        if self.messages == expected:
                            break
            except TimeoutError:
                if not end.expired():
                    raise
        return BenchFigures(self.messages, size, last - began)


@asynccontextmanager
async def _deleted_at_the_end(client: Client, stream: str, *, wanted: bool) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if wanted:
            await client.delete_stream(stream)


def _show(figures: BenchFigures, title: str, *, as_json: bool) -> None:
    if as_json:
        write_json(figures.as_json())
    else:
        write_table(title, ("Figure", "Value"), figures.rows())
