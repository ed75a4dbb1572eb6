"""Unary calls that survive what can be survived: other brokers, fresh metadata, another try."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from liftbridge_aio.addresses import parse_address
from liftbridge_aio.errors import (
    ConnectionFailed,
    InvalidRequest,
    RequestTimeout,
    TLSFailed,
)
from liftbridge_aio.model import BrokerInfo, Metadata
from liftbridge_aio.options import ClientOptions
from liftbridge_aio.status import CallFailure, Code, Reach, Remedy, remedy
from liftbridge_aio.telemetry import Retried
from liftbridge_aio.wire.rpc import ReplyT, RequestT, Rpc

from .link import Purpose
from .pool import LinkPool
from .reporter import Reporter
from .supervisor import Supervisor
from .tls_probe import speaks_tls
from .tries import Tries

logger = logging.getLogger("liftbridge_aio.net")

Refresh = Callable[[Sequence[str]], asyncio.Future[Any]]

_LEAST: Final = 0.001
"""Seconds. A deadline of less could not be sent."""
_TRIES_UNSEEN: Final = 2
"""Tries at a leader after which it is looked up anew, even if its link stands: the first may have
failed with a link that broke."""
_SIGN_OF_LIFE: Final = 1.0
"""Seconds in which a doubtful broker must answer, or another is called in its place."""


class Router:
    """Sends calls to any broker, to a named one, or to the leader of a partition."""

    def __init__(
        self,
        seeds: Sequence[str],
        options: ClientOptions,
        supervisor: Supervisor,
        pool: LinkPool,
        reporter: Reporter,
        snapshot: Callable[[], Metadata],
    ) -> None:
        self._seeds = tuple(seeds)
        self._options = options
        self._supervisor = supervisor
        self._pool = pool
        self._reporter = reporter
        self._snapshot = snapshot
        self._favourite: str | None = None
        self._heard: set[str] = set()
        """Addresses that have answered, and have not closed a connection unheard since."""
        self._random = random.Random()  # noqa: S311 - for spreading load

    @property
    def snapshot(self) -> Metadata:
        """What is known of the cluster now."""
        return self._snapshot()

    def address_of(self, broker: BrokerInfo) -> str:
        """Where to connect to reach a broker: its advertised address, mapped."""
        mapping = self._options.address_map
        if mapping is None:
            return broker.address
        try:
            address = mapping(broker.address)
            parse_address(address)
        except Exception as error:
            text = f"address_map failed for {broker.address!r}: {error!r}"
            raise InvalidRequest(text) from error
        return address

    def addresses(self) -> list[str]:
        """Every address that may answer: the one that last did, known brokers, then seeds.

        Those whose links broke come last, until they have answered again.
        """
        brokers = [self.address_of(broker) for broker in self._snapshot().brokers.values()]
        seeds = [seed for seed in self._seeds if seed not in brokers]
        self._random.shuffle(brokers)
        self._random.shuffle(seeds)
        found = brokers + seeds
        if self._favourite in found:
            found.remove(self._favourite)
            found.insert(0, self._favourite)
        return sorted(found, key=self._pool.doubtful)

    @property
    def in_doubt(self) -> bool:
        """Whether a broker of the cluster may be dead."""
        brokers = self._snapshot().brokers.values()
        return any(self._pool.doubtful(self.address_of(broker)) for broker in brokers)

    def delay(self, attempt: int) -> float:
        """Seconds to wait after `attempt` failed tries (counted from 1)."""
        return self._options.backoff.delay(attempt - 1, self._random.random())

    async def call_once(
        self,
        address: str,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        timeout: float,
        *,
        silent: bool = False,
    ) -> ReplyT:
        """Call one broker, once. Cancelling resets the call.

        Args:
            address: of the broker.
            rpc: the procedure.
            request: its request.
            timeout: seconds for everything.
            silent: the server is not told of the timeout.

        Raises:
            CallFailure: it did not succeed; tells how far it got.
            ClientClosed: the client was closed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                link = await self._pool.get(address, Purpose.CONTROL)
        except TimeoutError as error:
            text = f"no connection to {address} in time"
            raise CallFailure(Code.DEADLINE_EXCEEDED, text, Reach.NOT_SENT) from error
        left = None if silent else max(deadline - loop.time(), _LEAST)
        try:
            async with asyncio.timeout_at(deadline):
                call = self._supervisor.call
                reply = await call(link.unary, rpc, request, left, name=f"call:{rpc.name}")
        except TimeoutError as error:
            text = f"{address} did not answer in time"
            raise CallFailure(Code.DEADLINE_EXCEEDED, text, Reach.UNKNOWN) from error
        except CallFailure as failure:
            # Servers that want TLS close plain connections without a word.
            if link.closed_unheard and await self._wants_tls(address, deadline):
                text = f"{address} speaks TLS, and this client is not set up to do so"
                raise CallFailure(
                    Code.UNAVAILABLE, text, Reach.NOT_SENT, unfit=TLSFailed
                ) from failure
            raise
        self._pool.answered(address)
        self._heard.add(address)
        return reply

    async def _wants_tls(self, address: str, deadline: float) -> bool:
        """Find out whether a server that has said nothing wants TLS."""
        if address in self._heard:
            # It has just ended, most likely; if it does so again it may have come back with TLS.
            self._heard.discard(address)
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                return await speaks_tls(address)
        return False

    async def answers(self, address: str) -> bool:
        """Whether a broker is there as far as is known; who is doubtful must show that it lives.

        Cancelling abandons the question.
        """
        if not self._pool.doubtful(address):
            return True
        try:
            async with asyncio.timeout(_SIGN_OF_LIFE):
                link = await self._pool.get(address, Purpose.CONTROL)
                await self._supervisor.call(
                    link.check_health, _SIGN_OF_LIFE, name=f"doubt:{address}"
                )
        except (CallFailure, TimeoutError) as error:
            logger.debug("%s gives no sign of life: %s", address, error)
            return False
        self._pool.answered(address)
        return True

    async def call_any(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        timeout: float,
        *,
        stream: str | None = None,
        partition: int | None = None,
        on_repeat: ReplyT | None = None,
        patient: bool = True,
        silent_limits: Sequence[float] = (),
    ) -> ReplyT:
        """Call whichever broker answers, trying others and again within `timeout` seconds.

        Cancelling resets the call; whether the server acted on it is then not known.

        Args:
            rpc: the procedure.
            request: its request.
            timeout: seconds for everything.
            stream: named in errors.
            partition: named in errors.
            on_repeat: what to return where an earlier try turns out to have succeeded unseen.
            patient: False gives up after every address was tried once.
            silent_limits: sends no deadline to the server; it is asked once for each of these, and
                given so many seconds to answer.

        Raises:
            LiftbridgeError: it did not succeed.
        """
        tries = Tries(rpc.name, timeout, stream, partition)
        earlier_unknown = False
        while True:
            for address in self.addresses():
                try:
                    reply = await self._ask(tries, address, rpc, request, silent_limits)
                except CallFailure as failure:
                    tries.failed(address, failure)
                    advice = remedy(rpc.name, failure, earlier_unknown=earlier_unknown)
                    if advice is Remedy.SUCCESS and on_repeat is not None:
                        return on_repeat
                    if advice not in {Remedy.RETRY, Remedy.REFRESH}:
                        raise tries.error(failure) from failure
                    # A server that answers "unavailable" may have passed the request on before.
                    earlier_unknown = (
                        earlier_unknown
                        or failure.reach is Reach.UNKNOWN
                        or failure.code is Code.UNAVAILABLE
                    )
                else:
                    self._favourite = address
                    return reply
            if not patient or tries.hopeless:
                raise tries.unreachable()
            await self._pause(tries)

    async def _ask(
        self,
        tries: Tries,
        address: str,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        silent_limits: Sequence[float] = (),
    ) -> ReplyT:
        """Make one of the tries of a call, in the time that is left for all of them.

        Raises:
            CallFailure: it did not succeed.
            LiftbridgeError: the time is up.
        """
        limits = list(silent_limits) or [math.inf]
        while True:
            if tries.left < _LEAST:
                raise tries.timed_out() from tries.last
            timeout = min(limits.pop(0), tries.left)
            try:
                return await self.call_once(
                    address, rpc, request, timeout, silent=bool(silent_limits)
                )
            except CallFailure as failure:
                if failure.late and tries.left < _LEAST:
                    tries.failed(address, failure)
                    raise tries.timed_out() from failure
                if not failure.late or not limits:
                    raise

    async def call_leader(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        timeout: float,
        *,
        led: tuple[str, int],
        refresh: Refresh,
        on_refusal: Callable[[], None] | None = None,
        silent_limits: Sequence[float] = (),
        stream: str | None = None,
        partition: int | None = None,
    ) -> ReplyT:
        """Call the leader of a partition, following it where it moves, within `timeout` seconds.

        Cancelling resets the call; whether the server acted on it is then not known.

        Args:
            rpc: the procedure.
            request: its request.
            timeout: seconds for everything.
            led: stream and partition whose leader is to be called.
            refresh: begins to fetch metadata of the streams that it is given.
            on_refusal: called with fresh metadata where that still names the leader that refused
                the last try; what it raises ends the call.
            silent_limits: as for `call_any`.
            stream: named in errors.
            partition: named in errors.

        Raises:
            LiftbridgeError: it did not succeed.
        """
        tries = Tries(rpc.name, timeout, stream, partition)
        not_found = 0
        refused_by: str | None = None
        while True:
            address: str | None = None
            try:
                address = await self._leader_address(tries, led, refresh, refused=bool(refused_by))
                if address == refused_by and on_refusal is not None:
                    on_refusal()
                reply = await self._ask(tries, address, rpc, request, silent_limits)
            except CallFailure as failure:
                tries.failed(f"leader of {led[0]}/{led[1]}", failure)
                refused_by = address if failure.reach is Reach.ANSWERED else None
                not_found += failure.code is Code.NOT_FOUND
                again = remedy(rpc.name, failure) in {Remedy.RETRY, Remedy.REFRESH}
                again = again and not failure.insecure
                # A broker may not have heard of a new stream yet: look once more.
                if not again and not (failure.code is Code.NOT_FOUND and not_found == 1):
                    raise tries.error(failure) from failure
            else:
                self._favourite = address
                return reply
            await self._pause(tries)

    async def call_another(
        self, rpc: Rpc[RequestT, ReplyT], request: RequestT, limit: float
    ) -> ReplyT | None:
        """Call a broker that is not the one that answered last, once, without a deadline for it.

        Returns:
            The reply; None where no other broker is known.

        Raises:
            CallFailure: it did not answer within `limit` seconds, or the call failed.
        """
        others = [address for address in self.addresses() if address != self._favourite]
        if not others:
            return None
        return await self.call_once(others[0], rpc, request, limit, silent=True)

    async def _leader_address(
        self, tries: Tries, led: tuple[str, int], refresh: Refresh, *, refused: bool
    ) -> str:
        """Where the leader of a partition is; finds out where there is reason to.

        That is so if it is not known, if it refused the last try, or if two tries have failed.
        A doubtful leader has some time to show that it lives. Others are asked meanwhile who leads:
        they may need seconds for that, if it is dead (W28).

        Raises:
            CallFailure: it is not known, or shows no sign of life.
            LiftbridgeError: the time is up.
        """
        known = self._snapshot().leader(*led)
        before = None if known is None else self.address_of(known)
        in_doubt = before is not None and self._pool.doubtful(before)
        if before is not None and not in_doubt and not refused and tries.count < _TRIES_UNSEEN:
            return before
        renewal = refresh([led[0]])
        try:
            async with tries.time():
                silent = before if in_doubt and not refused else None
                if silent is not None and await self.answers(silent):
                    return silent
                await self._renewed(renewal)
                address = self.address_of(self._leader(*led))
                if self._pool.doubtful(address) and (
                    address == silent or not await self.answers(address)
                ):
                    raise _no_sign_of_life(address)
        except TimeoutError as error:
            if before is not None and in_doubt:
                tries.failed(f"leader of {led[0]}/{led[1]}", _no_sign_of_life(before))
            raise tries.timed_out() from error
        finally:
            renewal.cancel()  # else an error of it that nobody awaits would be complained about
        return address

    async def _renewed(self, renewal: asyncio.Future[Any]) -> None:
        try:
            await renewal
        except (ConnectionFailed, RequestTimeout) as error:
            logger.debug("metadata could not be refreshed: %s", error)

    def _leader(self, stream: str, partition: int) -> BrokerInfo:
        leader = self._snapshot().leader(stream, partition)
        if leader is not None:
            return leader
        if self._snapshot().partition(stream, partition) is None:
            text = f"no such stream or partition: {stream}/{partition}"
            raise CallFailure(Code.NOT_FOUND, text)
        text = f"{stream}/{partition} has no leader whose address is known"
        raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT)

    async def _pause(self, tries: Tries) -> None:
        delay = self.delay(tries.count)
        if delay >= tries.left:
            raise tries.timed_out() from tries.last
        if tries.last is not None:
            self._reporter.retried(Retried(tries.call, tries.count, delay, tries.last))
        await asyncio.sleep(delay)


def _no_sign_of_life(address: str) -> CallFailure:
    text = f"{address} leads and shows no sign of life"
    return CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT)
