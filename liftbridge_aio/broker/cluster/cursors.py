"""Cursors, stored in the internal stream `__cursors` as real servers store them.

Pure: the caller publishes to the stream and resumes its partitions.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from liftbridge_aio.broker.errors import BrokerError, Code, PublishCode, PublishRefused
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.segment import Segment
from liftbridge_aio.broker.storage.core.stream_config import StreamConfig
from liftbridge_aio.model import CURSORS_STREAM
from liftbridge_aio.wire import proto

from .node import Node
from .partition import Partition
from .requests import StreamRequest

NO_CURSOR: Final = -1
"""The offset that FetchCursor returns where no cursor is stored."""

_CACHED_CURSORS: Final = 512


def cursors_stream(subject: str, partitions: int) -> StreamRequest:
    """Return the request that creates `__cursors`, with a replica on every broker."""
    config = StreamConfig(
        compact_enabled=True, auto_pause_time=0, auto_pause_disable_if_subscribers=True
    )
    return StreamRequest(
        name=CURSORS_STREAM,
        subject=subject,
        partitions=partitions,
        replication_factor=-1,
        config=config,
    )


class CursorStore:
    """Reads cursors from the log of `__cursors`.

    Like Liftbridge 1.9.0 it caches the last 512 cursors, until this broker becomes the leader of a
    partition of `__cursors`. A cursor that is not cached is looked up in the log as the *highest*
    offset ever stored, so a cursor that was moved back may jump forward again.
    """

    def __init__(self, node: Node) -> None:
        """Serve the cursors whose partitions a node leads."""
        self._node = node
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._cached_logs: list[tuple[PartitionLog, int]] = []
        self._highest: dict[int, _HighestOffsets] = {}
        """By partition of `__cursors`."""

    def locate(self, cursor_id: str, stream: str, partition: int) -> tuple[bytes, Partition]:
        """Return a cursor's key, and the partition of `__cursors` that stores it.

        The partition is that of the key's CRC-32.

        Raises:
            BrokerError: a name is missing, there is no `__cursors`, or another broker leads the
                partition.
        """
        if not stream:
            raise BrokerError(Code.INVALID_ARGUMENT, "No stream provided")
        if not cursor_id:
            raise BrokerError(Code.INVALID_ARGUMENT, "No cursorId provided")
        key = f"{cursor_id},{stream},{partition}".encode()
        cursors = self._node.stream(CURSORS_STREAM)
        if cursors is None:
            raise BrokerError(Code.INTERNAL, "Cursors stream does not exist")
        found = cursors.partitions[zlib.crc32(key) % len(cursors.partitions)]
        if not self._node.leads(found):
            raise BrokerError(
                Code.FAILED_PRECONDITION, f"Server not leader for cursors partition {found.number}"
            )
        return key, found

    def cached(self, key: bytes) -> int | None:
        """Return the offset from the cache, None if it is not there."""
        self._invalidate_cache()
        if key not in self._cache:
            return None
        self._cache.move_to_end(key)
        return self._cache[key]

    def look_up(self, key: bytes, partition: Partition) -> int:
        """Return the offset from the log, or `NO_CURSOR`."""
        self._invalidate_cache()
        highest = self._highest.setdefault(partition.number, _HighestOffsets())
        highest.read(partition.log)
        offset = highest.offsets.get(key, NO_CURSOR)
        self.cache(key, offset)
        return offset

    def cache(self, key: bytes, offset: int) -> None:
        """Cache an offset that was stored or looked up."""
        self._invalidate_cache()
        self._cache[key] = offset
        self._cache.move_to_end(key)
        if len(self._cache) > _CACHED_CURSORS:
            self._cache.popitem(last=False)

    def _invalidate_cache(self) -> None:
        # A resumed partition has a new log, a new leader a new epoch: then a real server drops the
        # cursors of all partitions from its cache.
        stream = self._node.stream(CURSORS_STREAM)
        partitions = stream.partitions.values() if stream else ()
        led = [(one.log, one.leader_epoch) for one in partitions if self._node.leads(one)]
        if led != self._cached_logs:
            self._cache.clear()
            self._highest.clear()
            self._cached_logs = led


class _HighestOffsets:
    """The highest committed offset of each cursor in a log, of which each message is read once.

    A real server reads the whole log for each cursor that it has not cached.
    """

    def __init__(self) -> None:
        """Know no cursor yet."""
        self.offsets: dict[bytes, int] = {}
        self._segments: Sequence[Segment] = ()
        """The segments that were read."""
        self._end = 0
        """The offset after the last message that was read."""

    def read(self, log: PartitionLog) -> None:
        """Read what is new in the log; all of it if messages were removed from it."""
        segments = log.segments
        is_longer = segments[: len(self._segments)] == self._segments
        if not is_longer or log.next_offset < self._end:
            self.offsets, self._end = {}, 0
        self._segments = segments
        for message in log.read(self._end, log.next_offset):
            offset = _stored_offset(message.value)
            self.offsets[message.key] = max(offset, self.offsets.get(message.key, NO_CURSOR))
            self._end = message.offset + 1


def _stored_offset(value: bytes) -> int:
    try:
        return proto.Cursor.parse(value).offset
    except Exception:  # noqa: BLE001 - any client may publish any bytes to this stream
        return NO_CURSOR


def refused_cursor(refused: PublishRefused) -> BrokerError:
    """Return the status with which a real server says that a cursor was not stored."""
    if refused.code is PublishCode.INTERNAL:
        return BrokerError(Code.INTERNAL, refused.text)  # an error of NATS, which is no status
    status = refused.as_status()
    name = "".join(word.capitalize() for word in status.code.name.split("_"))
    return BrokerError(Code.INTERNAL, f"rpc error: code = {name} desc = {status.text}")
