"""Logs on disk for tests: written, damaged and read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from liftbridge_aio.broker.storage.core.segment import CorruptSegment, Segment
from liftbridge_aio.broker.storage.disk_store import DiskSegmentStore
from liftbridge_aio.broker.storage.open_files import OpenFiles
from liftbridge_aio.model import Message


def message(offset: int, value: bytes | None = None, timestamp: int | None = None) -> Message:
    text = b"message %d" % offset if value is None else value
    headers = {"subject": b"subject", "reply": b""}
    moment = offset if timestamp is None else timestamp
    return Message("s", 0, offset, b"key", text, moment, headers, "subject")


def store_in(folder: Path) -> DiskSegmentStore:
    """Return the store as of a new process."""
    return DiskSegmentStore(folder, "s", 0, OpenFiles())


def filled(folder: Path, *runs: Iterable[Message]) -> DiskSegmentStore:
    """Return a new store with a segment for each sequence of messages."""
    store = store_in(folder)
    store.open()
    following = 0
    for run in runs:
        segment = store.create(following)
        for one in run:
            segment.append(one)
        following = segment.next_offset
    return store


def log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


@dataclass
class Contents:
    """The messages that can be read from segments, and the offsets reported lost."""

    messages: list[Message] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    @property
    def offsets(self) -> list[int]:
        return [one.offset for one in self.messages]


def contents(segments: Iterable[Segment]) -> Contents:
    """Read everything that can be read, continuing after damage."""
    found = Contents()
    for segment in segments:
        offset = segment.base_offset
        while offset < segment.next_offset:
            end = segment.next_offset
            try:
                batch = segment.read(offset, 3, end)
            except CorruptSegment as damage:
                found.messages += segment.read(offset, 1000, min(damage.first_offset, end))
                found.lost += range(damage.first_offset, damage.next_offset)
                offset = max(damage.next_offset, offset + 1)
                continue
            if not batch:
                break
            found.messages += batch
            offset = batch[-1].offset + 1
    return found
