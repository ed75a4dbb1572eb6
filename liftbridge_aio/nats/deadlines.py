"""Enforces the deadlines of messages in flight, all of them in one sweep."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final

from liftbridge_aio.errors import PublishNotSent, PublishOutcomeUnknown

from .in_flight import MessagesInFlight
from .link import LinkState, NatsLink

logger = logging.getLogger("liftbridge_aio.nats")

_SWEEPS_A_WAIT: Final = 5
"""Checks of deadlines within the shortest timeout of a message."""
_SLOWEST_SWEEP: Final = 0.25
_QUICKEST_SWEEP: Final = 0.01


class Deadlines:
    """Fails messages in flight whose deadline has passed, or whose connection is gone."""

    def __init__(self, link: NatsLink, in_flight: MessagesInFlight) -> None:
        self._link = link
        self._in_flight = in_flight
        self._needed = asyncio.Event()
        self._shortest_wait = math.inf
        self._reconnects = link.reconnects

    def watch(self, wait: float) -> None:
        """Check often enough for a message that may wait for `wait` seconds."""
        if wait < self._shortest_wait:
            self._shortest_wait = wait
            self._needed.set()

    async def run(self) -> None:
        """Check deadlines until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._needed.wait()
            wait = min(self._shortest_wait / _SWEEPS_A_WAIT, _SLOWEST_SWEEP)
            await asyncio.sleep(max(wait, _QUICKEST_SWEEP))
            try:
                if self._link.state is LinkState.OVER:
                    self._fail_for_good()
                else:
                    self._in_flight.expire(loop.time(), self._excuse())
            except Exception as error:
                logger.exception("the deadlines of messages could not be checked")
                text = f"a fault of the publisher: {error!r}"
                self._in_flight.fail_all(PublishOutcomeUnknown(text), PublishNotSent(text))
            if not self._in_flight.unsettled:
                self._reconnects = self._link.reconnects
                self._shortest_wait = math.inf
                self._needed.clear()

    def _excuse(self) -> str:
        """Describe the probable cause of missing acks."""
        if self._link.state is LinkState.AWAY:
            return f"; {self._link.outage}"
        if self._link.reconnects != self._reconnects:
            return "; the connection to NATS was lost meanwhile"
        error = self._link.last_error
        return f"; NATS said: {error}" if error is not None else ""

    def _fail_for_good(self) -> None:
        unknown = PublishOutcomeUnknown("the NATS connection was closed before the ack came")
        unsent = PublishNotSent("the NATS connection was closed before it had the message")
        unknown.__cause__ = unsent.__cause__ = self._link.last_error
        self._in_flight.fail_all(unknown, unsent)
