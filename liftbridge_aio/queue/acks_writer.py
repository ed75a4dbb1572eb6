"""Claims partitions and stores their acks, with retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from liftbridge_aio.errors import LiftbridgeError, NotFound
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.telemetry import CommitFailed
from liftbridge_aio.transactions.core.transaction import AckIntent
from liftbridge_aio.transactions.sender import Sender

from .acks_store import AcksStore, Claim
from .delivery import PartitionShare
from .errors import QueueTaken

logger = logging.getLogger("liftbridge_aio.queue")

_FIRST_DELAY: Final = 0.05
_LONGEST_DELAY: Final = 2.0
"""Seconds between two attempts to claim a partition; doubled after each."""


class AcksWriter:
    """Writes the acks of the partitions that a member holds.

    Args:
        group: the id of the group.
        store: stores acks.
        sender: writes the acks of transactions.
        reporter: reports failures to the hook.
        shares: the current partitions.
        lost: called with a partition that another member has claimed, and the offset of its first
            unsettled message.
    """

    def __init__(
        self,
        group: str,
        store: AcksStore,
        sender: Sender,
        reporter: Reporter,
        shares: Mapping[StreamPartition, PartitionShare],
        lost: Callable[[PartitionShare, int], None],
    ) -> None:
        self._group = group
        self._store = store
        self._sender = sender
        self._reporter = reporter
        self._shares = shares
        self._lost = lost
        self._due = asyncio.Event()
        """Set by `save_soon`; `run` clears it and saves before the interval is over."""

    async def claim(self, share: PartitionShare, first: int) -> Claim:
        """Claim a partition and end its open transactions; retry without limit."""
        delay = _FIRST_DELAY
        claim: Claim | None = None
        while True:
            try:
                # Once: a second claim would find the record of the first, as after a crash.
                if claim is None:
                    claim = await self._store.claim(share.place, first)
                await self._end_transactions(claim.acks)
            except LiftbridgeError as error:
                self._failed(share, error)
            else:
                return claim
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)

    async def forget(self) -> None:
        """End open transactions, then delete all stored acks."""
        await self._end_transactions(await self._store.unfinished_acks())
        await self._store.destroy()

    async def _end_transactions(self, acks: tuple[AckIntent, ...]) -> None:
        if acks:
            written = await self._sender.write_acks(acks)
            # A deleted stream has no results to commit.
            gone = [error for error in written.refusals if isinstance(error, NotFound)]
            written.refusals = [error for error in written.refusals if error not in gone]
            written.check()

    async def run(self, interval: float) -> None:
        """Save all partitions every `interval` seconds."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._due.wait()
            self._due.clear()
            for share in tuple(self._shares.values()):
                if share.drained is None:
                    with suppress(LiftbridgeError):  # reported; retried after the next interval
                        await self.save(share)

    def save_soon(self) -> None:
        """Save now instead of at the end of the interval."""
        self._due.set()

    async def save(self, share: PartitionShare, *, last: bool = False) -> None:
        """Store the acks of a partition if they have changed.

        Args:
            share: the partition.
            last: the partition is being released, so nothing is in flight afterwards.
        """
        async with share.saving:
            window = share.window
            if window is None or not (window.changes or last):
                return
            if self._shares.get(share.place) is not share:
                raise QueueTaken("the partition was released", **share.place._asdict())
            snapshot = window.snapshot(last=last)
            if snapshot is None:
                return
            if share.leased and not last:
                snapshot = replace(snapshot, leased=dict(share.leased))
            try:
                await self._store.save(share.place, snapshot, share.producers.acks(), last=last)
            except LiftbridgeError as error:
                window.changes += 1
                is_released = share.drained is not None
                if not (is_released and isinstance(error, QueueTaken)):
                    self._failed(share, error)
                if isinstance(error, QueueTaken) and not is_released:
                    self._lost(share, snapshot.base)
                raise
            except asyncio.CancelledError:
                window.changes += 1  # stored or not: the next save repeats it
                raise

    def _failed(self, share: PartitionShare, error: LiftbridgeError) -> None:
        base = None if share.window is None else share.window.base
        event = CommitFailed(self._group, *share.place, -1 if base is None else base, error)
        self._reporter.commit_failed(event)
        logger.debug("acks of %s/%d were not stored, and are retried: %s", *share.place, error)
