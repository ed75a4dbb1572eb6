"""A soak: half of the top rate for long, without faults, to see whether anything grows."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from chaos.leftovers import holdings, rss_mib, settled_holdings
from chaos.trend import Trend, trend
from liftbridge_aio import Client, LiftbridgeError, StartAt, StreamOptions
from support.servers.build import build_server, pinned_version
from support.servers.node import LiftbridgeNode

STREAM: Final = "soak"
PARTITIONS: Final = 2
VALUE_BYTES: Final = 250
MEASURED_FOR: Final = 3.0
WARM_UP: Final = 60.0
"""Seconds that are not looked at: pools fill, and the allocator gets its share."""
LONGEST_WARM_UP_PART: Final = 0.2
"""The same as a part of the whole, for short trials."""
BURST: Final = 0.02
"""Seconds from one burst of publishes to the next."""
READ_WITHIN: Final = 20.0
OPTIONS: Final = StreamOptions(
    retention_max_bytes=64 * 2**20, segment_max_bytes=8 * 2**20, cleaner_interval=20.0
)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Soaked:
    """Result of a soak."""

    seconds: float
    top_rate: float
    """Messages a second that were published, acked and read at the start, as fast as it goes."""
    rate: float
    """Messages a second that were meant to be published."""
    published: int
    acked: int
    failed: int
    delivered: int
    gaps: int
    """Number of times that a reader did not get the next number of a partition."""
    rss: Trend
    held_before: str
    held_after: str
    left_over: str

    @property
    def failures(self) -> list[str]:
        """Return the faults, in words."""
        found = []
        if self.left_over:
            found.append(f"left over at the end: {self.left_over}")
        if self.failed or self.acked != self.published:
            found.append(f"{self.acked:,} of {self.published:,} publishes were acked")
        if self.gaps or self.delivered != self.acked:
            found.append(f"{self.delivered:,} delivered, {self.gaps} out of order")
        if not self.rss.flat:
            found.append(f"memory grows: {self.rss}")
        return found

    def text(self) -> str:
        """All that is printed at the end."""
        speed = f"{self.rate:,.0f} messages/s, half of the top rate of {self.top_rate:,.0f}"
        counts = f"{self.published:,} | {self.acked:,} | {self.delivered:,}"
        memory = f"{self.rss.first:.1f} MiB | {self.rss.last:.1f} MiB"
        slope = f"{self.rss.slope * 60:+.3f} MiB/min | {self.rss.noise:.2f} MiB"
        return "\n".join(
            [
                f"Soak of {self.seconds:.0f} s at {speed}",
                "",
                "| published | acked | delivered | memory at first | at last | slope | noise |",
                "| --------: | ----: | --------: | --------------: | ------: | ----: | ----: |",
                f"| {counts} | {memory} | {slope} |",
                "",
                f"held before: {self.held_before}",
                f"held after: {self.held_after}",
                "",
                *(["BROKEN:", *self.failures] if self.failures else ["Everything held."]),
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"ok": not self.failures, "failures": self.failures, **asdict(self)}


@dataclass(slots=True)
class _Counts:
    """Result of a load, without the client."""

    published: int = 0
    acked: int = 0
    failed: int = 0
    delivered: int = 0
    gaps: int = 0


class _Load:
    """Publishes numbers to each partition in bursts, reads them, and counts."""

    def __init__(self, client: Client) -> None:
        self.counts = _Counts()
        self._client = client
        self._next = [0] * PARTITIONS
        self._expected = [0] * PARTITIONS

    async def publish(self, rate: float | None, seconds: float) -> float:
        """Publish at a rate, or as fast as acks come; returns the rate at which they came."""
        began = time.monotonic()
        acked_before = self.counts.acked
        turns = 0
        while (passed := time.monotonic() - began) < seconds:
            due = 200 if rate is None else int(rate * passed) - turns
            for _ in range(max(due, 0)):
                turns += 1
                await self._publish_one(turns % PARTITIONS)
            if rate is None:
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(BURST)
        await self._client.flush()
        return (self.counts.acked - acked_before) / (time.monotonic() - began)

    async def _publish_one(self, partition: int) -> None:
        number = self._next[partition]
        self._next[partition] += 1
        value = f"{number} ".encode().ljust(VALUE_BYTES, b".")
        self.counts.published += 1
        future = await self._client.publish_async(STREAM, value, partition=partition)
        future.add_done_callback(self._settled)

    def _settled(self, future: asyncio.Future[Any]) -> None:
        if future.exception() is None:
            self.counts.acked += 1
        else:
            self.counts.failed += 1

    async def read(self, partition: int) -> None:
        """Read a partition until cancelled."""
        async with self._client.subscribe(
            STREAM, partition=partition, start=StartAt.earliest()
        ) as messages:
            async for message in messages:
                number = int(message.value.split(b" ", 1)[0])
                self.counts.gaps += number != self._expected[partition]
                self._expected[partition] = number + 1
                self.counts.delivered += 1

    async def store_cursor(self) -> None:
        """Store how far it is, now and then, until cancelled."""
        while True:
            await asyncio.sleep(1)
            with contextlib.suppress(LiftbridgeError):
                await self._client.set_cursor("soak", STREAM, 0, max(self._expected[0] - 1, 0))


async def soak(seconds: float, tell: Tell) -> Soaked:
    """Publish and read on one real server for so many seconds.

    Raises:
        ServerUnavailable: The server cannot be built here.
        ServerDidNotStart: It does not start.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    binary = await asyncio.to_thread(build_server)
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        node = LiftbridgeNode(binary, Path(folder), pinned_version())
        await asyncio.to_thread(node.start)
        try:
            return await _soak(node.address, seconds, tell)
        finally:
            await asyncio.to_thread(node.kill)


