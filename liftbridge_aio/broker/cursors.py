"""Cursors, kept in the internal stream `__cursors` as the real server keeps them.

Without I/O or a clock; publishing and waking are for others to do.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Final

from liftbridge_aio.model import CURSORS_STREAM
from liftbridge_aio.wire import proto

from .errors import BrokerError, Code, PublishCode, PublishRefused
from .log import PartitionLog
from .node import Node
from .partition import Partition
from .requests import StreamRequest
from .stream_config import StreamConfig

NO_CURSOR: Final = -1
"""What FetchCursor answers where nothing was stored."""

_CACHED_CURSORS: Final = 512


def cursors_stream(subject: str, partitions: int) -> StreamRequest:
    """Describe `__cursors`, which all brokers of a cluster keep."""
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
    """Finds cursors in the log of `__cursors`.

    Like Liftbridge 1.9.0 it remembers the last 512 cursors, until this broker leads a partition of
    `__cursors` anew. One that was forgotten is looked up in the log as the *highest* offset ever
    stored, so that a cursor which was moved back may jump forward again.
    """

    def __init__(self, node: Node) -> None:
        """Find the cursors that a broker leads."""
        self._node = node
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._cached_of: list[tuple[PartitionLog, int]] = []

    def locate(self, cursor_id: str, stream: str, partition: int) -> tuple[bytes, Partition]:
        """Return a cursor's key, and the partition of `__cursors` that keeps it (W14).

        Raises:
            BrokerError: a name is missing, there are no cursors, or another broker keeps this one.
        """
        if not stream:
            raise BrokerError(Code.INVALID_ARGUMENT, "No stream provided")
        if not cursor_id:
            raise BrokerError(Code.INVALID_ARGUMENT, "No cursorId provided")
        key = f"{cursor_id},{stream},{partition}".encode()
        kept_in = self._node.stream(CURSORS_STREAM)
        if kept_in is None:
            raise BrokerError(Code.INTERNAL, "Cursors stream does not exist")
        found = kept_in.partitions[zlib.crc32(key) % len(kept_in.partitions)]
        if not self._node.leads(found):
            text = f"Server not leader for cursors partition {found.number}"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        return key, found

    def remembered(self, key: bytes) -> int | None:
        """Return a position that needs no look into the log."""
        self._forget_if_leading_anew()
        if key not in self._cache:
            return None
        self._cache.move_to_end(key)
        return self._cache[key]

    def look_up(self, key: bytes, partition: Partition) -> int:
        """Return the position in the log, or -1."""
        stored = partition.log.read(0, partition.log.next_offset)
        offsets = [_stored_offset(message.value) for message in stored if message.key == key]
        offset = max(offsets, default=NO_CURSOR)
        self.remember(key, offset)
        return offset

    def remember(self, key: bytes, offset: int) -> None:
        """Keep a position that was stored or looked up."""
        self._forget_if_leading_anew()
        self._cache[key] = offset
        self._cache.move_to_end(key)
        if len(self._cache) > _CACHED_CURSORS:
            self._cache.popitem(last=False)

    def _forget_if_leading_anew(self) -> None:
        # A resumed partition has a new log, a new leader a new epoch: the real server forgets the
        # cursors of all partitions then.
        stream = self._node.stream(CURSORS_STREAM)
        partitions = stream.partitions.values() if stream else ()
        led = [(one.log, one.leader_epoch) for one in partitions if self._node.leads(one)]
        if led != self._cached_of:
            self._cache.clear()
            self._cached_of = led


def _stored_offset(value: bytes) -> int:
    try:
        return proto.Cursor.parse(value).offset
    except Exception:  # noqa: BLE001 - anybody may publish anything to this stream
        return NO_CURSOR


def refused_cursor(refused: PublishRefused) -> BrokerError:
    """Say as the real server does that a cursor was not stored."""
    if refused.code is PublishCode.INTERNAL:
        return BrokerError(Code.INTERNAL, refused.text)  # an error of NATS, which is no status
    status = refused.as_status()
    name = "".join(word.capitalize() for word in status.code.name.split("_"))
    return BrokerError(Code.INTERNAL, f"rpc error: code = {name} desc = {status.text}")
