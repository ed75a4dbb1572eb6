"""The decisions of a query: one for each of its batches, whichever driver makes it."""

from __future__ import annotations

from typing import Final, Self

from liftbridge_aio._client.client import Client
from liftbridge_aio.spark.core.decision import Decision
from liftbridge_aio.spark.errors import NEW_QUERY_HINT, BatchSuperseded
from liftbridge_aio.transactions.claimed_log import ClaimedLog

_FEW: Final = 16
"""Messages of the log that are read first, from its end."""
_WIDER: Final = 8
"""Factor by which more are read each time, until a decision of the query is among them."""


class Decisions:
    """Decides for a query which attempts a batch commits, as long as no other driver does.

    Make one with `open`. After any error make another one.
    """

    def __init__(self, log: ClaimedLog, newest: Decision | None) -> None:
        """Use `open`."""
        self._log = log
        self._newest = newest

    @classmethod
    async def open(cls, client: Client, stream: str, wanted: Decision) -> Self:
        """Claim the log, which fences off other drivers. Cancelling may leave it claimed.

        Args:
            client: connected.
            stream: the log; it is created if it is missing.
            wanted: what will be decided first.

        Raises:
            LiftbridgeError: the log could not be claimed or read.
        """
        log = await ClaimedLog.open(client, stream)
        return cls(log, await _newest(log, wanted, at_most=None))

    def passed(self, wanted: Decision) -> bool:
        """Return True if a later batch is decided; only what was decided before `open` is read."""
        return self._newest is not None and self._newest.batch > wanted.batch

    async def decide(self, wanted: Decision) -> Decision:
        """Return what the batch commits: what was decided before, or else `wanted`.

        Cancelling leaves the outcome unknown.

        Raises:
            BatchSuperseded: a later batch is decided, and this one never was.
            ProducerFenced: another driver decides now.
            LiftbridgeError: it could not be decided, or this is unknown.
        """
        newest = self._newest
        if self.passed(wanted):
            newest = await _newest(self._log, wanted, at_most=wanted.batch)
            if newest is None or newest.batch < wanted.batch:
                raise _superseded(wanted, self._newest)
        if newest is not None and newest.batch == wanted.batch:
            return newest
        await self._log.append(wanted.encode())
        self._newest = wanted
        return wanted


async def _newest(log: ClaimedLog, wanted: Decision, at_most: int | None) -> Decision | None:
    """Return the newest decision of a query, reading no more of the log than needed."""
    width = _FEW
    while True:
        start = max(log.claim - width, 0)
        newest: Decision | None = None
        async for record in log.records(start):
            found = Decision.decode(record.value)
            if found.query == wanted.query and (at_most is None or found.batch <= at_most):
                newest = found
        if newest is not None or not start:
            return newest
        width *= _WIDER


def _superseded(wanted: Decision, newest: Decision | None) -> BatchSuperseded:
    text = f"{wanted} cannot be committed: {newest} is committed, and that batch never was"
    error = BatchSuperseded(text)
    error.hint = (
        "another driver runs the query from a newer checkpoint, or this checkpoint was restored"
        f" from an older copy; end one of them, or {NEW_QUERY_HINT}"
    )
    return error
