"""The publish sessions of a client, one per broker, and which of them carries a partition."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from liftbridge_aio._core.status import CallFailure
from liftbridge_aio.net.network import Network

from .broker_selection import choose_broker
from .message import PartitionRoute
from .session import PublishSession, SessionState

_AVOIDED_FOR: Final = 30.0
"""Seconds for which a broker that was down is used only where no other can be."""


class SessionPool:
    """Opens sessions and ranks them for each partition. It alone knows which address has which."""

    def __init__(
        self,
        network: Network,
        now: Callable[[], float],
        open_session: Callable[[str], PublishSession],
    ) -> None:
        self._router = network.router
        self._supervisor = network.supervisor
        self._now = now
        self._open_session = open_session
        self._sessions: dict[str, PublishSession] = {}

    @property
    def all(self) -> tuple[PublishSession, ...]:
        """One for each address that was ever needed, in the place of those that have ended."""
        return tuple(self._sessions.values())

    def best(self, route: PartitionRoute) -> PublishSession:
        """Return the session of the broker that ranks first of those that are not down.

        If all are down, it is the one that has been so for the longest time.
        """
        addresses = self._ranked_addresses(route)
        for address in addresses:
            if not self._is_down(address):
                return self._session(address)
        return min(map(self._session, addresses), key=attrgetter("down_since"))

    def next_after(self, session: PublishSession, route: PartitionRoute) -> PublishSession:
        """Return the session of the broker that ranks next of those that are not down.

        After the last one comes the first.
        """
        addresses = [each for each in self._ranked_addresses(route) if not self._is_down(each)]
        if session.address not in addresses:
            return self.best(route)
        at = addresses.index(session.address)
        return self._session(addresses[(at + 1) % len(addresses)])

    def tls_failure(self, route: PartitionRoute) -> CallFailure | None:
        """Return why TLS failed, if it did at every address, so that waiting would not help."""
        sessions = [self._sessions.get(address) for address in self._ranked_addresses(route)]
        failures = [session.down_by for session in sessions if session is not None]
        tls_failed = [failure for failure in failures if failure is not None and failure.tls_failed]
        return tls_failed[0] if tls_failed and len(tls_failed) == len(sessions) else None

    def remove_ended(self, session: PublishSession) -> None:
        """Remove a session if its task is over."""
        if session.state is SessionState.ENDED and self._sessions.get(session.address) is session:
            del self._sessions[session.address]

    def _session(self, address: str) -> PublishSession:
        session = self._sessions.get(address)
        if session is None or session.state is SessionState.ENDED:
            session = self._sessions[address] = self._open_session(address)
            self._supervisor.spawn(session.run, name=f"publish-session:{address}")
        return session

    def _ranked_addresses(self, route: PartitionRoute) -> list[str]:
        brokers = self._router.snapshot.brokers
        ranked = choose_broker(route.stream, route.partition, brokers)
        addresses = [self._router.address_of(brokers[broker]) for broker in ranked]
        return [*addresses, *(each for each in self._router.addresses() if each not in addresses)]

    def _is_down(self, address: str) -> bool:
        session = self._sessions.get(address)
        return (
            session is not None
            and session.state is SessionState.DOWN
            and self._now() < session.down_since + _AVOIDED_FOR
        )