async def _soak(address: str, seconds: float, tell: Tell) -> Soaked:
    before = holdings()
    samples: list[tuple[float, float]] = []
    counts, top = await _loaded(address, seconds, samples, tell)
    after = await settled_holdings(before)
    return Soaked(
        seconds=seconds,
        top_rate=top,
        rate=top / 2,
        published=counts.published,
        acked=counts.acked,
        failed=counts.failed,
        delivered=counts.delivered,
        gaps=counts.gaps,
        rss=trend(samples),
        held_before=str(before),
        held_after=str(after),
        left_over=after.more_than(before),
    )


async def _loaded(
    address: str, seconds: float, samples: list[tuple[float, float]], tell: Tell
) -> tuple[_Counts, float]:
    """Put a client under load, take samples, and close it; the counts, and the top rate.

    Its tasks end with it, as does the client: while somebody holds one, it keeps what it had.
    """
    warm_up = min(WARM_UP, seconds * LONGEST_WARM_UP_PART)
    async with Client(address) as client:
        await client.create_stream(STREAM, partitions=PARTITIONS, options=OPTIONS)
        load = _Load(client)
        work = [
            *(asyncio.create_task(load.read(partition)) for partition in range(PARTITIONS)),
            asyncio.create_task(load.store_cursor()),
        ]
        top = await load.publish(None, MEASURED_FOR)
        tell(f"top rate {top:,.0f} messages/s; now half of it for {seconds:.0f} s")
        sampling = asyncio.create_task(_sample(samples, warm_up))
        await load.publish(top / 2, seconds)
        sampling.cancel()
        until = time.monotonic() + READ_WITHIN
        while load.counts.delivered < load.counts.acked and time.monotonic() < until:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
        for task in work:
            task.cancel()
        await asyncio.wait([*work, sampling])
    return load.counts, top


async def _sample(samples: list[tuple[float, float]], warm_up: float) -> None:
    """The memory, each second once it is warm."""
    await asyncio.sleep(warm_up)
    while True:
        samples.append((time.monotonic(), rss_mib()))
        await asyncio.sleep(1)
