"""Run the demo: publish, tail, cut connections, and check the outcome."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from liftbridge_aio._client.client import Client
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.errors import PublishOutcomeUnknown
from liftbridge_aio.model import Ack, Message, StartAt, StopAt
from liftbridge_aio.options import ClientOptions, StreamOptions
from liftbridge_aio.retry import Retry
from liftbridge_aio.telemetry import Hook, Resubscribed
from liftbridge_aio.testing import FaultProxy

from .demo_checks import (
    Check,
    check_acked,
    check_exactly_once,
    check_offsets,
    check_order,
    check_resumed,
    check_unknown,
)
from .running import discard

Log = Callable[[str], None]

STREAM = "demo-orders"
LEDGER = "demo-ledger"
CURSOR = "demo-reader"
PARTITIONS = 3
KEYS = 100
LEDGER_MESSAGES = 60
IN_FLIGHT = 200
"""The in-flight limit, small so that publishing is not finished when connections are cut."""


@dataclass(slots=True)
class Report:
    """Figures and checks of a run."""

    messages: int
    partitions: int = PARTITIONS
    cuts: int = 0
    acked: int = 0
    outcome_unknown: int = 0
    delivered: dict[int, int] = field(default_factory=dict)
    publish_seconds: float = 0.0
    delivery_seconds: float = 0.0
    resubscriptions: int = 0
    longest_break_seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """True if every check held."""
        return bool(self.checks) and all(check.held for check in self.checks)

    @property
    def publish_rate(self) -> float:
        """Acked messages per second, with interruptions."""
        return self.acked / self.publish_seconds if self.publish_seconds else 0.0

    @property
    def delivery_rate(self) -> float:
        """Delivered messages per second, with interruptions."""
        return sum(self.delivered.values()) / self.delivery_seconds if self.delivery_seconds else 0


class Breaks(Hook):
    """Counts how often and how long subscriptions were interrupted."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0

    def resubscribed(self, event: Resubscribed) -> None:
        """Count an interruption."""
        self.count += 1
        self.longest = max(self.longest, event.seconds)


