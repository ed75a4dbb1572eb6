"""The messages of a consumer: how many nsqd may push, what is in flight, and their answers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final, NamedTuple

from liftbridge_aio._core.foreign_cancellation import foreign_cancellation_fails
from liftbridge_aio._core.ready_flow import FlowSettings, Level, Outcome, ReadyFlow
from liftbridge_aio.options import seconds

from .connection import NsqConnection
from .core import protocol
from .core.protocol import Refusal
from .errors import AlreadyAnswered, NotInFlight
from .message import Message
from .options import ConsumerOptions

logger = logging.getLogger("liftbridge_aio.nsq")

GivingUp = Callable[[Message], Awaitable[object] | object]
"""Called with a message that is given up: a coroutine function or a plain function."""
_STOP_TIMEOUT: Final = 5.0
"""Seconds in which nsqd confirms that it sends no more messages."""


class NsqdStatistics(NamedTuple):
    """A connection of a consumer."""

    address: str
    version: str
    """The version of nsqd."""
    rdy: int
    """Messages that nsqd may have in flight here."""
    in_flight: int
    """Messages that are not answered yet."""


class ConsumerStatistics(NamedTuple):
    """Counts of a consumer since it was entered."""

    received: int
    finished: int
    requeued: int
    given_up: int
    """Messages that were attempted too often."""
    expired: int
    """Messages whose time was up before anybody took them."""
    refused: int
    """Answers that nsqd refused, most often because they were late."""
    in_flight: int
    """Messages that are not answered yet."""
    backoff_level: int
    """Failures that later successes have not made up for; 0: full speed."""
    connections: tuple[NsqdStatistics, ...]


class Deliveries:
    """Takes in messages and sends answers and levels.

    Owns the state of flow control, the messages in flight and those that nobody has taken yet.

    Args:
        topic: the topic of the messages.
        options: of the consumer.
        max_in_flight: over all connections.
        on_giving_up: called with each message that was attempted too often.
    """

    def __init__(
        self,
        topic: str,
        options: ConsumerOptions,
        max_in_flight: int,
        on_giving_up: GivingUp | None,
    ) -> None:
        self.topic = topic
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._max_in_flight = max_in_flight
        self._on_giving_up = on_giving_up
        self._flow: ReadyFlow[NsqConnection] = ReadyFlow(
            _flow_settings(options, max_in_flight), random.choice, self._loop.time()
        )
        self._in_flight: dict[NsqConnection, set[Message]] = {}
        self._ready: deque[Message] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._settled: asyncio.Future[None] | None = None
        self._stopping: list[asyncio.Future[bytes]] = []
        self.is_stopped = False
        """True once no message is handed out any more."""
        self._received = self._finished = self._requeued = 0
        self._given_up = self._expired = self._refused = 0

    @property
    def is_starved(self) -> bool:
        """True if nsqd waits for answers on a connection."""
        return self._flow.is_starved

    def statistics(self) -> ConsumerStatistics:
        """Return the counts."""
        connections = tuple(
            NsqdStatistics(each.address, each.granted.version, self._flow.rdy(each), len(messages))
            for each, messages in self._in_flight.items()
        )
        return ConsumerStatistics(
            self._received,
            self._finished,
            self._requeued,
            self._given_up,
            self._expired,
            self._refused,
            sum(map(len, self._in_flight.values())),
            self._flow.backoff_level,
            connections,
        )

    # Connections

    def connected(self, connection: NsqConnection) -> None:
        """Let a connection that has subscribed push messages."""
        if self.is_stopped:
            connection.close()
            return
        self._in_flight[connection] = set()
        self._send(self._flow.connected(connection, connection.granted.max_rdy, self._loop.time()))

    def lost(self, connection: NsqConnection) -> None:
        """Forget a connection; nsqd delivers its messages again when their time is up."""
        if self._in_flight.pop(connection, None) is not None:
            self._send(self._flow.closed(connection, self._loop.time()))
            self._check_settled()

    def limit(self, max_in_flight: int) -> None:
        """Set the limit of messages in flight over all connections; 0 pauses."""
        self._send(self._flow.limit(max_in_flight, self._loop.time()))

    def _send(self, levels: list[Level[NsqConnection]]) -> None:
        for connection, rdy in levels:
            if connection.error is None:
                connection.send(protocol.rdy(rdy))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._flow.next_at(), self._tick)

    def _tick(self) -> None:
        self._send(self._flow.tick(self._loop.time()))

    # Messages

    def received(self, connection: NsqConnection, data: bytes) -> None:
        """Take in a message."""
        now = self._loop.time()
        timeout = connection.granted.msg_timeout
        deadline = inf if timeout is None else now + timeout
        message = Message(self, connection, protocol.parse_message(data), deadline)
        self._received += 1
        self._in_flight[connection].add(message)
        if levels := self._flow.delivered(connection, now):
            self._send(levels)
        if self.is_stopped:
            self._requeue_now(message)
            return
        self._ready.append(message)
        if self._waiters:
            self._wake()

    def refused(self, refusal: Refusal) -> None:
        """Report an answer that nsqd refused; by then its message is known as answered."""
        self._refused += 1
        logger.warning(
            "nsqd refused an answer, so the message may be delivered again: %s", refusal.text
        )
        if self._options.backoff_on_refusal:
            self._send(self._flow.signal(Outcome.REQUEUED, self._loop.time()))

    async def next(self) -> Message | None:
        """Return the next message, or None once it is stopped.

        Cancelling loses no message.
        """
        while True:
            message = await self.next_ready()
            if message is not None or self.is_stopped:
                return message
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # it was meant for somebody
                raise

    async def next_ready(self) -> Message | None:
        """Return the next message if there is one."""
        while self._ready and not self.is_stopped:
            message = self._ready.popleft()
            if message.connection.error is not None:
                continue
            if message.deadline <= self._loop.time():
                self._expired += 1
                self._settle(message, None)
            elif 0 < self._options.max_attempts < message.attempts:
                await self._give_up(message, f"{message.attempts - 1} attempts have failed")
            else:
                return message
        return None

    async def _give_up(self, message: Message, reason: str) -> None:
        """Call the callback and finish the message; requeue it if the callback fails, and raise."""
        self._given_up += 1
        if self._on_giving_up is None:
            logger.error("gave up %s, so it is discarded: %s", repr(message), reason)
        else:
            try:
                with foreign_cancellation_fails("on_giving_up"):
                    answer = self._on_giving_up(message)
                    if isinstance(answer, Awaitable):
                        await answer
            except Exception:
                if not message.is_answered and message.connection.error is None:
                    await self.requeue(message, None, backoff=True)
                raise
            except BaseException:
                self.abandon(message)
                raise
        if not message.is_answered and message.connection.error is None:
            await self.finish(message)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # Answers

    async def finish(self, message: Message) -> None:
        """Send FIN."""
        self._answer(message, Outcome.FINISHED, protocol.fin(message.id))
        self._finished += 1
        if message.connection.is_full:
            await message.connection.room()

    async def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> None:
        """Send REQ."""
        if delay is None:
            options = self._options
            delay = min(
                seconds(options.requeue_delay) * message.attempts,
                seconds(options.max_requeue_delay),
            )
        outcome = Outcome.REQUEUED if backoff else Outcome.REQUEUED_WITHOUT_BACKOFF
        self._answer(message, outcome, protocol.req(message.id, round(delay * 1000)))
        self._requeued += 1
        if message.connection.is_full:
            await message.connection.room()

    async def reject(self, message: Message, reason: str) -> None:
        """Give up a message and send FIN."""
        _check_in_flight(message)
        await self._give_up(message, reason)

    async def touch(self, message: Message) -> None:
        """Send TOUCH."""
        _check_in_flight(message)
        connection = message.connection
        connection.send(protocol.touch(message.id))
        if connection.granted.msg_timeout is not None:
            message.deadline = self._loop.time() + connection.granted.msg_timeout
        if connection.is_full:
            await connection.room()

    def _answer(self, message: Message, outcome: Outcome, command: bytes) -> None:
        _check_in_flight(message)
        self._settle(message, outcome)
        message.connection.send(command)
        self._check_settled()

    def _settle(self, message: Message, outcome: Outcome | None) -> None:
        """Count a message as answered; levels leave before the answer."""
        message.is_answered = True
        connection = message.connection
        self._in_flight[connection].discard(message)
        levels = self._flow.answered(connection, outcome, self._loop.time())
        if levels or self._flow.is_backing_off:
            self._send(levels)

    # The end

    def stop(self) -> None:
        """Hand out no message any more, ask for none, and requeue those that nobody has taken."""
        if self.is_stopped:
            return
        self.is_stopped = True
        for connection in self._in_flight:
            self._flow.closing(connection, self._loop.time())
            if connection.error is None:
                self._stopping.append(connection.request(protocol.CLS, _STOP_TIMEOUT))
        while self._waiters:
            self._wake()
        while self._ready:
            self._requeue_now(self._ready.popleft())
        self._check_settled()

    async def stopped(self) -> None:
        """Wait until nsqd has confirmed that it sends no more messages.

        Cancelling abandons the wait.
        """
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=_STOP_TIMEOUT)

    async def settled(self) -> None:
        """Wait until all messages that were handed out are answered, or nsqd delivers them again.

        Cancelling abandons the wait.
        """
        while deadlines := self._deadlines():
            if self._settled is None:
                self._settled = self._loop.create_future()
            latest = max(deadlines)  # a touch may move it
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if latest == inf else latest):
                    await asyncio.shield(self._settled)

    def _deadlines(self) -> list[float]:
        """Return when the time of each message is up that nsqd still counts as in flight."""
        now = self._loop.time()
        messages = (each for known in self._in_flight.values() for each in known)
        return [each.deadline for each in messages if each.deadline > now]

    def requeue_all(self) -> None:
        """Requeue what is in flight, so that nsqd delivers it elsewhere at once."""
        for messages in tuple(self._in_flight.values()):
            for message in tuple(messages):
                self._requeue_now(message)
        self._ready.clear()

    def close(self) -> None:
        """Stop the timer."""
        self.is_stopped = True
        while self._waiters:
            self._wake()
        if self._timer is not None:
            self._timer.cancel()

    def abandon(self, message: Message) -> None:
        """Let another reader have a message that nobody works on any more; requeue it at the end.

        Nsqd would deliver it here again at once, so it stays in flight while readers may come.
        """
        if self.is_stopped:
            self._requeue_now(message)
            self._check_settled()
        elif not message.is_answered:
            self._ready.appendleft(message)
            self._wake()

    def _requeue_now(self, message: Message) -> None:
        if not message.is_answered and message.connection.error is None:
            self._requeued += 1
            self._settle(message, None)
            message.connection.send(protocol.req(message.id, 0))

    def _check_settled(self) -> None:
        if self._settled is not None and not any(self._in_flight.values()):
            self._settled.set_result(None)
            self._settled = None


def _check_in_flight(message: Message) -> None:
    if message.is_answered:
        raise AlreadyAnswered(
            f"{message!r} was answered before, or requeued when the consumer was closed"
        )
    if message.connection.error is not None:
        raise NotInFlight(f"{message!r} is not in flight: {message.connection.error.message}")


def _flow_settings(options: ConsumerOptions, max_in_flight: int) -> FlowSettings:
    unit = seconds(options.backoff_unit)
    if options.backoff_strategy == "full_jitter":

        def backoff(level: int) -> float:
            return random.uniform(0, unit * 2.0**level)  # noqa: S311 - no secret
    else:

        def backoff(level: int) -> float:
            return unit * 2.0**level

    return FlowSettings(
        max_in_flight,
        max_backoff=seconds(options.max_backoff),
        backoff=backoff,
        probe_first=options.probe_first,
        redistribute=seconds(options.redistribute_interval),
        idle=seconds(options.idle_timeout),
        hold=seconds(options.hold_timeout),
    )
