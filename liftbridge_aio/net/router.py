"""Unary calls that survive what can be survived: other brokers, fresh metadata, another try."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
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
        timeout: float | None,
    ) -> ReplyT:
        """Call one broker, once.

        Raises:
            CallFailure: it did not succeed.
            ClientClosed: the client was closed.
        """
        link = await self._pool.get(address, Purpose.CONTROL)
        try:
            reply = await self._supervisor.call(
                link.unary, rpc, request, timeout, name=f"call:{rpc.name}"
            )
        except CallFailure as failure:
            # Servers that want TLS close plain connections without a word.
            if link.closed_unheard and await self._wants_tls(address):
                text = f"{address} speaks TLS, and this client is not set up to do so"
                raise CallFailure(
                    Code.UNAVAILABLE, text, Reach.NOT_SENT, unfit=TLSFailed
                ) from failure
            raise
        self._pool.answered(address)
        self._heard.add(address)
        return reply

    async def _wants_tls(self, address: str) -> bool:
        """Find out whether a server that has said nothing wants TLS."""
        if address in self._heard:
            # It has just ended, most likely; if it does so again it may have come back with TLS.
            self._heard.discard(address)
            return False
        return await speaks_tls(address)

    async def answers(self, address: str, limit: float = _SIGN_OF_LIFE) -> bool:
        """Whether a broker is there as far as is known; who is doubtful must show that it lives.

        Cancelling abandons the question.

        Args:
            address: of the broker.
            limit: seconds that a doubtful one has to answer.
        """
        if not self._pool.doubtful(address):
            return True
        try:
            async with asyncio.timeout(limit):
                link = await self._pool.get(address, Purpose.CONTROL)
                await self._supervisor.call(link.check_health, limit, name=f"doubt:{address}")
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
                    call = (
                        self._call_silently(address, rpc, request, silent_limits)
                        if silent_limits
                        else self.call_once(address, rpc, request, tries.left)
                    )
                    return await self._in_time(tries, address, call)
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
            if not patient or tries.hopeless:
                raise tries.unreachable()
            await self._pause(tries)

    async def call_leader(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        timeout: float,
        *,
        led: tuple[str, int],
        refresh: Refresh,
        on_refusal: Callable[[], None] | None = None,
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
            on_refusal: called with fresh metadata after a try that a leader refused; what it raises
                ends the call.
            stream: named in errors.
            partition: named in errors.

        Raises:
            LiftbridgeError: it did not succeed.
        """
        tries = Tries(rpc.name, timeout, stream, partition)
        not_found = 0
        while True:
            try:
                address = await self._leader_address(led, refresh, tries)
                if tries.refused and on_refusal is not None:
                    on_refusal()
                call = self.call_once(address, rpc, request, tries.left)
                return await self._in_time(tries, address, call)
            except CallFailure as failure:
                tries.failed(f"leader of {led[0]}/{led[1]}", failure)
                not_found += failure.code is Code.NOT_FOUND
                again = remedy(rpc.name, failure) in {Remedy.RETRY, Remedy.REFRESH}
                again = again and not failure.insecure
                # A broker may not have heard of a new stream yet: look once more.
                if not again and not (failure.code is Code.NOT_FOUND and not_found == 1):
                    raise tries.error(failure) from failure
            await self._pause(tries)

    async def _in_time(self, tries: Tries, address: str, call: Awaitable[ReplyT]) -> ReplyT:
        """Await a call to an address, which is asked first from now on if it answers."""
        try:
            async with tries.time():
                reply = await call
        except TimeoutError:
            # With a link it was sent, so the server may act on it.
            reach = Reach.UNKNOWN if self._pool.linked(address) else Reach.NOT_SENT
            tries.failed(address, CallFailure(Code.DEADLINE_EXCEEDED, "no answer", reach))
            raise tries.timed_out() from None
        self._favourite = address
        return reply

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
        return await self._call_silently(others[0], rpc, request, [limit]) if others else None

    async def _call_silently(
        self,
        address: str,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        limits: Sequence[float],
    ) -> ReplyT:
        for limit in limits:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    return await self.call_once(address, rpc, request, None)
        text = f"no answer within {sum(limits):g} s"
        raise CallFailure(Code.DEADLINE_EXCEEDED, text, Reach.UNKNOWN)

    async def _leader_address(self, led: tuple[str, int], refresh: Refresh, tries: Tries) -> str:
        """Where the leader of a partition is; finds out where there is reason to.

        A doubtful leader has some time to show that it lives. Others are asked meanwhile who leads:
        they may need seconds for that, if it is dead (W28).

        Raises:
            CallFailure: it is not known, or shows no sign of life.
            LiftbridgeError: the time is up.
        """
        known = self._snapshot().leader(*led)
        address = None if known is None else self.address_of(known)
        suspect = address if address is not None and self._pool.doubtful(address) else None
        if address is not None and suspect is None and not tries.count:
            return address
        renewal = refresh([led[0]])
        try:
            async with tries.time():
                limit = _SIGN_OF_LIFE * (tries.count + 1)  # it may be slow rather than dead
                if suspect is not None and await self.answers(suspect, limit) and not tries.refused:
                    return suspect
                await renewal
        except (ConnectionFailed, RequestTimeout) as error:
            logger.debug("metadata of %s could not be refreshed: %s", led[0], error)
        except TimeoutError:
            raise tries.timed_out() from None
        finally:
            renewal.cancel()
        leader = self.address_of(self._leader(*led))
        if leader == suspect and self._pool.doubtful(leader):
            text = f"{leader} leads and shows no sign of life"
            raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT)
        return leader

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
