"""Snapshots of the states of streams, in the registry: what outlives the messages of a log."""

from __future__ import annotations

import asyncio
from typing import Final

from liftbridge_aio.durable_streams.core.stream_log import StreamLog
from liftbridge_aio.options import StreamOptions, timer_seconds

from .hosted_logs import HostedLogs
from .hosted_stream import HostedStream, Saved
from .registry_log import RegistryLog

_KEY: Final = "state:"
_MAX_BYTES: Final = 500_000
"""Bytes of the producers of a snapshot: it has to fit into a message."""
_EVERY: Final = 10_000
"""Messages after which a snapshot is made in any case: it is quicker to read than they are."""
_INTERVAL: Final = 30.0
"""Most seconds until a snapshot has what a stream knows of its writers, if messages may go."""


class Snapshots:
    """The newest snapshot of each log, and when to make the next one.

    Args:
        registry: where they are kept.
        options: settings of the logs in Liftbridge.
    """

    # State, changed only in the event loop: `newest` by `_apply`, `_since` by `save`.

    def __init__(self, registry: RegistryLog, options: StreamOptions) -> None:
        self.newest: dict[str, bytes] = {}
        """By name of the log."""
        self._registry = registry
        self._interval = _interval(options)
        self._since: dict[str, float] = {}
        """When it was first seen that a snapshot lacks something, by the event loop's clock."""
        registry.on_record(_KEY, self._apply)

    def _apply(self, log: str, value: bytes) -> None:
        if value:
            StreamLog.from_snapshot(value)  # or it is skipped: no gateway wrote it
            self.newest[log] = value
        else:
            self.newest.pop(log, None)

    async def save(self, logs: HostedLogs, *, all_due: bool = False) -> None:
        """Make the snapshots that are due. Cancelling leaves it open which ones are made.

        Args:
            logs: the logs that are followed.
            all_due: True to make those that will be, too.

        Raises:
            LiftbridgeError: one could not be registered.
        """
        now = asyncio.get_running_loop().time()
        for log, hosted in logs.owned():
            if self.lacks(hosted):
                since = self._since.setdefault(log, now)
                due = all_due or (self._interval is not None and now >= since + self._interval)
            else:
                due = False
            if due or hosted.state.next_offset >= hosted.saved.next_offset + _EVERY:
                self._since.pop(log, None)
                await self._save(log, hosted)

    def lacks(self, hosted: HostedStream) -> bool:
        """Return True if the snapshot lacks something that the log may lose."""
        return self._interval is not None and hosted.state.writes > hosted.saved.writes

    async def _save(self, log: str, hosted: HostedStream) -> None:
        state = hosted.state
        saved = Saved(state.next_offset, state.writes)
        value = state.snapshot(_MAX_BYTES)

        def decide() -> bytes:
            newest = self.newest.get(log, b"")
            if newest and StreamLog.from_snapshot(newest).next_offset > saved.next_offset:
                return newest  # another gateway's
            return value

        await self._registry.record(_KEY + log, decide)
        hosted.saved = saved

    async def remove(self, log: str) -> None:
        """Remove the snapshot of a log that is deleted. Cancelling leaves it open if it is there.

        Raises:
            LiftbridgeError: it could not be removed.
        """
        self._since.pop(log, None)
        if log in self.newest:
            await self._registry.record(_KEY + log, lambda: b"")


def _interval(options: StreamOptions) -> float | None:
    """Return the seconds that a snapshot may be late; None if logs lose nothing."""
    limits = options.retention_max_age, options.retention_max_bytes, options.retention_max_messages
    if all(limit is not None and not limit for limit in limits):
        return None
    times = options.retention_max_age, options.cleaner_interval
    return min([_INTERVAL, *(timer_seconds(each) / 4 for each in times if each)])
