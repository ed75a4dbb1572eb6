"""Run the pipeline of totals: publish sales, start Spark's query, read the totals."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liftbridge_aio._client.client import Client
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.errors import RequestTimeout
from liftbridge_aio.model import Isolation, Message, Record, StartAt
from liftbridge_aio.spark.pipelines.totals_pipeline import TotalsPlan, start_totals
from liftbridge_aio.spark.session.query_progress import ProgressCounter
from liftbridge_aio.spark.session.session_thread import SessionThread

from .demo_checks import Check
from .totals_checks import (
    Place,
    Total,
    check_each,
    check_followed,
    check_once,
    check_read,
    check_sum,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Log = Callable[[str], None]

SALES: Final = "pipeline-sales"
TOTALS: Final = "pipeline-totals"
PARTITIONS: Final = 2
SHOPS: Final = ("Accra", "Bergen", "Cusco", "Dakar")
OPENING: Final = datetime(2026, 3, 2, 9, tzinfo=UTC)
MINUTES: Final = 120
"""The opening time of the shops; the sales of a minute are published together."""
WINDOW_MINUTES: Final = 5
HALF_TIME: Final = 60
"""Before this minute is published, the first total must arrive, to show that Spark keeps up."""
RATE: Final = 2000
"""Sales to publish per second."""
REPORT_INTERVAL: Final = 2.0
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


@dataclass(slots=True)
class TotalsReport:
    """Figures and checks of a run."""

    events: int
    totals: int = 0
    counted: int = 0
    batches: int = 0
    early_totals: int = 0
    """Read while events were still being published."""
    start_seconds: float = 0.0
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """True if every check held."""
        return bool(self.checks) and all(check.held for check in self.checks)


class TotalsScenario:
    """One run of the pipeline.

    Args:
        events: sales to publish.
        folder: for everything that Spark writes.
        limit: seconds from the start of Spark to the last total.
        log: called with a line about each step.
    """

    def __init__(self, events: int, folder: Path, limit: float, log: Log) -> None:
        self._events = events
        self._folder = folder
        self._limit = limit
        self._log = log
        self._report = TotalsReport(events)
        self._published = 0
        self._expected: dict[Place, Total] = defaultdict(lambda: Total(0, 0))
        self._followed: list[tuple[Place, Total]] = []
        self._first_total = asyncio.Event()
        self._counter = ProgressCounter()

    async def run(self) -> TotalsReport:
        """Run the pipeline; cancelling ends broker, client and Spark.

        Raises:
            LiftbridgeError: a call failed that should not.
            RequestTimeout: not all totals arrived in time.
            QueryFailed: the query on Spark failed.
        """
        started = time.perf_counter()
        async with EmbeddedBroker() as broker, Client(broker.address) as client:
            await client.create_stream(SALES, partitions=PARTITIONS)
            await client.create_stream(TOTALS)
            self._log(f"embedded broker on {broker.address}; starting Spark")
            spark = SessionThread("totals", self._folder, master="local[2]", settings=SETTINGS)
            try:
                async with asyncio.timeout(self._limit), spark:
                    self._report.start_seconds = time.perf_counter() - started
                    await self._pipeline(client, spark, broker.address)
            except TimeoutError as error:
                raise RequestTimeout(
                    f"the totals did not add up within {self._limit:g} s: {self._state()}"
                ) from error
            stored = await self._read_stored(client)
        self._conclude(stored)
        self._report.seconds = time.perf_counter() - started
        return self._report

    async def _pipeline(self, client: Client, spark: SessionThread, servers: str) -> None:
        plan = TotalsPlan(
            servers=servers,
            events=SALES,
            totals=TOTALS,
            checkpoint=str(self._folder / "checkpoint"),
            window=f"{WINDOW_MINUTES} minutes",
        )
        async with _query(spark, plan) as query:
            self._log(f"the query runs; publishing {self._events:,} sales of {len(SHOPS)} shops")
            async with _background(self._watch(spark, query)), asyncio.TaskGroup() as both:
                both.create_task(self._publish(client))
                both.create_task(self._follow(client))
            await spark.call(lambda _: self._counter.update(query))
            self._log(self._state())
            self._log("all totals have arrived")

    async def _publish(self, client: Client) -> None:
        """Publish minute by minute, each acked before the next, so that no event is late."""
        chance = random.Random(self._events)  # noqa: S311 (the same sales in every run)
        for minute in range(MINUTES):
            if minute == HALF_TIME:
                await self._first_total.wait()
            until = self._events * (minute + 1) // MINUTES
            sales = [self._sale(minute, chance) for _ in range(self._published, until)]
            await client.publish_many(SALES, sales)
            self._published = until
            await asyncio.sleep(len(sales) / RATE)
        self._report.early_totals = len(self._followed)
        # A newer event ends the last windows. Its own window stays open.
        evening = _event("", 0, OPENING + timedelta(days=1))
        await client.publish(SALES, evening.value, evening.key)
        self._log("all sales are published, and one event that ends the day")

    def _sale(self, minute: int, chance: random.Random) -> Record:
        shop = chance.choice(SHOPS)
        cents = chance.randrange(100, 10_000)
        window = OPENING + timedelta(minutes=minute - minute % WINDOW_MINUTES)
        place = Place(_text(window), shop)
        before = self._expected[place]
        self._expected[place] = Total(before.sales + 1, before.cents + cents)
        moment = OPENING + timedelta(minutes=minute, milliseconds=chance.randrange(60_000))
        return _event(shop, cents, moment)

    async def _follow(self, client: Client) -> None:
        """Read totals until they contain all sales."""
        async for message in client.subscribe(
            TOTALS, start=StartAt.earliest(), isolation=Isolation.READ_COMMITTED
        ):
            place, total = _total(message)
            self._followed.append((place, total))
            self._first_total.set()
            self._report.counted += total.sales
            if self._report.counted >= self._events:
                return

    async def _watch(self, spark: SessionThread, query: StreamingQuery) -> None:
        reported = time.monotonic()
        while True:
            await spark.call(lambda _: self._counter.update(query))
            if time.monotonic() - reported >= REPORT_INTERVAL:
                reported = time.monotonic()
                self._log(self._state())
            await asyncio.sleep(0.2)

    async def _read_stored(self, client: Client) -> list[tuple[Place, Total]]:
        stored = client.read(TOTALS, isolation=Isolation.READ_COMMITTED)
        return [_total(message) async for message in stored]

    def _conclude(self, stored: list[tuple[Place, Total]]) -> None:
        report, progress = self._report, self._counter.total
        report.totals = len(stored)
        report.batches = progress.batches
        places = [place for place, _ in stored]
        report.checks = [
            check_sum(self._events, stored),
            check_each(self._expected, stored),
            check_once(places),
            check_followed(places, [place for place, _ in self._followed]),
            check_read(self._events + 1, progress.rows_read, progress.rows_late),
        ]

    def _state(self) -> str:
        progress = self._counter.total
        return (
            f"{self._published:,} published, {progress.rows_read:,} read in {progress.batches}"
            f" batches, {self._report.counted:,} in {len(self._followed)} totals"
        )


@asynccontextmanager
async def _query(spark: SessionThread, plan: TotalsPlan) -> AsyncIterator[StreamingQuery]:
    query = await spark.call(lambda session: start_totals(session, plan, "500 milliseconds"))
    try:
        yield query
    finally:
        await spark.call(lambda _: query.stop())


@asynccontextmanager
async def _background(endless: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run a coroutine concurrently with the body; its failure ends the body."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(endless)
        yield
        task.cancel()


def _event(shop: str, cents: int, moment: datetime) -> Record:
    value = {"shop": shop, "cents": cents, "at": moment.isoformat(timespec="milliseconds")}
    return Record(json.dumps(value).encode(), key=shop.encode() or None)


def _total(message: Message) -> tuple[Place, Total]:
    value = json.loads(message.value)
    start = datetime.fromisoformat(value["start"])
    return Place(_text(start), value["shop"]), Total(value["sales"], value["cents"])


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="minutes")
