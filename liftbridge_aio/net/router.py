"""Unary calls with retries, to any broker or to a named one."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from liftbridge_aio._core.absence import Incarnation
from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio._core.foreign_cancellation import CALLBACK_ERRORS
from liftbridge_aio._core.status import THROUGH_RAFT, CallFailure, Code, Reach, Remedy, remedy
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.errors import InvalidRequest, TLSFailed
from liftbridge_aio.model import BrokerInfo, Metadata
from liftbridge_aio.options import ClientOptions, timer_seconds
from liftbridge_aio.retry import wait_before_try
from liftbridge_aio.telemetry import Retried
from liftbridge_aio.wire.rpc import ReplyT, RequestT, Rpc

from .broker_connection import Purpose
from .connection_pool import ConnectionPool
from .reporter import Reporter
from .retry_state import RetryState
from .tls_context import speaks_tls

logger = logging.getLogger("liftbridge_aio.net")

_SHORTEST_TIMEOUT: Final = 0.001
"""Seconds. A shorter deadline cannot be sent."""
_FIRST_CHANGE_TIMEOUT: Final = 2.0
"""Seconds for the first attempt of a change that goes through Raft, doubled if it gets no answer.

Liftbridge loses the answer if Raft is done before the server waits for it, and then holds up every
other change until the deadline that it was given.
"""
_HEALTH_CHECK_TIMEOUT: Final = 1.0
"""Seconds in which a suspected broker must answer, or another is called in its place."""


class Router:
    """Calls brokers: any that answers, or a named one.

    Changed here only: the address that answered last, and those that have ever answered.
    """

    def __init__(
        self,
        seeds: Sequence[str],
        options: ClientOptions,
        supervisor: Supervisor,
        pool: ConnectionPool,
        reporter: Reporter,
        snapshot: Callable[[], Metadata],
    ) -> None:
        self.pool = pool
        self.not_found_timeout = timer_seconds(options.not_found_timeout)
        self._seeds = tuple(seeds)
        self._options = options
        self._supervisor = supervisor
        self._reporter = reporter
        self._snapshot = snapshot
        self._preferred: str | None = None
        """The address that answered last."""
        self._have_answered: set[str] = set()
        """Addresses that have answered, and have not closed a connection silently since."""

    @property
    def snapshot(self) -> Metadata:
        """The metadata that the client knows now."""
        return self._snapshot()

    @property
    def answered_by(self) -> Incarnation:
        """The server that answered the last call."""
        return self.pool.incarnation(self._preferred or "")

    def address_of(self, broker: BrokerInfo) -> str:
        """Return where to reach a broker: its advertised address, mapped by `address_map`."""
        mapping = self._options.address_map
        if mapping is None:
            return broker.address
        try:
            address = mapping(broker.address)
            parse_address(address)
        except CALLBACK_ERRORS as error:
            raise InvalidRequest(f"address_map failed for {broker.address!r}: {error!r}") from error
        return address

    def addresses(self) -> list[str]:
        """Return every address to try: the one that answered last, known brokers, then seeds.

        Suspected ones come last, until they have answered again.
        """
        brokers = [self.address_of(broker) for broker in self._snapshot().brokers.values()]
        seeds = [seed for seed in self._seeds if seed not in brokers]
        random.shuffle(brokers)
        random.shuffle(seeds)
        found = brokers + seeds
        if self._preferred in found:
            found.remove(self._preferred)
            found.insert(0, self._preferred)
        return sorted(found, key=self.pool.suspected)

    @property
    def all_suspected(self) -> bool:
        """True if every known address is suspected to be unreachable."""
        return all(self.pool.suspected(address) for address in self.addresses())

    @property
    def any_suspected(self) -> bool:
        """True if a broker of the cluster is suspected to be unreachable."""
        brokers = self._snapshot().brokers.values()
        return any(self.pool.suspected(self.address_of(broker)) for broker in brokers)

    @property
    def unusable(self) -> CallFailure | None:
        """The reason why no server can be used, if it holds for every address and will not pass."""
        failures = [self.pool.unusable(address) for address in self.addresses()]
        return failures[0] if all(failures) else None

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after `attempt` failed attempts (counted from 1)."""
        return self._options.backoff.delay(attempt - 1, random.random())  # noqa: S311 - jitter

    async def call_once(
        self,
        address: str,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        timeout: float,
        *,
        send_deadline: bool = True,
    ) -> ReplyT:
        """Call one broker, once. Cancelling resets the call.

        Args:
            address: of the broker.
            rpc: the procedure.
            request: its request.
            timeout: seconds for everything.
            send_deadline: False does not tell the server of the timeout.

        Raises:
            CallFailure: it did not succeed; says how far it got.
            ClientClosed: the client was closed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self.pool.get(address, Purpose.CONTROL)
        except TimeoutError as error:
            raise CallFailure(
                Code.DEADLINE_EXCEEDED,
                f"no connection to {address} within {timeout:.3g} s",
                Reach.NOT_SENT,
            ) from error
        left = max(deadline - loop.time(), _SHORTEST_TIMEOUT) if send_deadline else None
        try:
            async with asyncio.timeout_at(deadline):
                call = self._supervisor.call
                reply = await call(connection.unary, rpc, request, left, name=f"call:{rpc.name}")
        except TimeoutError as error:
            raise _unanswered(address, timeout) from error
        except CallFailure as failure:
            if failure.code is Code.DEADLINE_EXCEEDED and failure.text == failure.code.name:
                # The server noticed first that the time it was given is up.
                raise _unanswered(address, timeout) from failure
            if failure.code is Code.UNAVAILABLE:
                # Behind a proxy the server may be another one, though the connection stands.
                self.pool.forget_incarnation(address)
            # Servers that require TLS close plain connections without sending anything.
            if connection.closed_silently and await self._requires_tls(address, deadline):
                raise CallFailure(
                    Code.UNAVAILABLE,
                    f"{address} requires TLS, but this client was configured without it",
                    Reach.NOT_SENT,
                    unusable=TLSFailed,
                ) from failure
            if failure.unusable is not None:
                self.pool.mark_unusable(address, failure)
            raise
        self.pool.answered(address)
        self._have_answered.add(address)
        return reply

    async def _requires_tls(self, address: str, deadline: float) -> bool:
        """Find out if a server that closed a plain connection silently requires TLS."""
        if address in self._have_answered:
            # Most likely it is shutting down; the next time it may have come back with TLS.
            self._have_answered.discard(address)
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                return await speaks_tls(address)
        return False

    async def is_alive(self, address: str) -> bool:
        """Return True if a broker is not suspected, or answers a health check now.

        Cancelling abandons the check.
        """
        if not self.pool.suspected(address):
            return True
        try:
            async with asyncio.timeout(_HEALTH_CHECK_TIMEOUT):
                connection = await self.pool.get(address, Purpose.CONTROL)
                await self._supervisor.call(
                    connection.check_health, _HEALTH_CHECK_TIMEOUT, name=f"is-alive:{address}"
                )
        except (CallFailure, TimeoutError) as error:
            logger.debug("the health check of %s failed: %s", address, error)
            return False
        self.pool.answered(address)
        return True

    async def call_any(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        timeout: float,
        *,
        stream: str | None = None,
        partition: int | None = None,
        reply_if_done: ReplyT | None = None,
        retry: bool = True,
        attempt_timeouts: Sequence[float] = (),
    ) -> ReplyT:
        """Call whichever broker answers, with retries, within `timeout` seconds.

        Cancelling resets the call; the server may have acted on it all the same.

        Args:
            rpc: the procedure.
            request: its request.
            timeout: seconds for everything.
            stream: named in errors.
            partition: named in errors.
            reply_if_done: the reply to return if a retry shows that an earlier attempt, whose
                answer was lost, has succeeded.
            retry: False gives up after every address was tried once.
            attempt_timeouts: sends no deadline to servers; each is called once for each of these,
                and given so many seconds to answer.

        Raises:
            LiftbridgeError: it did not succeed.
        """
        state = RetryState(rpc.name, timeout, stream, partition)
        earlier_unknown = False
        while True:
            for address in self.addresses():
                try:
                    reply = await self.attempt(state, address, rpc, request, attempt_timeouts)
                except CallFailure as failure:
                    state.failed(address, failure)
                    advice = remedy(rpc.name, failure, earlier_unknown=earlier_unknown)
                    if advice is Remedy.SUCCESS and reply_if_done is not None:
                        return reply_if_done
                    if advice not in {Remedy.RETRY, Remedy.REFRESH}:
                        raise state.error(failure) from failure
                    earlier_unknown = earlier_unknown or failure.may_have_acted
                else:
                    self.prefer(address)
                    return reply
            if not retry or state.hopeless:
                raise state.unreachable()
            await self.pause(state)

    async def attempt(
        self,
        state: RetryState,
        address: str,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        attempt_timeouts: Sequence[float] = (),
        *,
        called: str = "",
    ) -> ReplyT:
        """Make one attempt of a call, in the time that is left for all of them.

        Args:
            state: of the call.
            address: of the broker.
            rpc: the procedure.
            request: its request.
            attempt_timeouts: as for `call_any`.
            called: names the broker in errors; by default its address.

        Raises:
            CallFailure: it did not succeed.
            LiftbridgeError: the time is up.
        """
        through_raft = rpc.name in THROUGH_RAFT
        longest = _FIRST_CHANGE_TIMEOUT * 2.0 ** min(state.unanswered, 10)
        timeouts = list(attempt_timeouts) or [longest if through_raft else math.inf]
        while True:
            if state.left < _SHORTEST_TIMEOUT:
                raise state.timed_out() from state.last
            timeout = min(timeouts.pop(0), state.left)
            try:
                return await self.call_once(
                    address, rpc, request, timeout, send_deadline=not attempt_timeouts
                )
            except CallFailure as failure:
                if failure.timed_out and state.left < _SHORTEST_TIMEOUT:
                    state.failed(called or address, failure)
                    raise state.timed_out() from failure
                if not failure.timed_out or not timeouts:
                    raise

    async def call_another(
        self, rpc: Rpc[RequestT, ReplyT], request: RequestT, timeout: float
    ) -> ReplyT | None:
        """Call another broker than the one that answered last, once, without sending a deadline.

        Returns:
            The reply; None if no other broker is known.

        Raises:
            CallFailure: it did not answer within `timeout` seconds, or the call failed.
        """
        others = [address for address in self.addresses() if address != self._preferred]
        if not others:
            return None
        return await self.call_once(others[0], rpc, request, timeout, send_deadline=False)

    def prefer(self, address: str) -> None:
        """Try this address first in the next calls: it has just answered."""
        self._preferred = address

    async def pause(self, state: RetryState, longest: float = math.inf) -> None:
        """Wait before the next attempt, at most `longest` seconds, and report the retry.

        Raises:
            LiftbridgeError: the time is up before that.
        """
        delay = wait_before_try(min(self.delay(state.count), longest), state.left)
        if delay is None:
            raise state.timed_out() from state.last
        if state.last is not None:
            self._reporter.retried(Retried(state.call, state.count, delay, state.last))
        await asyncio.sleep(delay)


def _unanswered(address: str, timeout: float) -> CallFailure:
    text = f"{address} did not answer within {timeout:.3g} s"
    return CallFailure(Code.DEADLINE_EXCEEDED, text, Reach.UNKNOWN)
