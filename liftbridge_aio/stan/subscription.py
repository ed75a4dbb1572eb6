"""A subscription to a channel: an async context manager and an async iterator of messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    check_callable,
    check_flags,
    check_whole_number,
)
from liftbridge_aio._runtime.nats_library import Subscription as NatsSubscription
from liftbridge_aio._runtime.stop_signal import stopped_by_signals
from liftbridge_aio.errors import ConcurrentRead, InvalidRequest, LiftbridgeError, UsageError
from liftbridge_aio.handlers import intercepted
from liftbridge_aio.interceptors import Interceptor

from .core.progress import Place
from .core.start import StartAt
from .core.states import SUBSCRIPTION_STEPS, SubscriptionEvent, SubscriptionState
from .deliveries import Deliveries, DeliveryCounts
from .errors import SubscriptionClosed
from .message import Message
from .options import SubscriptionPlan
from .runner import HandlerRunner, MessageHandler, OnError

if TYPE_CHECKING:
    from .runtime import ClientRuntime
    from .session import Session

logger = logging.getLogger("liftbridge_aio.stan")

_OPEN: Final = {SubscriptionState.OPEN, SubscriptionState.LOST}
_NOT_OPEN: Final = {SubscriptionState.NEW, SubscriptionState.CLOSED}


class Subscription:
    """A subscription to a channel, and an iterator of its messages.

    Use it inside `async with`; leaving the block closes it, and a durable goes on where it was when
    it is opened again. Without `manual_ack` a message is acked when the next one is asked for, or
    when the block is left without an exception; so is a list of `batches`. Only one task may read
    at a time.

    Create one with `Client.subscribe`.
    """

    def __init__(self, plan: SubscriptionPlan, runtime: ClientRuntime) -> None:
        self.plan = plan
        self._runtime = runtime
        self._state = SubscriptionState.NEW
        self._deliveries = Deliveries(plan, runtime.link)
        self._take_waiting = self._deliveries.take_waiting
        self._inbox: NatsSubscription | None = None
        self._current: Message | list[Message] | None = None
        """What was returned last: a message, which is acked when the next one is asked for, or a
        list, which is acked when its loop asks for the next one."""
        self._reading = False
        self._ending = asyncio.Lock()

    def __repr__(self) -> str:
        """Return channel, names and state."""
        names = (("queue", self.plan.queue), ("durable", self.plan.durable))
        named = "".join(f" {name}={value!r}" for name, value in names if value)
        return f"<Subscription {self.plan.channel!r}{named} {self._state.value}>"

    @property
    def state(self) -> SubscriptionState:
        """The state."""
        return self._state

    @property
    def is_open(self) -> bool:
        """True if messages are delivered, be it after an outage."""
        return self._is(*_OPEN)

    def statistics(self) -> DeliveryCounts:
        """Return a snapshot of the statistics."""
        return self._deliveries.statistics()

    def _step(self, event: SubscriptionEvent) -> None:
        self._state = SUBSCRIPTION_STEPS[self._state, event]

    def _is(self, *states: SubscriptionState) -> bool:
        return self._state in states

    # Life

    async def __aenter__(self) -> Self:
        """Subscribe; see `open`."""
        await self.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `aclose`. An exception of the block is not replaced by one of closing."""
        if exc is None and self._current is not None:
            current = self._current
            self._ack(current if isinstance(current, list) else [current])
        try:
            await self.aclose()
        except LiftbridgeError as error:
            if exc is None:
                raise
            logger.warning("while closing %r: %s", self, error)

    async def open(self) -> None:
        """Subscribe, and wait for the server's answer. Does nothing if it is open.

        Cancelling leaves nothing behind, and the server is asked to forget it.

        Raises:
            SubscribeTimeout: no answer in time; the server was asked to forget it.
            StreamingError: the server refused it, such as a second one of the same durable.
            RequestNotPermitted: NATS refused it.
            SessionLost: the client has no session, and has not got another in time.
            SubscriptionClosed: it was closed.
            UsageError: another task is opening it.
            ClientClosed: the client is closed.
        """
        if self.is_open:
            return
        if self._is(SubscriptionState.OPENING):
            raise UsageError("another task is opening the subscription")
        if not self._is(SubscriptionState.NEW):
            raise SubscriptionClosed("the subscription is closed")
        self._step(SubscriptionEvent.OPEN)
        try:
            session = await self._runtime.usable_session()
            self._deliveries.end_session()
            await self._subscribe(session, self.plan.start)
            self._runtime.add(self, session)
        except BaseException:
            await self._forget_inbox()
            if self._is(SubscriptionState.OPENING):
                self._step(SubscriptionEvent.REFUSED)
            raise
        self._step(SubscriptionEvent.ACCEPTED)

    async def _subscribe(self, session: Session, start: StartAt) -> None:
        runtime, deliveries = self._runtime, self._deliveries
        subject = runtime.link.new_inbox()
        self._inbox = await runtime.link.listen_for_many(subject, deliveries.receive, _nobody)
        deliveries.opened(
            await session.subscribe(self.plan, start, subject, runtime.request_timeout)
        )

    async def aclose(self) -> None:
        """Close the subscription; a durable stays, with what it has acked. Idempotent.

        No message is delivered from the beginning of this call on. What was not acked is delivered
        to another member of the queue group, or when the durable is opened again. Cancelling
        abandons the wait for the server's answer; the subscription is closed all the same.

        Raises:
            UnsubscribeTimeout: no answer in time; a further call sends the request again.
            StreamingError: the server refused it.
            RequestNotPermitted: NATS refused it.
            UnsupportedByServer: the server is too old to close a durable and keep it.
        """
        if self._is(SubscriptionState.LOST):
            await self._stop()
            self._close()  # the server has none
        elif self._is(SubscriptionState.FAILED):
            self._close()
        elif not self._is(*_NOT_OPEN):
            await self._end(delete=False)

    async def unsubscribe(self) -> None:
        """End the subscription and delete its durable; the last member deletes its queue group.

        To keep a durable, leave the block or call `aclose`. Cancelling abandons the wait for the
        server's answer; the subscription is ended all the same.

        Raises:
            SubscriptionClosed: it is closed, or was never opened.
            SessionLost: the client has no session in which the server could be told.
            LiftbridgeError: as for `aclose`.
        """
        if self._is(*_NOT_OPEN, SubscriptionState.FAILED):
            raise SubscriptionClosed("the subscription is closed, or was never opened")
        await self._end(delete=True)

    async def _end(self, *, delete: bool) -> None:
        if self._is(SubscriptionState.OPENING):
            raise UsageError("the subscription is being opened")
        self._deliveries.stop()
        await self._runtime.see_through(partial(self._end_at_server, delete=delete))

    async def _end_at_server(self, *, delete: bool) -> None:
        async with self._ending:
            session = await self._runtime.usable_session()
            if self._is(*_NOT_OPEN):  # another task was quicker, or the session was lost
                if delete:
                    raise SubscriptionClosed("the subscription was closed meanwhile")
                return
            self._step(SubscriptionEvent.END)
            await self._stop()
            await session.end_subscription(
                self.plan, self._deliveries.ack_inbox, self._runtime.request_timeout, delete=delete
            )
            self._close()

    async def _stop(self) -> None:
        self._deliveries.stop()
        self._current = None
        await self._forget_inbox()

    def _close(self) -> None:
        if not self._is(SubscriptionState.CLOSED):
            self._step(SubscriptionEvent.ENDED)
            self._runtime.remove(self)

    async def _forget_inbox(self) -> None:
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            await self._runtime.link.forget(inbox)

    # What the runtime tells

    def lost(self) -> None:
        """Note that the session is lost."""
        self._step(SubscriptionEvent.LOST)
        if self._is(SubscriptionState.CLOSED):
            self._runtime.remove(self)

    async def find_known(self, session: Session) -> Place | None:
        """Return what the channel has where it had a message in a session before.

        None if nothing comes soon, or if there was no message.

        Raises:
            LiftbridgeError: the server did not answer.
        """
        await self._forget_inbox()
        if not self._is(SubscriptionState.LOST):
            return None
        known = self._deliveries.end_session()
        return None if known is None else await session.first_from(self.plan, known.sequence)

    async def restore(self, session: Session, found: Place | None) -> bool:
        """Subscribe again in another session; return False if that is not wanted any more.

        Args:
            session: the session.
            found: returned by `find_known`.

        Raises:
            LiftbridgeError: as for `open`.
        """
        if not self._is(SubscriptionState.LOST):
            return False
        await self._subscribe(session, self._deliveries.next_start(found))
        if not self._is(SubscriptionState.LOST):
            return False
        self._step(SubscriptionEvent.ACCEPTED)
        return True

    def fail(self, error: LiftbridgeError) -> None:
        """End it with an error, which its reader gets."""
        self._step(SubscriptionEvent.GIVEN_UP)
        self._deliveries.stop(error)

    def client_closed(self) -> None:
        """End it with the client, which has told the server."""
        self._step(SubscriptionEvent.CLIENT_CLOSED)
        self._deliveries.stop()

    # Reading

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message, and ack the one before unless `manual_ack`.

        The iteration ends when the subscription or the client is closed. Cancelling loses no
        message; the one before is acked.

        Raises:
            ConcurrentRead: another task is reading.
            SubscriptionClosed: it was never opened.
            SessionLost: the session is lost, and the subscription with it.
            LiftbridgeError: the subscription could not be created again in a new session.
        """
        if self._state is not SubscriptionState.OPEN or self._reading:
            self._check_may_read()
        if self._current is not None:
            self._finish_current()
        message = self._take_waiting()
        if message is None:
            self._reading = True
            try:
                message = await self._deliveries.take(_never)
            finally:
                self._reading = False
            if message is None:
                raise StopAsyncIteration
        if not self.plan.manual_ack:
            self._current = message
        return message

    async def batches(self, max_size: int = 100) -> AsyncGenerator[list[Message], None]:
        """Iterate over lists of the messages that are there: at least one, at most `max_size`.

        Unless `manual_ack`, a list is acked as a whole when the loop asks for the next one, or when
        the block is left without an exception right after it. One whose loop was left, most often
        because its processing failed, is not acked by reading on: it is delivered again after
        `ack_wait`. Errors and cancelling are those of iterating over messages.
        """
        check_whole_number(max_size, "max_size", 1, INT64_MAX)
        while (message := await anext(self, None)) is not None:
            batch = [message]
            while len(batch) < max_size and (message := self._take_waiting()) is not None:
                batch.append(message)
            if self.plan.manual_ack:
                yield batch
                continue
            self._current = batch
            yield batch
            if self._current is batch:
                self._current = None
            self._ack(batch)

    def _check_may_read(self) -> None:
        if self._is(SubscriptionState.NEW, SubscriptionState.OPENING):
            raise SubscriptionClosed("the subscription is not open yet")
        if self._reading:
            raise ConcurrentRead("another task is reading this subscription")

    async def run(
        self,
        handler: MessageHandler,
        *,
        concurrency: int = 1,
        on_error: OnError = "redeliver",
        interceptors: Sequence[Interceptor] = (),
        stop_on_signals: bool = True,
    ) -> None:
        """Call a handler for each message, until the subscription is closed, a signal, or an error.

            async def handle(message: stan.Message) -> None:
                await store(message.data)

            async with client.subscribe("orders", durable="billing") as orders:
                await orders.run(handle, concurrency=8)

        A message is acked when its handler has returned, unless `manual_ack` or the handler has
        answered it. One whose handler raises is not acked, so the server delivers it again after
        `ack_wait`, for ever if need be. The same happens when a handler takes longer than that.
        `Reject` gives a message up: it is acked and logged; a delay of `Nack` has no effect.

        With one call at a time messages are handled in the order in which they come; redelivered
        ones come later than they were published. On SIGTERM, and the first Ctrl-C, no further
        message is handled, and this returns when the running handlers have returned. Cancelling
        cancels the running handlers and waits for them; their messages are not acked.

        Args:
            handler: a coroutine function, or a plain function, which runs on the event loop and
                must not block. What it returns is ignored.
            concurrency: most messages that are handled at the same time.
            on_error: the effect of an exception of the handler. "redeliver": it is logged and the
                next message is handled. "stop": no further message is handled, the running handlers
                finish, and the exception is raised. Both tell `on_event` of a `HandlerFailed`.
            interceptors: wrap the handler; the first is the outermost.
            stop_on_signals: stop on SIGTERM and Ctrl-C too, if this runs in the main thread. A
                handler of the signal that the program installed is called as well, and restored at
                the end.

        Raises:
            ConcurrentRead: the subscription is being read already.
            InvalidRequest: an argument is invalid.
            LiftbridgeError: as in iteration.
            Exception: raised by the handler, with channel and sequence as a note.
        """
        check_callable(handler, "the handler")
        check_whole_number(concurrency, "concurrency", 1, INT64_MAX)
        if on_error not in {"redeliver", "stop"}:
            raise InvalidRequest(f"on_error is 'redeliver' or 'stop', not {on_error!r}")
        check_flags(stop_on_signals=stop_on_signals)
        self._check_may_read()
        self._finish_current()
        runner = HandlerRunner(
            self._deliveries,
            self._runtime.tell,
            intercepted(handler, interceptors),
            acks=not self.plan.manual_ack,
            stops=on_error == "stop",
        )
        self._reading = True
        try:
            with stopped_by_signals(runner.stop) if stop_on_signals else nullcontext():
                await runner.run(min(concurrency, self.plan.max_in_flight))
        finally:
            self._reading = False

    # Acks

    def _finish_current(self) -> None:
        """Ack the message before, as the next one is asked for; a list is its loop's to ack."""
        current, self._current = self._current, None
        if isinstance(current, Message) and not current.settled:
            self._deliveries.ack(current)

    def _ack(self, messages: list[Message]) -> None:
        for message in messages:
            if not message.settled:
                self._deliveries.ack(message)


def _never() -> bool:
    return False


def _nobody() -> None:
    """Do nothing: an inbox is no reply subject of anything that is sent."""