class Scenario:
    """One run of the demo."""

    def __init__(self, messages: int, cuts: int, log: Log) -> None:
        """Prepare a run.

        Args:
            messages: the number of messages to publish by key.
            cuts: the number of times to cut the connections meanwhile.
            log: called with a line about each step.
        """
        self._values = [b"order %06d" % number for number in range(messages)]
        self._cut_before = {round(messages * (cut + 1) / (cuts + 1)) for cut in range(cuts)}
        self._log = log
        self._report = Report(messages)
        self._delivered: dict[int, list[Message]] = {number: [] for number in range(PARTITIONS)}
        self._acked: dict[bytes, Ack] = {}
        self._unknown: set[bytes] = set()

    async def run(self) -> Report:
        """Run the demo; cancelling ends broker, proxy and client.

        Raises:
            LiftbridgeError: a call failed that should not.
        """
        breaks = Breaks()
        async with EmbeddedBroker() as broker, FaultProxy(broker.address) as proxy:
            self._log(f"embedded broker on {broker.address}, behind a proxy on {proxy.address}")
            options = ClientOptions(
                max_in_flight=IN_FLIGHT, hook=breaks, address_map=lambda _: proxy.address
            )
            async with Client(proxy.address, options=options) as client:
                await client.create_stream(STREAM, partitions=PARTITIONS)
                self._log(f"stream {STREAM} with {PARTITIONS} partitions created")
                await self._publish_and_tail(client, proxy)
                await self._resume_from_cursor(client)
                await self._publish_exactly_once(client, proxy)
        self._report.resubscriptions = breaks.count
        self._report.longest_break_seconds = breaks.longest
        return self._report

    # --- publish and tail through cuts ---

    async def _publish_and_tail(self, client: Client, proxy: FaultProxy) -> None:
        self._log(f"publishing {self._report.messages:,} messages by key, tailing all partitions")
        started = time.perf_counter()
        last = [b"last of partition %d" % number for number in range(PARTITIONS)]
        async with asyncio.TaskGroup() as tails:
            for partition, value in enumerate(last):
                tails.create_task(self._tail(client, partition, value))
            await self._publish(client, proxy)
            self._report.publish_seconds = time.perf_counter() - started
            for partition, value in enumerate(last):
                await client.publish(STREAM, value, partition=partition)
        self._report.delivery_seconds = time.perf_counter() - started
        self._note_results()

    async def _publish(self, client: Client, proxy: FaultProxy) -> None:
        pending: deque[tuple[bytes, asyncio.Future[Ack]]] = deque()
        try:
            for number, value in enumerate(self._values):
                if number in self._cut_before:
                    await proxy.cut()
                    self._report.cuts += 1
                    self._log(f"cut the connection: {number:,} sent, {self._progress()}")
                key = b"customer %d" % (number % KEYS)
                pending.append((value, await client.publish_async(STREAM, value, key=key)))
                while pending and pending[0][1].done():
                    await self._settle(*pending.popleft())
            while pending:
                await self._settle(*pending.popleft())
        finally:
            discard(future for _, future in pending)
        self._log(f"all sent: {self._progress()}, {len(self._unknown):,} with unknown outcome")

    async def _settle(self, value: bytes, future: asyncio.Future[Ack]) -> None:
        try:
            ack = await future
        except PublishOutcomeUnknown:  # the connection broke before the ack
            self._unknown.add(value)
        else:
            self._acked[value] = ack

    async def _tail(self, client: Client, partition: int, last: bytes) -> None:
        kept = self._delivered[partition]
        async for message in client.subscribe(
            STREAM, partition=partition, start=StartAt.earliest()
        ):
            if message.value == last:
                break
            kept.append(message)

    def _progress(self) -> str:
        delivered = sum(map(len, self._delivered.values()))
        return f"{len(self._acked):,} acked, {delivered:,} delivered"

    def _note_results(self) -> None:
        report = self._report
        report.acked = len(self._acked)
        report.outcome_unknown = len(self._unknown)
        report.delivered = {number: len(kept) for number, kept in self._delivered.items()}
        messages = [message for kept in self._delivered.values() for message in kept]
        report.checks += [
            check_offsets(self._delivered),
            check_acked(self._acked, messages),
            check_unknown(self._unknown, messages),
            check_order(self._values, self._delivered),
        ]

    # --- cursor ---

    async def _resume_from_cursor(self, client: Client) -> None:
        partition = max(self._delivered, key=lambda number: len(self._delivered[number]))
        end = len(self._delivered[partition])
        half = end // 2
        await client.set_cursor(CURSOR, STREAM, partition, half)
        stored = await client.fetch_cursor(CURSOR, STREAM, partition)
        self._log(f"cursor stored at offset {half:,} of partition {partition}, fetched, resumed")
        start = StartAt.earliest() if stored is None else StartAt.offset(stored + 1)
        resumed = [
            message.offset
            async for message in client.subscribe(
                STREAM, partition=partition, start=start, stop=StopAt.offset(end - 1)
            )
        ]
        self._report.checks.append(check_resumed(stored, half, resumed, end))

    # --- exactly once, by expected offsets ---

    async def _publish_exactly_once(self, client: Client, proxy: FaultProxy) -> None:
        values = [b"entry %d" % number for number in range(LEDGER_MESSAGES)]
        cut_at = {LEDGER_MESSAGES // 3, 2 * LEDGER_MESSAGES // 3}
        await client.create_stream(
            LEDGER, options=StreamOptions(optimistic_concurrency_control=True)
        )
        self._log(
            f"publishing {len(values)} with expected_offset and retry=, {len(cut_at)} more cuts"
        )
        for number, value in enumerate(values):
            future = await client.publish_async(
                LEDGER, value, expected_offset=number, retry=Retry()
            )
            if number in cut_at:
                await proxy.cut()
                self._report.cuts += 1
            await future
        read = [
            message.value
            async for message in client.subscribe(
                LEDGER, start=StartAt.earliest(), stop=StopAt.latest()
            )
        ]
        self._report.checks.append(check_exactly_once(values, read))
