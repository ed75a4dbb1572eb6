"""Cursors, kept in the internal stream `__cursors` as the real server keeps them.

Without I/O or a clock: time and the name of the inbox come in as arguments.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from liftbridge_aio.model import CURSORS_STREAM, AckPolicy
from liftbridge_aio.wire import proto

from .errors import BrokerError, Code, PublishCode, PublishRefused
from .incoming import Incoming
from .log import PartitionLog
from .messages import refusal_in
from .partition import Partition
from .state import ClusterState, StreamRequest
from .stream_config import StreamConfig

NO_CURSOR: Final = -1
"""What FetchCursor answers where nothing was stored."""

_CACHED_CURSORS: Final = 512


class CursorStore:
    """Sets and finds cursors through the log of `__cursors`.

    Like Liftbridge 1.9.0 it remembers the last 512 cursors, until a partition of `__cursors` is
    resumed. One that was forgotten is looked up in the log as the *highest* offset ever stored, so
    that a cursor which was moved back may jump forward again.
    """

    def __init__(self, state: ClusterState, subject: str) -> None:
        """Keep cursors in `state`.

        Args:
            state: where the internal stream lives.
            subject: NATS subject of the internal stream.
        """
        self._state = state
        self._subject = subject
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._cached_of: list[PartitionLog] = []

    def create_stream(self, partitions: int, now: int) -> None:
        """Create `__cursors`; no partitions mean that there are no cursors at all."""
        if partitions > 0:
            config = StreamConfig(
                compact_enabled=True, auto_pause_time=0, auto_pause_disable_if_subscribers=True
            )
            request = StreamRequest(
                name=CURSORS_STREAM, subject=self._subject, partitions=partitions, config=config
            )
            self._state.add_stream(request, now)

    def set(
        self, cursor: proto.Cursor, ack_inbox: str, now: int, choose: Callable[[int], int]
    ) -> None:
        """Store a cursor.

        Args:
            cursor: whose position, and what position.
            ack_inbox: a fresh subject for the ack.
            now: Unix nanoseconds.
            choose: see `ClusterState.deliver`.

        Raises:
            BrokerError: a name is missing, there are no cursors, or the message was refused.
        """
        key = _key(cursor.cursor_id, cursor.stream, cursor.partition)
        partition = self._partition(key)
        incoming = Incoming(
            key,
            bytes(cursor),
            {},
            ack_inbox,
            "",
            AckPolicy.ALL,
            expected_offset=0,
            stream=CURSORS_STREAM,
        )
        try:
            acks = self._state.publish(CURSORS_STREAM, partition.number, incoming, now, choose)
            refused = refusal_in(acks[0]) if acks else None
            if refused is not None:
                raise refused
        except PublishRefused as error:
            raise BrokerError(Code.INTERNAL, _as_go_prints(error)) from error
        self._remember(key, cursor.offset)

    def get(self, cursor_id: str, stream: str, partition: int, now: int) -> int:
        """Return the stored position, or -1.

        Raises:
            BrokerError: a name is missing, or there are no cursors.
        """
        key = _key(cursor_id, stream, partition)
        kept_in = self._partition(key)
        self._forget_after_resume()
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        if kept_in.log.newest_offset >= 0:
            self._state.resume(CURSORS_STREAM, kept_in.number, now)
        offset = _highest_stored(key, kept_in.log)
        self._remember(key, offset)
        return offset

    def _partition(self, key: bytes) -> Partition:
        stream = self._state.stream(CURSORS_STREAM)
        if stream is None:
            raise BrokerError(Code.INTERNAL, "Cursors stream does not exist")
        return stream.partitions[zlib.crc32(key) % len(stream.partitions)]  # W14

    def _forget_after_resume(self) -> None:
        # A resumed partition has a new log. The real server "becomes leader" then, and forgets the
        # cursors of all partitions.
        stream = self._state.stream(CURSORS_STREAM)
        logs = [partition.log for partition in stream.partitions.values()] if stream else []
        if logs != self._cached_of:
            self._cache.clear()
            self._cached_of = logs

    def _remember(self, key: bytes, offset: int) -> None:
        self._forget_after_resume()
        self._cache[key] = offset
        self._cache.move_to_end(key)
        if len(self._cache) > _CACHED_CURSORS:
            self._cache.popitem(last=False)


def _key(cursor_id: str, stream: str, partition: int) -> bytes:
    if not stream:
        raise BrokerError(Code.INVALID_ARGUMENT, "No stream provided")
    if not cursor_id:
        raise BrokerError(Code.INVALID_ARGUMENT, "No cursorId provided")
    return f"{cursor_id},{stream},{partition}".encode()


def _highest_stored(key: bytes, log: PartitionLog) -> int:
    stored = log.read(0, log.next_offset)
    offsets = [_stored_offset(message.value) for message in stored if message.key == key]
    return max(offsets, default=NO_CURSOR)


def _stored_offset(value: bytes) -> int:
    try:
        return proto.Cursor.parse(value).offset
    except Exception:  # noqa: BLE001 - anybody may publish anything to this stream
        return NO_CURSOR


def _as_go_prints(refused: PublishRefused) -> str:
    if refused.code is PublishCode.INTERNAL:
        return refused.text  # an error of NATS, which is no status
    status = refused.as_status()
    name = "".join(word.capitalize() for word in status.code.name.split("_"))
    return f"rpc error: code = {name} desc = {status.text}"
