"""A stream of Liftbridge as the target of messages that are numbered."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

from liftbridge_aio import StartAt, StopAt, StreamOptions
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio.errors import IncorrectOffset, InvalidRequest

from .core.known_ids import unbroken
from .ends import MAX_BATCH, TIME_HEADER, Copied, Origin, Plan, Position, Record, bridge_headers
from .errors import PositionLost, TargetUnsuitable
from .stream_target import StreamTarget

_EXACT: Final = StreamOptions(optimistic_concurrency_control=True, auto_pause_time=0)
_MAX_WIDTH: Final = 256
"""Messages that may be in flight to a partition."""
_CAUTION: Final = 200
"""Messages that go one by one after somebody else has published."""
_NOT_AN_OFFSET: Final = 1 << 40
"""Added to an expected offset, so that servers refuse it if they check it."""


class ExactTarget(StreamTarget):
    """Stores each message once, in the order and the partition of the source."""

    # State, changed only by the task of the bridge: `_logs` are the partitions that are written
    # to, and `is_checked` is True once a server has refused a wrong offset.

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.is_checked = False
        self._logs: list[ExactLog] = []

    async def open(self, origin: Origin) -> Copied:
        """Connect, create the stream if it is missing, and find out how far it was copied."""
        await self.prepare(origin, _EXACT)
        self._logs = [ExactLog(self, each, origin) for each in range(origin.partitions)]
        found = await bounded_gather(self._logs, ExactLog.look)
        return Copied(self.identity, {n: each for n, each in enumerate(found) if each is not None})

    async def store(self, records: list[Record]) -> int:
        """Publish messages that are not stored, and wait for all acks."""
        parts: defaultdict[int, list[Record]] = defaultdict(list)
        for record in records:
            parts[record.partition].append(record)
        is_backlog = len(records) >= MAX_BATCH

        async def store(partition: int) -> int:
            return await self._logs[partition].store(parts[partition], is_backlog=is_backlog)

        return sum(await bounded_gather(parts, store))


class ExactLog:
    """One partition of the target.

    Every message is published at an expected offset, which the server refuses if anybody has
    published meanwhile: a bridge that was killed and whose last messages arrive late, or another
    publisher. Then the end of the log says what is missing. One message is in flight at first, and
    twice as many after each success, so that at most `_MAX_WIDTH` messages have to be read to know
    which ones are stored. Of several in flight, later ones may be stored where an earlier one is
    refused; so they go one by one for a while after a refusal, and one goes ahead where nothing
    waits behind a batch.

    Args:
        target: the stream.
        partition: which of its partitions.
        origin: the source.
    """

    # State, changed only by the task that stores: `_next` is the offset of the next message,
    # `_copied` and `_further` say which numbers are stored, `_width` how many messages may be in
    # flight, `_one_by_one` how many of the next ones go alone.

    def __init__(self, target: ExactTarget, partition: int, origin: Origin) -> None:
        self._target = target
        self._partition = partition
        self._origin = origin
        self._next = 0
        self._copied = -1
        self._further: frozenset[int] = frozenset()
        self._width = 1
        self._one_by_one = 0

    async def look(self) -> Position | None:
        """Read the end of the log, and return how far the source was copied, if it says so.

        Raises:
            PositionLost: retention may have removed what would say it, and nothing else does.
        """
        target, partition = self._target, self._partition
        newest = await target.committed_end(partition)
        self._next = newest + 1
        count = _MAX_WIDTH
        while True:
            messages = (
                []
                if newest < 0
                else await target.client.last(
                    target.stream, n=count, partition=partition, unpause=True
                )
            )
            times = {
                _number(own): int(bridge_headers(each).get(TIME_HEADER, b"0"))
                for each in messages
                if (own := target.identity_of(each))
            }
            is_all = len(messages) < count
            if len(times) >= _MAX_WIDTH or is_all:
                break
            count *= 4
        if times:
            self._copied, self._further = unbroken(times)
            return Position(self._copied, times[self._copied] or None)
        if self._origin.after is None and newest >= 0 and (not messages or messages[0].offset > 0):
            raise PositionLost(
                f"retention has removed messages, and none of {self._origin.identity} is left",
                stream=target.stream,
            )
        return None

    async def store(self, records: list[Record], *, is_backlog: bool) -> int:
        """Publish messages that are not stored, in order; return how many were stored already.

        Args:
            records: the messages.
            is_backlog: True if more wait behind them.
        """
        repeats = 0
        left = records
        if not is_backlog:
            self._width = 1
        while left:
            new = [each for each in left if not self._is_stored(each)]
            repeats += len(left) - len(new)
            if not new:
                break
            if not self._target.is_checked:
                await self._check(new[0])
            chunk, left = new[: self._width], new[self._width :]
            futures = [
                await self._target.publish(record, self._partition, self._next + number)
                for number, record in enumerate(chunk)
            ]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            for record, outcome in zip(chunk, outcomes, strict=True):
                if isinstance(outcome, InvalidRequest):
                    self._target.replace(record, outcome)
                elif isinstance(outcome, BaseException) and not isinstance(
                    outcome, IncorrectOffset
                ):
                    raise outcome
            if failed:
                self._width, self._one_by_one = 1, _CAUTION
                await self._catch_up()
                repeats -= len(outcomes) - len(failed)  # these are found there now
                left = chunk + left
            else:
                self._next += len(chunk)
                self._copied = _number(chunk[-1].identity)
                self._one_by_one = max(self._one_by_one - len(chunk), 0)
                if not self._one_by_one:
                    self._width = min(2 * self._width, _MAX_WIDTH)
        return repeats

    def _is_stored(self, record: Record) -> bool:
        number = _number(record.identity)
        return number <= self._copied or number in self._further

    async def _check(self, record: Record) -> None:
        """Refuse a stream whose servers do not check expected offsets.

        They would store this message, which is not harmful: it is the one that comes next.
        """
        target = self._target
        try:
            await (await target.publish(record, self._partition, self._next + _NOT_AN_OFFSET))
        except IncorrectOffset:
            target.is_checked = True
        except InvalidRequest as error:
            target.replace(record, error)
            await self._check(record)
        else:
            raise TargetUnsuitable(
                "the stream has no optimistic concurrency control, which showed when it stored"
                f" {target.name_of(record.identity)}",
                stream=target.stream,
            )

    async def _catch_up(self) -> None:
        """Read what is stored where the next messages were to be."""
        target = self._target
        newest = await target.committed_end(self._partition)
        if newest < self._next:
            return
        async with target.client.read(
            target.stream,
            partition=self._partition,
            start=StartAt.offset(self._next),
            stop=StopAt.offset(newest),
            unpause=True,
        ) as messages:
            found = {_number(own) async for each in messages if (own := target.identity_of(each))}
        self._next = newest + 1
        self._copied, self._further = unbroken({self._copied, *self._further, *found})


def _number(identity: bytes) -> int:
    """Return the number in an id: `17`, or the offset in `partition/offset`."""
    return int(identity.rpartition(b"/")[2])
