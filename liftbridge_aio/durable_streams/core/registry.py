"""The streams of a gateway, as a fold of the log that registers them. Pure.

Each message of that log has a stream's path as its key and all that is known of the stream as its
value, so the newest message of each key suffices; an empty value removes the stream.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from .protocol import media_type
from .records import decode_record
from .segments import Positions, Segment

TOUCH_SHARE: Final = 0.25
"""A read or write is registered within this share of the time to live, for other gateways."""
_LATE_SHARE: Final = 0.75
"""The share of the time to live after which a read or write is registered before it is answered."""


class Fork(NamedTuple):
    """The place where a fork begins, as it was asked for."""

    path: str
    """The source."""
    incarnation: int
    """The source's."""
    position: int
    sub_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stream, as it is registered."""

    log: str
    """Liftbridge's name of its log."""
    content_type: str
    ttl: int | None = None
    """Seconds without reads and writes after which it is removed."""
    expires_at: str | None = None
    """When it is removed, as the creator wrote it."""
    expiry: float | None = None
    """The same in seconds since 1970."""
    fork: Fork | None = None
    ancestors: tuple[Segment, ...] = ()
    incarnation: int = 0
    """One above the offset of the message that registered it first, plus `era`."""
    era: int = 0
    """When the registry was created, in microseconds since 1970: one that replaces a registry that
    is gone must not give the same incarnations again."""
    deleted: bool = False
    """It was deleted, or has expired."""
    touched: float = 0.0
    """When it was last read or written, in seconds since 1970."""

    @property
    def positions(self) -> Positions:
        """The log of its messages."""
        return Positions(self.ancestors, self.log, self.incarnation)

    def expired(self, now: float, touched: float) -> bool:
        """Return True if it is to be removed, as nobody has read or written since `touched`."""
        if self.expiry is not None:
            return now >= self.expiry
        return self.ttl is not None and now >= touched + self.ttl

    def remaining(self, now: float) -> float | None:
        """Return the seconds that a stream lives at least that is read now; None: without end."""
        return self.ttl if self.expiry is None else self.expiry - now

    def to_json(self) -> bytes:
        """Return the value of its message."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    def matches(self, other: Entry) -> bool:
        """Return True if a stream that is asked for is configured as this one."""
        same = media_type(self.content_type) == media_type(other.content_type)
        fork, wanted = self.fork, other.fork
        return same and (self.ttl, self.expires_at, fork) == (other.ttl, other.expires_at, wanted)


def _entry(offset: int, value: bytes) -> Entry:
    entry = decode_record(Entry, value)
    return entry if entry.incarnation else replace(entry, incarnation=entry.era + offset + 1)


class Status(Enum):
    """The state of a path."""

    MISSING = "no stream"
    ACTIVE = "a stream"
    DELETED = "a stream that is deleted, and that forks still need"


class Registry:
    """The registered streams."""

    def __init__(self) -> None:
        self.next_offset = 0
        """The offset of the next message."""
        self.entries: dict[str, Entry] = {}
        self._touched: dict[int, float] = {}
        """When a stream was read or written here, by incarnation."""
        self._forks: dict[int, set[str]] = {}
        """The paths of the forks of a stream, by its incarnation."""

    def apply(self, offset: int, path: str, value: bytes) -> None:
        """Take the next message.

        Raises:
            ValueError: no gateway wrote it; nothing but `next_offset` has changed.
        """
        self.next_offset = offset + 1
        entry = _entry(offset, value) if value else None
        known = self.entries.pop(path, None)
        if known is not None and known.fork is not None:
            self._forks[known.fork.incarnation].discard(path)
        if entry is None:
            self._forget(known)
            return
        self.entries[path] = entry
        if entry.fork is not None:
            self._forks.setdefault(entry.fork.incarnation, set()).add(path)
        if known is not None and known.incarnation != entry.incarnation:
            self._forget(known)

    def _forget(self, known: Entry | None) -> None:
        if known is not None:
            self._touched.pop(known.incarnation, None)
            if not self._forks.get(known.incarnation):
                self._forks.pop(known.incarnation, None)

    def touch(self, entry: Entry, now: float) -> None:
        """Note that a stream is, or was, read or written."""
        if entry.ttl is not None:
            self._touched[entry.incarnation] = max(now, self._last_touch(entry))

    def status(self, path: str, now: float) -> tuple[Status, Entry | None]:
        """Return what a path leads to."""
        entry = self.entries.get(path)
        if entry is None:
            return Status.MISSING, None
        if not entry.deleted and not self.expired(entry, now):
            return Status.ACTIVE, entry
        if self._needed(entry, now):
            return Status.DELETED, entry
        return Status.MISSING, entry

    def expired(self, entry: Entry, now: float) -> bool:
        """Return True if the time of a stream is over."""
        return entry.expired(now, self._last_touch(entry))

    def is_late(self, entry: Entry, now: float) -> bool:
        """Return True if, as it is registered, most of the time to live of a stream is over."""
        return entry.ttl is not None and now >= entry.touched + entry.ttl * _LATE_SHARE

    def _last_touch(self, entry: Entry) -> float:
        return max(entry.touched, self._touched.get(entry.incarnation, 0.0))

    def _needed(self, entry: Entry, now: float) -> bool:
        """Return True if forks that are there need the messages of a stream."""
        forks = self._forks.get(entry.incarnation, ())
        return any(self.status(path, now)[0] is not Status.MISSING for path in forks)

    def touched(self, now: float) -> list[tuple[str, Entry]]:
        """Return entries to be registered again, as their last read or write is not yet."""
        return [
            (path, replace(entry, touched=at))
            for path, entry in self.entries.items()
            if (at := self._touched.get(entry.incarnation, 0.0)) > entry.touched
            and entry.ttl is not None
            and now >= entry.touched + entry.ttl * TOUCH_SHARE
            and not entry.deleted
        ]

    def overdue(self, now: float) -> list[tuple[str, Entry]]:
        """Return the streams that have expired and are not registered as deleted."""
        return [
            (path, entry)
            for path, entry in self.entries.items()
            if not entry.deleted and self.expired(entry, now)
        ]

    def unneeded(self, now: float) -> list[tuple[str, Entry]]:
        """Return the deleted streams that no fork needs any more."""
        return [
            (path, entry)
            for path, entry in self.entries.items()
            if entry.deleted and not self._needed(entry, now)
        ]
