"""Show what is committed of a range of offsets, column by column.

As `Client.committed_range` does for messages: what is shown depends on the log alone, so a batch
that is run again has the same rows. Rows of a transaction are shown where its ack stands, and may
be read from before the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, repeat
from operator import contains, itemgetter
from typing import Final, TypeAlias

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.model import UUID_HEADER
from liftbridge_aio.transactions.core.uuid import is_outside
from liftbridge_aio.transactions.core.visibility import Event, Follower, Replay, Row
from liftbridge_aio.transactions.log_format import event_of
from liftbridge_aio.transactions.reading import LOOK_BACK, truncated
from liftbridge_aio.wire.column_batch import ColumnBatch

_Place: TypeAlias = tuple[ColumnBatch, int]
"""A message, as a row of a batch."""

_MARK: Final = b"txn-"
"""Is in the bytes of each message of a producer, and of each ack."""
_MAX_MESSAGES: Final = 200_000
_MAX_BYTES: Final = 64 << 20
"""Bounds of what is kept of open transactions; the rest is read again when its ack comes."""


class LogPart:
    """A part of the log that must be read before the next rows can be shown."""

    def __init__(self, begin: int, end: int, take: Callable[[Event[_Place]], None]) -> None:
        self.begin = begin
        self.end = end
        """The offset behind the last one."""
        self.missing: set[int] = set()
        """Offsets of messages that must be there, and have not come yet."""
        self._take = take

    def feed(self, columns: ColumnBatch) -> None:
        """Take the next messages of the part."""
        self.missing.difference_update(columns.offsets)
        for index, headers in enumerate(columns.transaction_headers()):
            if headers:
                self._take(_event(columns, index, headers))


class CommittedColumns:
    """Shows what is committed at the positions of a range.

    Args:
        start: the first position.
        whole: True to fail where the beginning of a transaction is no longer in the log; False to
            show the rest of it.
    """

    def __init__(self, start: int, *, whole: bool) -> None:
        self._start = start
        self._whole = whole
        self._looked_back = not start
        self._follower: Follower[_Place] = Follower(
            max_messages=_MAX_MESSAGES, max_bytes=_MAX_BYTES, max_producers=INT64_MAX
        )

    def add(self, columns: ColumnBatch) -> Iterator[ColumnBatch | LogPart]:
        """Take the next messages of the range, and yield what they show.

        Where a part of the log is yielded, read it before going on.

        Raises:
            TransactionTruncated: the beginning of a transaction is no longer in the log.
            TransactionError: an ack cannot be understood.
        """
        if not any(map(contains, columns.data, repeat(_MARK))):
            yield columns
            return
        shown: list[_Place] = []
        for index, headers in enumerate(columns.transaction_headers()):
            if not headers:
                shown.append((columns, index))
                continue
            event = _event(columns, index, headers)
            if not self._looked_back and event.uuid is not None and is_outside(event.uuid):
                self._looked_back = True
                yield LogPart(max(self._start - LOOK_BACK, 0), self._start, self._remember)
            steps = list(self._follower.feed(event, len(columns.data[index])))
            replays = [step for step in steps if isinstance(step, Replay)]
            if replays:
                yield from self._replayed(replays, event.offset)
            for step in steps:
                rows = [step] if isinstance(step, Row) else step.rows()
                shown += [row.message for row in rows]
        for _, places in groupby(shown, key=lambda place: id(place[0])):
            run = list(places)
            yield run[0][0].select(list(map(itemgetter(1), run)))

    def _replayed(self, replays: list[Replay[_Place]], end: int) -> Iterator[LogPart]:
        begins = {replay.entry.begin for replay in replays}

        def take(event: Event[_Place]) -> None:
            for replay in replays:
                if replay.entry.begin <= event.offset:
                    replay.feed(event)

        part = LogPart(min(begins), end, take)
        part.missing |= begins
        yield part
        if self._whole and part.missing:
            lost = next(replay for replay in replays if replay.entry.begin in part.missing)
            raise truncated(lost.entry, end)

    def _remember(self, event: Event[_Place]) -> None:
        """Take a message before the range, of which only committed single ones count."""
        if event.uuid is not None and is_outside(event.uuid):
            for _ in self._follower.feed(event):
                pass


def _event(columns: ColumnBatch, index: int, headers: dict[str, bytes]) -> Event[_Place]:
    uuid, place = headers.get(UUID_HEADER), (columns, index)
    offset = columns.offsets[index]
    if uuid is not None and len(headers) == 1:
        return Event(offset, place, uuid)
    return event_of(offset, headers, columns.values[index], place)
