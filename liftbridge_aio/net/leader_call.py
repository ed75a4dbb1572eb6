"""Unary calls to the leader of a partition, which is followed where it moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from liftbridge_aio._core.absence import Absence, Incarnation
from liftbridge_aio._core.status import CallFailure, Code, Reach, Remedy, remedy
from liftbridge_aio.errors import ConnectionFailed, RequestTimeout
from liftbridge_aio.model import BrokerInfo
from liftbridge_aio.wire.rpc import ReplyT, RequestT, Rpc

from .retry_state import RetryState
from .router import Router

logger = logging.getLogger("liftbridge_aio.net")

Refresh = Callable[[Sequence[str]], asyncio.Future[Incarnation]]

_ATTEMPTS_BEFORE_REFRESH: Final = 2
"""Failed attempts after which the leader is looked up again, even if it is not suspected: the first
may have failed with a connection that broke."""


async def call_leader(
    router: Router,
    rpc: Rpc[RequestT, ReplyT],
    request: RequestT,
    timeout: float,
    *,
    led: tuple[str, int],
    refresh: Refresh,
    on_refusal: Callable[[], None] | None = None,
    expected: bool = True,
    attempt_timeouts: Sequence[float] = (),
    stream: str | None = None,
    partition: int | None = None,
) -> ReplyT:
    """Call the leader of a partition, following it where it moves, within `timeout` seconds.

    Cancelling resets the call; the server may have acted on it all the same.

    Args:
        router: makes the calls.
        rpc: the procedure.
        request: its request.
        timeout: seconds for everything.
        led: stream and partition whose leader is to be called.
        refresh: begins to fetch metadata of the streams that it is given; its result is the server
            that answered.
        on_refusal: called with fresh metadata if that still names the leader that refused the last
            attempt; what it raises ends the call.
        expected: False if the stream need not exist: it then counts as gone sooner
            (`Absence.plausible`).
        attempt_timeouts: as for `Router.call_any`.
        stream: named in errors.
        partition: named in errors.

    Raises:
        LiftbridgeError: it did not succeed.
    """
    state = RetryState(rpc.name, timeout, stream, partition)
    search = _LeaderSearch(router, state, led, refresh)
    absence = search.absence
    refused_by: str | None = None
    while True:
        address: str | None = None
        try:
            address = await search.address(refused=bool(refused_by))
            if address == refused_by and on_refusal is not None:
                on_refusal()
            reply = await router.attempt(
                state, address, rpc, request, attempt_timeouts, called=search.leader
            )
        except CallFailure as failure:
            state.failed(search.leader, failure)
            refused_by = address if failure.reach is Reach.ANSWERED else None
            if failure.code is Code.NOT_FOUND:
                search.denied_by(address)
                again = not (absence.confirmed if expected else absence.plausible)
            else:
                again = remedy(rpc.name, failure) in {Remedy.RETRY, Remedy.REFRESH}
                again = again and not failure.tls_failed
            if not again:
                raise state.error(failure) from failure
        except RequestTimeout as error:
            _raise_if_denied(state, absence, error)
            raise
        else:
            router.prefer(address)
            return reply
        try:
            await router.pause(state, absence.remaining)
        except RequestTimeout as error:
            _raise_if_denied(state, absence, error)
            raise


class _LeaderSearch:
    """Finds the leader of a partition, again for each attempt of one call."""

    def __init__(
        self, router: Router, state: RetryState, led: tuple[str, int], refresh: Refresh
    ) -> None:
        self.leader = f"leader of {led[0]}/{led[1]}"
        """Its name in errors."""
        self.absence = Absence(router.not_found_timeout)
        self._listed = False
        """True if metadata that was fetched for the latest attempt lists the partition."""
        self._router = router
        self._state = state
        self._led = led
        self._refresh = refresh

    async def address(self, *, refused: bool) -> str:
        """Return the leader's address, from fresh metadata if the known one may be wrong.

        It may be if it is unknown or suspected, refused the last attempt, or two attempts have
        failed. A suspected leader gets a health check. Meanwhile metadata is refreshed: if the
        leader is dead, other servers may wait for it for seconds before they answer.

        Raises:
            CallFailure: no leader is known, or it does not answer health checks.
            LiftbridgeError: the time is up, or the stream has no such partition.
        """
        router, state, pool = self._router, self._state, self._router.pool
        self._listed = False
        known = router.snapshot.leader(*self._led)
        before = None if known is None else router.address_of(known)
        is_suspected = before is not None and pool.suspected(before)
        if (
            before is not None
            and not is_suspected
            and not refused
            and state.count < _ATTEMPTS_BEFORE_REFRESH
        ):
            return before
        renewal = self._refresh([self._led[0]])
        try:
            async with state.time():
                checked = before if is_suspected and not refused else None
                if checked is not None and await router.is_alive(checked):
                    return checked
                address = router.address_of(self._look_up(await self._renewed(renewal)))
                if pool.suspected(address) and (
                    address == checked or not await router.is_alive(address)
                ):
                    raise self._not_alive(address)
        except TimeoutError as error:
            if before is not None and is_suspected:
                state.failed(self.leader, self._not_alive(before))
            raise state.timed_out() from error
        finally:
            renewal.cancel()  # else asyncio would log an error of it that nobody awaits
        return address

    def denied_by(self, address: str | None) -> None:
        """Record that a leader does not know the stream; None if there was none to ask.

        A leader that was restarted learns of its partitions later than others list them.
        """
        if self._listed:
            self.absence.known()
        elif address is not None:
            incarnation = self._router.pool.incarnation(address)
            self.absence.denied(asyncio.get_running_loop().time(), incarnation)

    async def _renewed(self, renewal: asyncio.Future[Incarnation]) -> Incarnation | None:
        try:
            return await renewal
        except (ConnectionFailed, RequestTimeout) as error:
            logger.debug("metadata could not be refreshed: %s", error)
            return None

    def _look_up(self, answered_by: Incarnation | None) -> BrokerInfo:
        """Return the leader from metadata that was just refreshed, if a server answered."""
        (stream, partition), snapshot = self._led, self._router.snapshot
        leader = snapshot.leader(stream, partition)
        if leader is not None:
            self._listed = answered_by is not None
            return leader
        if answered_by is None:
            raise CallFailure(
                Code.UNAVAILABLE,
                f"no server could be asked for the leader of {stream}/{partition}",
                Reach.NOT_SENT,
            )
        if stream not in snapshot.streams:
            self.absence.denied(asyncio.get_running_loop().time(), answered_by)
            raise CallFailure(Code.NOT_FOUND, f"no broker knows the stream: {stream}")
        if snapshot.partition(stream, partition) is None:
            # Partitions are created with their stream, so no retry will find it.
            failure = CallFailure(Code.NOT_FOUND, f"no such partition: {stream}/{partition}")
            raise self._state.error(failure) from failure
        raise CallFailure(
            Code.UNAVAILABLE,
            f"{stream}/{partition} has no leader whose address is known",
            Reach.NOT_SENT,
        )

    def _not_alive(self, address: str) -> CallFailure:
        text = f"the leader, {address}, does not answer health checks"
        unusable = self._router.pool.unusable(address)
        return unusable or CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT)


def _raise_if_denied(state: RetryState, absence: Absence, error: RequestTimeout) -> None:
    """Raise the servers' answer if they denied the stream until the time was up."""
    last = state.last
    if last is None or last.code is not Code.NOT_FOUND:
        return
    if absence.denied_by is not None and not absence.interrupted:
        raise state.error(last) from error
