"""A reading that may be sent elsewhere: another one takes its place, and its figures go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

from .arguments import about, check_type
from .errors import LiftbridgeError, RequestTimeout, UsageError
from .model import StartAt, StartPosition, StopAt, StopPosition
from .net.connection import Connection
from .read_budget import ReadBudget
from .reading import Reading
from .reading_plan import ReadingPlan


class SubscriptionStatistics(NamedTuple):
    """Figures of one subscription."""

    delivered: int
    """Messages handed to the user."""
    buffered: int
    """Messages that wait here to be read; repeats among them are found when their turn comes."""
    buffered_bytes: int
    """Bytes of these, with what they cost beside in this process, about."""
    resubscriptions: int
    """How often it was resumed after a break."""
    dropped: int
    """Messages below the start, and repeats, that were not handed on."""


def start_at(to: int | StartAt, stream: str, partition: int | None = None) -> StartAt:
    """Make the target of a seek a `StartAt`; a number is an offset.

    Raises:
        InvalidRequest: it is neither.
    """
    with about(stream, partition):
        check_type(to, (int, StartAt), "seek() takes an offset or a StartAt")
        return to if isinstance(to, StartAt) else StartAt.offset(to)


class SeekableReading:
    """What is read of one partition, by one reading after the other."""

    def __init__(self, plan: ReadingPlan, connection: Connection, budget: ReadBudget) -> None:
        self._connection = connection
        self._budget = budget
        self._earlier = SubscriptionStatistics(0, 0, 0, 0, 0)
        self.sought = False
        """Whether it was sent elsewhere than it was to begin."""
        self._asked_behind: int | None = None
        self.current = Reading(plan, connection, budget)
        """The reading that counts; after a seek another one."""

    @property
    def plan(self) -> ReadingPlan:
        """What is read now."""
        return self.current.plan

    # Where it stands

    @property
    def position(self) -> int | None:
        """The offset to be read next, see `Subscription.position`."""
        intake = self.current.intake
        last = intake.handed_over
        if last is not None:
            return last - 1 if self.plan.reverse else last + 1
        start = self.current.start_offset
        return intake.next_offset if start is None else start

    def asked(self) -> None:
        """Take note that the reader asks for more, and so is done with what was handed out."""
        self._asked_behind = self.current.intake.handed_over

    @property
    def finished(self) -> int | None:
        """The last offset with which the reader is done; before that, see `finished_at`."""
        intake = self.current.intake
        last = intake.handed_over
        return self.finished_at(last if last == self._asked_behind else intake.finished)

    def finished_at(self, offset: int | None) -> int | None:
        """Return `offset` or, where there is none yet, the one below the start.

        Not where the reading was told to begin at an offset: whoever comes next is told as well.
        """
        if offset is not None:
            return offset
        told = self.plan.start.position is StartPosition.OFFSET and not self.sought
        start = self.current.start_offset
        return start - 1 if start and not told else None

    async def lag(self, timeout: float) -> int:
        """Ask how many offsets lie between here and the end, see `Subscription.lag`."""
        plan = self.plan
        if plan.reverse:
            text = "a reading towards lower offsets has no lag"
            raise UsageError(text, stream=plan.stream, partition=plan.partition)
        metadata = self._connection.metadata
        try:
            async with asyncio.timeout(timeout):
                info = await metadata.partition(plan.stream, plan.partition, timeout)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            text = f"the leader did not answer within {timeout:g} s"
            raise RequestTimeout(text, stream=plan.stream, partition=plan.partition) from None
        return max(info.high_watermark + 1 - (self.position or 0), 0)

    # Elsewhere

    def begin_at(self, offset: int) -> None:
        """Begin at this offset, which was found and not asked for; only before it has begun."""
        plan = replace(self.plan, start=StartAt.offset(offset), start_found=True)
        self.current = Reading(plan, self._connection, self._budget)

    def plan_from(self, start: StartAt) -> ReadingPlan:
        """Return the plan with another start. "Latest" as the stop stays where it was found.

        Raises:
            InvalidRequest: the start does not go with the rest of the plan.
        """
        plan, end = self.plan, self.current.position.stop_offset
        if plan.stop is not None and plan.stop.position is StopPosition.LATEST and end is not None:
            plan = replace(plan, stop=StopAt.offset(end)) if end >= 0 else plan
        return replace(plan, start=start, start_found=False)

    def seek(self, plan: ReadingPlan) -> Reading:
        """Put a new reading in the place of the current one, which it leaves to be dropped.

        Returns:
            The one before.
        """
        before, self._earlier = self.current, self.statistics()
        self.current = Reading(plan, self._connection, self._budget)
        self.sought, self._asked_behind = True, None
        return before

    # Figures

    def statistics(self) -> SubscriptionStatistics:
        """Return figures of this moment, those of earlier readings included."""
        reading, earlier = self.current, self._earlier
        intake = reading.intake
        return SubscriptionStatistics(
            earlier.delivered + intake.delivered,
            intake.buffered,
            intake.buffered_bytes,
            earlier.resubscriptions + reading.resubscriptions,
            earlier.dropped + intake.dropped,
        )
