"""Load of a run: everything that clients do, through the public API alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from chaos.journal import Finding, Journal, Place, value_of
from chaos.lanes import Calls, Lane
from liftbridge_aio import (
    Ack,
    Client,
    LiftbridgeError,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishRefused,
)
from liftbridge_aio._admin.cursors import cursors_partition
from support.servers.node import CURSOR_PARTITIONS

T = TypeVar("T")

CALL_TIMEOUT: Final = 10.0
ADMIN_PAUSE: Final = 0.5
CURSORS: Final = "__cursors"
MARK: Final = "mark"
"""The cursor that is stored and fetched."""
CERTAIN: Final = (PublishNotSent, PublishRefused)
"""Errors of a publish that mean that nothing was stored."""


class Load:
    """Everything that goes on at once, and what was seen of it."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.calls = Calls()
        self.lanes: dict[str, Lane] = {}
        self.publishing = True
        self.running = True
        self.all_sent = asyncio.Event()
        """Set when nothing more is published."""
        self.findings: list[Finding] = []
        """Faults of clients while the servers do what they should."""
        self._unsettled: set[asyncio.Future[Ack | None]] = set()

    def find(
        self, text: str, *, excusable: bool = True, reset: tuple[str, int] | None = None
    ) -> None:
        """Note something that must not happen; see `Finding`."""
        self.findings.append(Finding(time.monotonic(), text, excusable, reset))

    def find_untyped(self, what: str, error: BaseException) -> None:
        """Note an error that is none of the client's, which nothing excuses."""
        self.find(f"{what}: {error!r}", excusable=False)

    def judge_end(self, task: asyncio.Task[None]) -> None:
        """Note that something ended, which nothing may while messages are published."""
        if self.publishing:
            self.find(f"ended before its time: {task!r}", excusable=False)

    def lane(self, name: str, place: tuple[str, int] | None = None) -> Lane:
        """The lane of this name, made where it is new; `place` is whose leader it needs."""
        return self.lanes.setdefault(name, Lane(name, place))

    async def timed(self, what: str, bound: float, call: Awaitable[T]) -> T | None:
        """Await a call, note how long it took; None where it ended in an error of the client."""
        began = time.monotonic()
        try:
            return await call
        except LiftbridgeError as error:
            self.calls.failed(what, error)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self.find_untyped(what, error)
            return None
        finally:
            self.calls.ended(what, began, time.monotonic(), bound)

    # --- publishing ---

    async def publish_steadily(self, client: Client, place: Place, rate: float) -> None:
        """Publish numbered messages to a partition at a rate, without waiting for acks."""
        bound = float(client.options.publish_timeout) + float(client.options.ack_timeout)  # type: ignore[arg-type]
        lane = self.lane(f"publish {place}")
        sends = self.journal.sent_to(place.stream)
        number = 0
        due = time.monotonic()
        while self.publishing:
            began = time.monotonic()
            value = value_of(place, number, began)
            number += 1
            sends.sent(value, place.partition, producer=str(place), time=began)
            settled = partial(self._settled, lane, place, value, began, bound)
            try:
                future = await client.publish_async(
                    place.stream, value, partition=place.partition, ack_policy=place.policy
                )
            except Exception as error:  # noqa: BLE001 - judged in `_outcome`
                self._outcome(lane, place, value, began, bound, error)
            else:
                self._unsettled.add(future)
                future.add_done_callback(self._unsettled.discard)
                future.add_done_callback(settled)
            due = max(due + 1 / rate, time.monotonic() - 1)
            await asyncio.sleep(due - time.monotonic())

    def _settled(
        self,
        lane: Lane,
        place: Place,
        value: bytes,
        began: float,
        bound: float,
        future: asyncio.Future[Ack | None],
    ) -> None:
        if future.cancelled():
            error: BaseException | None = asyncio.CancelledError("by the client")
        elif (error := future.exception()) is None:
            ack = future.result()
            if ack is None:
                self.find(f"publish to {place} ended without an ack", excusable=False)
            else:
                self.journal.offsets[place.stream, place.partition, value] = ack.offset
        self._outcome(lane, place, value, began, bound, error)

    def _outcome(
        self,
        lane: Lane,
        place: Place,
        value: bytes,
        began: float,
        bound: float,
        error: BaseException | None,
    ) -> None:
        now = time.monotonic()
        what = f"publish {place.policy.name}"
        self.calls.ended(what, began, now, bound)
        sends = self.journal.sent_to(place.stream)
        if error is None:
            sends.acked(value, place.partition, producer=str(place), time=now)
            lane.succeeded(began, now)
            return
        if isinstance(error, LiftbridgeError):
            self.calls.failed(what, error)
        else:
            self.find_untyped(what, error)
        if isinstance(error, CERTAIN) and not isinstance(error, PublishOutcomeUnknown):
            sends.refused(value, place.partition, producer=str(place), time=now)
        else:
            sends.unknown(value, place.partition, producer=str(place), time=now)

    async def settle(self, within: float) -> int:
        """Wait until each publish has ended; how many have not in time: none may."""
        self._send_no_more()
        if self._unsettled:
            await asyncio.wait(self._unsettled, timeout=within)
        return len(self._unsettled)

    def _send_no_more(self) -> None:
        self.publishing = False
        self.all_sent.set()

    def stop(self) -> None:
        """End everything but readers and members, which are told one by one."""
        self._send_no_more()
        self.running = False

    # --- the rest ---

    async def administer(self, client: Client, place: Place) -> None:
        """Ask for metadata again and again, as programs do that show figures.

        Nothing waits for an earlier answer: servers answer late while one of them is silent (W28).
        """
        of_leader = (place.stream, place.partition)
        number = cursors_partition(MARK, *of_leader, CURSOR_PARTITIONS)
        calls: list[tuple[Lane, Callable[[], Awaitable[object]]]] = [
            (self.lane("fetch_metadata"), lambda: client.fetch_metadata([place.stream])),
            (
                self.lane("fetch_partition_metadata", of_leader),
                lambda: client.fetch_partition_metadata(*of_leader),
            ),
            (self.lane("ping"), client.ping),
            (self.lane("cursor", (CURSORS, number)), lambda: self._mark(client, place)),
        ]
        async with asyncio.TaskGroup() as asked:
            while self.running:
                for lane, call in calls:
                    asked.create_task(self._ask(lane, call)).add_done_callback(self._judge_call)
                await asyncio.sleep(ADMIN_PAUSE)

    async def _mark(self, client: Client, place: Place) -> object:
        """Store a cursor and fetch it; what positions it has is left to the simulation."""
        where = (MARK, place.stream, place.partition)
        await client.set_cursor(*where, len(self.journal.offsets))
        return await client.fetch_cursor(*where)

    async def _ask(self, lane: Lane, call: Callable[[], Awaitable[object]]) -> None:
        began = time.monotonic()
        if await self.timed(lane.name, CALL_TIMEOUT, call()) is not None:
            lane.succeeded(began, time.monotonic())

    def _judge_call(self, task: asyncio.Task[None]) -> None:
        """Note that a call was cancelled, which nobody else would."""
        if task.cancelled() and self.running:
            self.find(f"cancelled by the client: {task!r}", excusable=False)
