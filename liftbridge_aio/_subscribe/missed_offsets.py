"""Detects messages that were removed from the log before they were read.

A gap between the offset that a Subscribe asks for and the first message may be due to retention or
to compaction, and servers do not say which streams are compacted. But retention removes messages
from the beginning of the log: behind the oldest message, only compaction leaves gaps, and those are
no loss. Compaction may have emptied the first segments too, so nothing is reported if there are
gaps between the oldest messages. If there are none, compaction and retention look the same.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from liftbridge_aio._core.status import CallFailure, StreamEnd, stream_end
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio.errors import LiftbridgeError, MalformedData
from liftbridge_aio.model import StartPosition
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.telemetry import MessagesMissed
from liftbridge_aio.wire.codec import message_place

from .core.plan import ReadingPlan
from .core.position import Position, ReversePosition
from .log_probe import LogProbe

logger = logging.getLogger("liftbridge_aio.subscription")

_ANSWER: Final = 2.0
"""Seconds to find out where the log begins, and if it is compacted."""
_AGAIN: Final = 0.1
"""Seconds to the next try."""
_KEPT: Final = 8
"""The number of gaps that are kept for `gaps`."""


class MissedOffsets:
    """The missed offsets of one reader.

    Args:
        plan: what is read.
        reporter: gets each gap.
    """

    def __init__(self, plan: ReadingPlan, reporter: Reporter) -> None:
        self.count = 0
        """Number of missed offsets."""
        self.awaited: int | None = None
        """The offset that a call was asked to start at, until its first message."""
        self._reported: tuple[range, ...] = ()
        """The last gaps that were reported, oldest first, at most `_KEPT`."""
        self._examinations: list[Child] = []
        """The examinations that were running when the last one began."""
        self._stop: int | None = None
        self._plan = plan
        self._reporter = reporter

    def expect(self, position: Position | ReversePosition) -> None:
        """Note the offset that a new call was asked to start at.

        There is none if it starts at the oldest or the newest message, or reads backwards.
        """
        at_latest = self._plan.start.position is StartPosition.LATEST and position.last is None
        self.awaited = None if self._plan.reverse or at_latest else position.next
        self._stop = position.stop_offset

    def gap_before(self, first: bytes | None) -> range:
        """Return the offsets that were requested, but are before the first message of the call.

        Args:
            first: the message; None if there is none up to the stop.
        """
        awaited, self.awaited = self.awaited, None
        try:
            ends = [] if first is None else [message_place(first)[0]]
        except MalformedData:
            return range(0)  # raised when its turn comes
        if self._stop is not None:
            ends.append(self._stop + 1)
        return range(0) if awaited is None else range(awaited, min(ends))

    def examining(self, child: Child) -> None:
        """Note that a child runs `examine`."""
        self._examinations = [*(each for each in self._examinations if not each.done), child]

    async def gaps(self) -> tuple[range, ...]:
        """Return the last gaps that were reported, once their examinations have ended.

        An examination takes some seconds at most. Cancelling abandons the wait.
        """
        for child in self._examinations:
            await child.wait()
        return self._reported

    async def examine(self, gap: range, probe: LogProbe) -> None:
        """Report the part of a gap that compaction has not left. Cancelling ends it."""
        try:
            async with asyncio.timeout(_ANSWER):
                gap = await self._not_compacted(gap, probe)
        except (CallFailure, LiftbridgeError, TimeoutError) as error:
            logger.debug("the cause of a gap could not be found out: %s", error)
        self.report(gap)

    async def _not_compacted(self, gap: range, probe: LogProbe) -> range:
        while True:
            try:
                oldest = await probe.oldest_offset()
                gone = gap if oldest is None else range(gap.start, min(oldest, gap.stop))
                return range(0) if gone and await probe.shows_compaction() else gone
            except CallFailure as failure:
                if stream_end(failure) not in {StreamEnd.LOST, StreamEnd.LOG_CLOSED}:
                    raise
            await asyncio.sleep(_AGAIN)  # the server is cleaning its log

    def report(self, gone: range) -> None:
        """Count and log these offsets, and report them to the hook."""
        if not gone:
            return
        stream, partition = self._plan.stream, self._plan.partition
        self.count += len(gone)
        self._reported = (*self._reported[1 - _KEPT :], gone)
        logger.warning(
            "%d offsets of %s/%d, from %d on, were removed from the log before they were read",
            len(gone),
            stream,
            partition,
            gone.start,
        )
        self._reporter.messages_missed(MessagesMissed(stream, partition, gone.start, gone.stop))
