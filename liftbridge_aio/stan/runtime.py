"""An open client: its session, the tasks that keep it, and what opens another when it is lost."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio._runtime.supervisor import Child, Supervisor, wait_despite_cancellation
from liftbridge_aio.errors import ClientClosed, ConnectionFailed, LiftbridgeError, ServerError
from liftbridge_aio.options import timer_seconds

from .core.states import CLIENT_STEPS, ClientEvent, ClientState
from .errors import ClientIdTaken, SessionLost
from .events import Event, GaveUp, Lost, Recovered, SubscriptionFailed
from .link import StreamingLink
from .options import ClientOptions
from .publisher import Publisher
from .session import Session
from .subscription import Subscription

logger = logging.getLogger("liftbridge_aio.stan")

_LOOK_INTERVAL: Final = 0.1
"""Seconds between looks at the connection: whoever owns it has the callbacks."""
_PROBE_INTERVAL: Final = 0.5
"""Seconds between pings while it is not known whether the server knows the session."""
_LEAST_STOP_TIMEOUT: Final = 0.5


class ClientRuntime:
    """The parts of an open client.

    Args:
        link: the connection to NATS, which is open.
        cluster: the id of the cluster.
        client_id: the id of the client.
        options: the options of the client.
        tell: is told of events; must not raise.
    """

    # State, changed only in the event loop: `state` by `_step`, `session` when one is accepted,
    # `_subscriptions` by `add` and `remove`, `_loss` by sessions and taken by the task that keeps
    # them, `_failure` once.

    def __init__(
        self,
        link: StreamingLink,
        cluster: str,
        client_id: str,
        options: ClientOptions,
        tell: Callable[[Event], None],
    ) -> None:
        self.link = link
        self.loop = asyncio.get_running_loop()
        self.state = ClientState.NEW
        self.tell = tell
        self.request_timeout = timer_seconds(options.request_timeout)
        self._close_timeout = timer_seconds(options.close_timeout)
        self._options = options
        self._cluster = cluster
        self._client_id = client_id
        self._supervisor = Supervisor("stan", "the client")
        self.publisher = Publisher(link, client_id, options, self._doubt)
        self._session: Session | None = None
        self._subscriptions: dict[Subscription, None] = {}
        self._loss: SessionLost | None = None
        self._failure: LiftbridgeError | None = None
        self._bell = asyncio.Event()
        """Rung when the task that keeps the session has something to do at once."""
        self._changed = asyncio.Event()
        """Set and replaced when the state changes."""
        self._keeper: Child | None = None
        self._closing = False
        self._closed = asyncio.Event()
        self._close_error: LiftbridgeError | None = None

    def _step(self, event: ClientEvent) -> None:
        self.state = CLIENT_STEPS[self.state, event]
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """The open subscriptions, oldest first."""
        return tuple(self._subscriptions)

    # Opening

    async def start(self) -> None:
        """Open a session. When this fails or is cancelled, `close` is to be called.

        Raises:
            LiftbridgeError: see `Client.connect`.
        """
        self._step(ClientEvent.CONNECT)
        await self._supervisor.start()
        await self._supervisor.call(self.link.start, name="listen")
        self._supervisor.spawn(self.link.run, name="outbox")
        self._supervisor.spawn(self.publisher.run, name="deadlines")
        reconnects, session = self.link.reconnects, self._new_session()
        await session.open(self._cluster, self.request_timeout)
        self._accept(session, reconnects)
        self._keeper = self._supervisor.spawn(self._keep, name="session")

    def _new_session(self) -> Session:
        return Session(
            self.link,
            self._client_id,
            self._options,
            take_acks=self.publisher.take_acks,
            nobody=self._doubt,
            answered=self._answered,
            lost=self._lost,
        )

    def _accept(self, session: Session, reconnects: int) -> None:
        self._session = session
        self.publisher.use(session)
        self._step(ClientEvent.ACCEPTED)
        self.link.confirm(reconnects)

    # What others use

    async def usable_session(self) -> Session:
        """Return the session, once there is one that the server knows.

        Raises:
            SessionLost: there is none in time.
            ClientClosed: the client is closed.
            LiftbridgeError: there will be none.
        """
        try:
            async with asyncio.timeout(self.request_timeout):
                while self.state is not ClientState.OPEN:
                    self.check()
                    await self._changed.wait()
        except TimeoutError:
            raise SessionLost(f"the client has no session: {self.link.outage}") from self._loss
        assert self._session is not None  # noqa: S101 - it is OPEN
        return self._session

    def check(self) -> None:
        """Refuse to begin what cannot end well.

        Raises:
            ClientClosed: the client is closed.
            LiftbridgeError: the session is lost, and there will be no other.
        """
        if self._closing:
            raise ClientClosed("the client is closed")
        if self._failure is not None:
            raise _copy(self._failure)
        if not self.link.has_queued and self.link.is_over:  # else those that wait fail soon
            self.link.check()

    def add(self, subscription: Subscription, session: Session) -> None:
        """Keep a subscription that the server has accepted in a session.

        Raises:
            SessionLost: that session is lost.
            ClientClosed: the client was closed meanwhile.
        """
        self.check()
        if session is not self._session or self.state is ClientState.LOST:
            raise SessionLost("the session was lost while the subscription was being opened")
        self._subscriptions[subscription] = None

    async def see_through(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run what must come to its end. Cancelling abandons the wait for it only.

        Raises:
            ClientClosed: the client is closed.
            Exception: raised by the function.
        """
        result: asyncio.Future[None] = self.loop.create_future()

        def settle(error: Exception | None = None) -> None:
            if result.done():  # cancelled
                logger.debug("what nobody waits for any more ended: %r", error)
            elif error is None:
                result.set_result(None)
            else:
                result.set_exception(error)

        async def work() -> None:
            try:
                await function()
            except Exception as error:  # noqa: BLE001 - raised to the caller
                settle(error)

        def ended(_: asyncio.Task[None]) -> None:
            if not result.done():
                settle()

        child = self._supervisor.spawn(work, name="see through")
        child.task.add_done_callback(ended)
        await result

    def remove(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._subscriptions.pop(subscription, None)

    # Keeping the session

    def _lost(self, session: Session, error: SessionLost) -> None:
        if session is self._session and self._loss is None:
            self._loss = error
            self.link.hold()
            self._bell.set()

    def _answered(self, session: Session) -> None:
        if session is self._session and self.state is ClientState.CHECKING:
            self._step(ClientEvent.CONFIRMED)
            self.link.confirm(self._checked_at)

    def _doubt(self) -> None:
        """Send nothing more before the server has said that it knows the session."""
        session = self._session
        if session is not None and session.can_ping and self.state is ClientState.OPEN:
            self.link.hold()
            self._bell.set()

    async def _keep(self) -> None:
        """Send pings, find out after outages, and open another session when one is lost."""
        loop, interval = self.loop, self._options.ping_interval
        ping_at = loop.time() + interval
        probe_at = 0.0
        while self.state is not ClientState.FAILED:
            await self._wait(_LOOK_INTERVAL)
            session = self._session
            assert session is not None  # noqa: S101 - there was one
            if self.link.is_over:
                self._give_up(_closed(self.link.last_error))
            elif self._loss is not None:
                await self._recover(session)
                ping_at = loop.time() + interval
            elif loop.time() >= ping_at:
                ping_at += interval
                session.ping()
            elif self.link.is_up and not self.link.is_confirmed:
                probe_at = self._probe(session, probe_at)

    async def _wait(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()

    def _probe(self, session: Session, due: float) -> float:
        """Ask the server whether it knows the session, now and then; return when it is next due."""
        now = self.loop.time()
        if self.state is ClientState.OPEN or self._checked_at != self.link.reconnects:
            self._step(ClientEvent.RECONNECTED)
            self._checked_at = self.link.reconnects
            due = now
        if not session.can_ping:
            self._answered(session)  # it cannot say
        elif now >= due:
            session.probe()
            return now + _PROBE_INTERVAL
        return due

    _checked_at: int = 0
    """Number of reconnects for which the session is being checked."""

    # Another session

    async def _recover(self, old: Session) -> None:
        error = self._loss
        assert error is not None  # noqa: S101 - it is what calls this
        self._step(ClientEvent.LOST)
        logger.warning("the session of the client %r is lost: %s", self._client_id, error.message)
        self.publisher.lost(error)
        for subscription in self.subscriptions:
            subscription.lost()
        self.tell(Lost(error))
        # Without its inbox the server does not take the old session for another, living client.
        await old.release()
        if not self._options.recover:
            self._give_up(error)
            return
        attempt = 0
        while not await self._try_again(attempt):
            delay = self._options.backoff.delay(attempt, random.random())  # noqa: S311 - no secret
            attempt += 1
            await asyncio.sleep(delay)

    async def _try_again(self, attempt: int) -> bool:
        """Open another session and its subscriptions; return True if no further try is needed."""
        if self.link.is_over:
            self._give_up(_closed(self.link.last_error))
            return True
        session, reconnects = self._new_session(), self.link.reconnects
        try:
            await session.open(self._cluster, self.request_timeout)
            self._session, self._loss = session, None
            restored = await self._restore(session)
            if self._loss is not None:
                raise self._loss
        except ClientIdTaken as error:
            self._give_up(error)
            return True
        except LiftbridgeError as error:
            logger.info("attempt %d to open another session failed: %s", attempt + 1, error)
            await session.release()
            for subscription in self.subscriptions:
                subscription.lost()
            return False
        self._accept(session, reconnects)
        self.tell(Recovered(attempt + 1, restored))
        return True

    async def _restore(self, session: Session) -> int:
        """Create the subscriptions again, durables first: others may be queued behind them."""
        subscriptions = self.subscriptions
        found = await bounded_gather(subscriptions, lambda each: each.find_known(session))
        known = dict(zip(subscriptions, found, strict=True))
        restored = 0
        for subscription in sorted(subscriptions, key=lambda each: not each.plan.durable):
            try:
                restored += await subscription.restore(session, known[subscription])
            except ServerError as error:
                logger.warning("%r could not be created again: %s", subscription, error)
                subscription.fail(error)
                self.remove(subscription)
                self.tell(SubscriptionFailed(subscription.plan.channel, error))
        return restored

    def _give_up(self, error: LiftbridgeError) -> None:
        self._failure = error
        self.link.hold()
        self._step(ClientEvent.GIVEN_UP)
        self.publisher.end("the session was lost", error)
        for subscription in self.subscriptions:
            subscription.fail(_copy(error))
        self._subscriptions.clear()
        self.tell(GaveUp(error))

    # Closing

    async def close(self) -> None:
        """Wait for acks, leave the server, and end all tasks; see `Client.aclose`.

        Raises:
            LiftbridgeError: the server was not told, or refused it; everything is released.
        """
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        deadline = self.loop.time() + self._close_timeout
        try:
            if self.state is ClientState.OPEN:
                await self._settle(deadline)
        finally:
            left = max(deadline - self.loop.time(), _LEAST_STOP_TIMEOUT)
            await wait_despite_cancellation(self._leave(left), self.request_timeout + 3 * left)
            self._closed.set()
        if self._close_error is not None:
            raise self._close_error

    async def _settle(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self.publisher.settled()
        except TimeoutError:
            logger.warning("closing with %d publishes unsettled", len(self.publisher.unsettled))

    async def _leave(self, timeout: float) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await self._keeper.wait()
        session, tells = self._session, self.state is ClientState.OPEN and self.link.is_confirmed
        self._step(ClientEvent.CLOSE)
        self.publisher.end("the client was closed")
        for subscription in self.subscriptions:
            subscription.client_closed()
        self._subscriptions.clear()
        try:
            if session is not None and tells:
                await session.close(self.request_timeout)
        except LiftbridgeError as error:
            self._close_error = error
        finally:
            if session is not None:
                await session.release()
            await self._supervisor.stop(timeout)
            await self.link.close(timeout)


def _closed(reason: Exception | None) -> ConnectionFailed:
    error = ConnectionFailed("the NATS connection is closed")
    error.__cause__ = reason
    return error


def _copy(error: LiftbridgeError) -> LiftbridgeError:
    """Return an equal error to be raised, so that no traceback grows with each raise."""
    copy = type(error)(error.message)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy
