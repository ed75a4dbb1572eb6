"""Claims partitions, and stores what is settled of them, again where that has failed."""

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


class AcksWriter:
    """Writes the acks of the partitions that a member holds.

    Args:
        group: the id of the group.
        store: stores acks.
        sender: writes acks of transactions.
        reporter: reports failures to the hook.
        shares: the partitions that are held now.
        lost: called with a partition that another member has claimed, and the offset below which
            all is settled.
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
        self._hurry = asyncio.Event()

    async def claim(self, share: PartitionShare, first: int) -> Claim:
        """Claim a partition, and end the transactions of its former owner, however long it takes.

        Cancelling may leave it claimed.
        """
        delay = _FIRST_DELAY
        claim: Claim | None = None
        while True:
            try:
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
        """Forget what is stored, after the transactions that it would end.

        Cancelling may leave it forgotten.

        Raises:
            CommitInDoubt: transactions of a former owner could not be ended; nothing is forgotten.
            LiftbridgeError: it could not be forgotten.
        """
        await self._end_transactions(await self._store.unfinished_acks())
        await self._store.destroy()

    async def _end_transactions(self, acks: tuple[AckIntent, ...]) -> None:
        if acks:
            written = await self._sender.write_acks(acks)
            gone = [error for error in written.refusals if isinstance(error, NotFound)]
            written.refusals = [error for error in written.refusals if error not in gone]
            written.check()

    async def run(self, interval: float) -> None:
        """Store what is settled, every `interval`. Cancelling ends it."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._hurry.wait()
            self._hurry.clear()
            for share in tuple(self._shares.values()):
                if share.drained is None:
                    with suppress(LiftbridgeError):  # reported, and tried again
                        await self.save(share)

    def hurry(self) -> None:
        """Store what is settled now, not after the interval."""
        self._hurry.set()

    async def save(self, share: PartitionShare, *, last: bool = False) -> None:
        """Store what is settled of a partition, if that has changed.

        Cancelling may leave it stored.

        Args:
            share: the partition.
            last: it is being released.

        Raises:
            QueueTaken: another member has claimed it.
            LiftbridgeError: it could not be stored; that was reported.
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
                window.changes += 1
                raise

    def _failed(self, share: PartitionShare, error: LiftbridgeError) -> None:
        base = None if share.window is None else share.window.base
        event = CommitFailed(self._group, *share.place, -1 if base is None else base, error)
        self._reporter.commit_failed(event)
        logger.debug("acks of %s/%d were not stored: %s", *share.place, error)
