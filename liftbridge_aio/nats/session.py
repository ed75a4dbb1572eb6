"""State of an open publisher: its window, its tasks and its inbox."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from liftbridge_aio._publish.window import Window
from liftbridge_aio.errors import (
    AckTimeout,
    DuplicateCorrelationId,
    LiftbridgeError,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
)
from liftbridge_aio.net.supervisor import Supervisor, wait_despite_cancellation
from liftbridge_aio.options import timer_seconds

from .deadlines import Deadlines
from .in_flight import MessageInFlight, MessagesInFlight, NatsPublisherStatistics
from .library import Msg
from .link import LinkState, NatsLink
from .messages import MessageMaker
from .options import NatsPublisherOptions
from .outbox import Outbox

logger = logging.getLogger("liftbridge_aio.nats")

_LEAST_STOP_TIMEOUT: Final = 0.5
_NO_RESPONDERS: Final = "503"


class NatsSession:
    """Takes messages, has them handed over in order, and settles them."""

    def __init__(self, link: NatsLink, options: NatsPublisherOptions) -> None:
        """Make what needs an open link; nothing runs yet."""
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._ack_timeout = timer_seconds(options.ack_timeout)
        self._publish_timeout = timer_seconds(options.publish_timeout)
        self._close_timeout = timer_seconds(options.close_timeout)
        self._window = Window(options.max_in_flight, options.max_in_flight_bytes)
        self._in_flight = MessagesInFlight(self._window)
        self._inbox = link.connection.new_inbox()
        self.messages = MessageMaker(link, self._inbox, options)
        self._outbox = Outbox(link, self._in_flight)
        self._deadlines = Deadlines(link, self._in_flight)
        self._supervisor = Supervisor("nats-publisher", "the publisher")
        self._arrived: list[bytes] = []
        self._closing = False

    async def start(self) -> None:
        """Begin to listen for acks and to hand messages over.

        Raises:
            ConnectionFailed: the connection has been closed meanwhile.
        """
        await self._supervisor.start()
        await self._supervisor.call(
            self._link.listen, f"{self._inbox}.*", self._receive, name="listen"
        )
        self._supervisor.spawn(self._outbox.run, name="outbox")
        self._supervisor.spawn(self._deadlines.run, name="deadlines")

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of this session."""
        return self._loop

    def statistics(self) -> NatsPublisherStatistics:
        """Return a snapshot of the statistics."""
        return self._in_flight.statistics()

    # Sending

    def check(self) -> None:
        """Refuse to begin what cannot end well; see `NatsLink.check`."""
        self._link.check()

    async def register(self, message: MessageInFlight) -> None:
        """Wait for room, and send a message on its way.

        Cancelling leaves nothing behind.

        Raises:
            PublishTimeout: no room in time.
            PublishNotSent: closed meanwhile.
            DuplicateCorrelationId: another message has the same id, or had it not long ago.
        """
        message.send_by = self._loop.time() + self._publish_timeout
        if not self._window.try_enter(message.size):
            await self._enter_window(message)
        if self._in_flight.used(message.correlation_id):
            self._window.leave(message.size)
            raise DuplicateCorrelationId(
                f"the correlation id {message.correlation_id!r} was used before, and acks of that"
                " message may still come",
                stream=message.stream,
                partition=message.partition,
            )
        self._in_flight.add(message)
        self._deadlines.watch(min(message.ack_timeout, self._publish_timeout))
        self._outbox.put(message)

    async def _enter_window(self, message: MessageInFlight) -> None:
        stream, partition = message.stream, message.partition
        try:
            async with asyncio.timeout_at(message.send_by):
                await self._window.enter(message.size)
        except TimeoutError:
            raise PublishTimeout(
                f"no room in the window ({self._window.messages} messages in flight)",
                stream=stream,
                partition=partition,
            ) from None
        if self._closing or self._link.state is LinkState.OVER:
            self._window.leave(message.size)
            raise PublishNotSent(
                "the publisher, or its connection, was closed before there was room",
                stream=stream,
                partition=partition,
            )

    # What comes back

    async def _receive(self, arrived: Msg) -> None:
        """Keep what came to the inbox, to be read with what comes along with it."""
        if arrived.headers is not None and arrived.headers.get("Status") == _NO_RESPONDERS:
            self._in_flight.nobody_listens(arrived.subject)
            return
        if not self._arrived:
            self._loop.call_soon(self._take_arrived)
        self._arrived.append(arrived.data)

    def _take_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._in_flight.take_acks(arrived)

    # Flushing and closing

    async def flush(self) -> None:
        """Wait until everything is settled or proven; see `NatsPublisher.flush`."""
        await self._settle_all()
        await self._prove()
        self._in_flight.raise_first_unseen()

    async def _settle_all(self) -> None:
        queued = self._window.queue()
        if queued:
            await asyncio.wait(queued)
            await asyncio.sleep(0)  # those that were let in register their messages now
        if self._in_flight.unsettled:
            await asyncio.wait(tuple(self._in_flight.unsettled.values()))

    async def _prove(self) -> None:
        if not self._in_flight.unproven:
            return
        self._in_flight.unproven = False
        try:
            async with asyncio.timeout(self._ack_timeout):
                await self._supervisor.call(self._link.prove, name="prove")
        except Exception as error:
            self._in_flight.unproven = True
            if isinstance(error, LiftbridgeError):
                raise
            text = "the NATS server did not say that it has what was sent without an ack"
            unproven = AckTimeout(text)
            unproven.hint = "flush again, or look for it before you send it again"
            raise unproven from error
        except asyncio.CancelledError:
            self._in_flight.unproven = True
            raise
        if self._arrived:
            self._take_arrived()

    async def close(self) -> None:
        """Wait for acks, fail the rest and end all tasks; see `NatsPublisher.aclose`."""
        self._closing = True
        deadline = self._loop.time() + self._close_timeout
        try:
            await self._settle_before_close(deadline)
        finally:
            self._fail_the_rest()
            left = max(deadline - self._loop.time(), _LEAST_STOP_TIMEOUT)
            await wait_despite_cancellation(self._let_go(left), 3 * left)

    async def _settle_before_close(self, deadline: float) -> None:
        if self._link.state is LinkState.OVER:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._settle_all()
                await self._prove()
        except TimeoutError as error:
            logger.warning(
                "closing with %d publishes unsettled%s",
                len(self._in_flight),
                f": {error}" if isinstance(error, LiftbridgeError) else "",
            )
        except LiftbridgeError as error:
            logger.debug("while closing: %s", error)

    def _fail_the_rest(self) -> None:
        rest = list(self._in_flight.unsettled.values())
        self._in_flight.fail_all(
            PublishOutcomeUnknown("the publisher was closed before the ack came"),
            PublishNotSent("the publisher was closed before NATS had the message"),
        )
        for message in rest:
            if message.done() and not message.cancelled():
                # The warning above stands for all; asyncio would log each that nobody looks at.
                message.exception()

    async def _let_go(self, timeout: float) -> None:
        await self._supervisor.stop(timeout)
        await self._link.close(timeout)
