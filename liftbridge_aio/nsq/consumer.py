"""`Consumer`: the messages of a channel from all its nsqds, as an async iterator."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    check_callable,
    check_flags,
    check_whole_number,
    names,
)
from liftbridge_aio._core.foreign_cancellation import failure_of
from liftbridge_aio._runtime.stop_signal import stopped_by_signals
from liftbridge_aio._runtime.supervisor import Child, Supervisor
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.handlers import Handler, Nack, Reject, intercepted
from liftbridge_aio.interceptors import Interceptor
from liftbridge_aio.options import seconds

from .connection import NsqConnection, full_address
from .core import protocol
from .core.protocol import check_name
from .deliveries import ConsumerStatistics, Deliveries, GivingUp
from .discovery import Discovery
from .errors import Closed, NotConnected, NotInFlight, NsqError
from .message import Message
from .options import ConsumerOptions

logger = logging.getLogger("liftbridge_aio.nsq")

MessageHandler: TypeAlias = Handler[Message]
"""A handler of messages: a coroutine function, which is awaited, or a plain function."""

_CLOSE: Final = 5.0
"""Seconds for the end of connections."""
_LOOKUP_PAUSE: Final = 1.0
"""Seconds between two queries of nsqlookupd, at least."""


class State(enum.Enum):
    """The life of a consumer."""

    NEW = "not entered"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(slots=True)
class _Nsqd:
    """An nsqd that the consumer is, or wants to be, connected to."""

    address: str
    is_discovered: bool
    opened: asyncio.Future[NsqError | None]
    """Done after the first attempt to connect; has its error."""
    connection: NsqConnection | None = None
    child: Child | None = None

    def attempted(self, error: NsqError | None) -> None:
        """Record the first attempt."""
        if not self.opened.done():
            self.opened.set_result(error)


class Consumer:
    """Consumes a channel of a topic.

        async with nsq.Consumer("orders", "billing", nsqd=["127.0.0.1:4150"]) as consumer:
            async for message in consumer:
                ...
                await message.finish()

    A message that is not answered in time is delivered again, to any consumer of the channel. Any
    number of tasks may iterate at the same time; each message goes to one of them. What is not
    answered when the block is left is requeued.

    Nsqds that are named are connected again when they were lost, after 8, 16, 32 s and so on up to
    5 minutes. Those found by nsqlookupd are connected again when it names them again.

    Args:
        topic: the topic; it is created if it does not exist.
        channel: the channel; each channel gets every message of the topic.
        nsqd: addresses of nsqds, `host:port`; the default port is 4150.
        lookupd: URLs of nsqlookupds instead, for example `http://127.0.0.1:4161`; needs the extra
            `nsq`.
        max_in_flight: messages that may be unanswered at a time, over all connections.
        on_giving_up: called with each message that was attempted too often, which is finished
            after that, or requeued if this raises; its `attempts` counts the delivery that is not
            handled, so it is above `max_attempts`. None: it is logged as an error.
        options: of the consumer and its connections.

    Raises:
        InvalidRequest: an argument is invalid.
        WrongType: an argument has the wrong type.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        *,
        nsqd: Iterable[str] = (),
        lookupd: Iterable[str] = (),
        max_in_flight: int = 1,
        on_giving_up: GivingUp | None = None,
        options: ConsumerOptions | None = None,
    ) -> None:
        check_whole_number(max_in_flight, "max_in_flight", 1, INT32_MAX)
        if on_giving_up is not None:
            check_callable(on_giving_up, "on_giving_up")
        self.topic = check_name(topic, "topic")
        self.channel = check_name(channel, "channel")
        self._options = options or ConsumerOptions()
        self._addresses = [full_address(each) for each in names(nsqd, "an address")]
        self._lookupds = names(lookupd, "a URL")
        if bool(self._addresses) is bool(self._lookupds):
            raise InvalidRequest("name nsqds or nsqlookupds: one of them, not both")
        if len(set(self._addresses)) < len(self._addresses):
            raise InvalidRequest(f"an nsqd is named twice: {', '.join(self._addresses)}")
        self._max_in_flight = max_in_flight
        self._on_giving_up = on_giving_up
        self._state = State.NEW
        self._supervisor = Supervisor(f"nsq:{topic}/{channel}", "the consumer")
        self._nsqds: dict[str, _Nsqd] = {}
        self._deliveries: Deliveries | None = None
        self._discovery: Discovery | None = None
        self._lookup_wanted = asyncio.Event()

    # Life

    async def __aenter__(self) -> Self:
        """Connect to nsqds. Cancelling closes it.

        Raises:
            NotConnected: none of the named nsqds can be reached.
            LookupFailed: no nsqlookupd answered.
            CommandRefused: the only nsqd refuses the options or the names.
            Unauthorized: it requires a secret, or another one.
            ProtocolError: the server is no nsqd.
        """
        if self._state is not State.NEW:
            raise Closed("a consumer is entered once; create another one")
        self._deliveries = deliveries = Deliveries(
            self.topic, self._options, self._max_in_flight, self._on_giving_up
        )
        self._state = State.OPEN
        await self._supervisor.start()
        try:
            if self._lookupds:
                self._discovery = Discovery(self._lookupds, self.topic, self._options)
                found = await self._discovery.find()
                await self._first_attempts(
                    [self._add(deliveries, each, discovered=True) for each in found]
                )
                self._supervisor.spawn(self._look_up, self._discovery, deliveries, name="lookup")
            else:
                added = [self._add(deliveries, each, discovered=False) for each in self._addresses]
                errors = await self._first_attempts(added)
                if len(errors) == len(added):
                    raise errors[0]
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.aclose()

    async def aclose(self) -> None:
        """Requeue what is not answered, without delay, and close the connections.

        Iteration ends. Idempotent. Takes at most 10 seconds; cancelling closes connections without
        requeuing.
        """
        if self._state is State.CLOSED:
            return
        deliveries, self._state = self._deliveries, State.CLOSED
        try:
            if deliveries is not None:
                deliveries.stop()
                await deliveries.stopped()
                deliveries.requeue_all()
        finally:
            connections = self._connections
            for connection in connections:
                connection.close()
            if deliveries is not None:
                deliveries.close()
            await self._supervisor.stop(_CLOSE)
            for connection in connections:
                await connection.wait_closed(_CLOSE)
            if self._discovery is not None:
                await self._discovery.aclose()

    async def drain(self) -> None:
        """Take no more messages, requeue those that nobody has taken, and wait for the answers.

        A message whose time at nsqd is up is not waited for: nsqd delivers it again. Iteration
        ends. Call it from a task that does not itself hold an unanswered message. Cancelling
        abandons the wait; intake stays stopped.

        Raises:
            Closed: the consumer is closed, or was not entered.
        """
        deliveries = self._opened()
        deliveries.stop()
        await deliveries.settled()

    # Reading

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message. Cancelling loses none.

        Raises:
            StopAsyncIteration: the consumer was drained or closed.
            Closed: it was not entered, or is closed.
        """
        message = await self._opened().next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def batches(self, max_size: int = 100) -> AsyncGenerator[list[Message], None]:
        """Iterate over lists of the messages that are there: at least one, at most `max_size`.

        Cancelling loses none.
        """
        check_whole_number(max_size, "max_size", 1, INT32_MAX)
        deliveries = self._opened()
        while (message := await deliveries.next()) is not None:
            batch = [message]
            try:
                while len(batch) < max_size and (more := await deliveries.next_ready()) is not None:
                    batch.append(more)
            except BaseException:  # of `on_giving_up`; nobody has seen the messages before
                for each in reversed(batch):
                    deliveries.abandon(each)
                raise
            yield batch

    async def run(
        self,
        handler: MessageHandler,
        *,
        concurrency: int = 1,
        interceptors: Sequence[Interceptor] = (),
        stop_on_signals: bool = True,
    ) -> None:
        """Call a handler for each message, until `drain`, `aclose` or a signal.

        A message is finished when its handler returns, and requeued when it raises, which is logged
        and slows the consumer down; `Nack` and `Reject` say what else to do, and the handler may
        answer it itself. On SIGTERM, and the first Ctrl-C, no further message is handled, and this
        returns when the running handlers have returned.

        Cancelling cancels the running handlers. The next reader gets their messages; without one
        they are requeued when the consumer is drained or closed. A handler that ends with a
        `CancelledError` though nothing has cancelled its task has failed.

        Args:
            handler: a coroutine function, or a plain function, which runs on the event loop and
                must not block. What it returns is ignored.
            concurrency: the maximum of messages handled concurrently; `max_in_flight` should not be
                less.
            interceptors: wrap the handler; the first is the outermost.
            stop_on_signals: stop on SIGTERM and Ctrl-C too, if this runs in the main thread.

        Raises:
            Closed: the consumer is closed, or was not entered.
            Exception: what `on_giving_up` raised; its message is requeued, not finished.
        """
        check_callable(handler, "the handler")
        check_whole_number(concurrency, "concurrency", 1, INT32_MAX)
        check_flags(stop_on_signals=stop_on_signals)
        deliveries = self._opened()
        handler = intercepted(handler, interceptors)
        try:
            with stopped_by_signals(deliveries.stop) if stop_on_signals else nullcontext():
                async with asyncio.TaskGroup() as workers:
                    for _ in range(concurrency):
                        workers.create_task(self._work(deliveries, handler))
        except BaseExceptionGroup as failed:
            [error, *_] = failed.exceptions
            raise error from None

    async def _work(self, deliveries: Deliveries, handler: MessageHandler) -> None:
        while (message := await deliveries.next()) is not None:
            try:
                answer = handler(message)
                if isinstance(answer, Awaitable):
                    await answer
            except BaseException as error:  # noqa: BLE001 - logged, and the message requeued
                try:
                    failure: Exception | None = failure_of(error, "the handler")
                except BaseException:
                    deliveries.abandon(message)
                    raise
            else:
                failure = None
            if message.is_answered:
                continue
            try:
                await self._answer(message, failure)
            except NotInFlight as lost:
                logger.warning("%s is delivered again: %s", repr(message), lost)

    async def _answer(self, message: Message, failure: Exception | None) -> None:
        if failure is None:
            await message.finish()
        elif isinstance(failure, Reject):
            await message.reject(str(failure))
        else:
            if isinstance(failure, Nack):
                nack = failure
                logger.info("the handler has nacked %s: %s", repr(message), nack)
            else:
                nack = Nack()
                logger.warning("the handler failed, so %s is requeued: %r", repr(message), failure)
            await message.requeue(nack.delay, backoff=nack.backoff)

    # Flow

    @property
    def is_starved(self) -> bool:
        """True if nsqd waits for answers on a connection, so a batch should be handled now."""
        return self._opened().is_starved

    def set_max_in_flight(self, max_in_flight: int) -> None:
        """Set the limit of unanswered messages over all connections.

        Raises:
            InvalidRequest: it is out of range.
            Closed: the consumer is closed, or was not entered.
        """
        check_whole_number(max_in_flight, "max_in_flight", 1, INT32_MAX)
        self._max_in_flight = max_in_flight
        self.resume()

    def pause(self) -> None:
        """Ask for no more messages; those that are here are still handed out."""
        self._opened().limit(0)

    def resume(self) -> None:
        """Ask for messages again after `pause`."""
        self._opened().limit(self._max_in_flight)

    def statistics(self) -> ConsumerStatistics:
        """Return counts since the consumer was entered, and its connections.

        Raises:
            Closed: the consumer was not entered.
        """
        return (self._deliveries or self._opened()).statistics()

    # Connections

    async def connect(self, address: str) -> None:
        """Connect to one more nsqd. Cancelling leaves it to connect in the background.

        Raises:
            InvalidRequest: it is no address, or connected already.
            NsqError: the first attempt failed; it is not tried again.
        """
        deliveries = self._opened()
        address = full_address(address)
        if address in self._nsqds:
            raise InvalidRequest(f"the consumer has nsqd at {address} already")
        nsqd = self._add(deliveries, address, discovered=False)
        if errors := await self._first_attempts([nsqd]):
            await self._remove(nsqd)
            raise errors[0]

    async def disconnect(self, address: str) -> None:
        """Disconnect from an nsqd, which delivers what is not answered when its time is up.

        Cancelling abandons the wait.

        Raises:
            InvalidRequest: the consumer does not have it.
        """
        self._opened()
        nsqd = self._nsqds.get(full_address(address))
        if nsqd is None:
            raise InvalidRequest(f"the consumer has no nsqd at {address}")
        await self._remove(nsqd)

    @property
    def _connections(self) -> list[NsqConnection]:
        return [each.connection for each in self._nsqds.values() if each.connection is not None]

    def _opened(self) -> Deliveries:
        if self._deliveries is None or self._state is not State.OPEN:
            raise Closed(f"the consumer is {self._state.value}")
        return self._deliveries

    def _add(self, deliveries: Deliveries, address: str, *, discovered: bool) -> _Nsqd:
        opened = asyncio.get_running_loop().create_future()
        nsqd = _Nsqd(address, discovered, opened)
        self._nsqds[address] = nsqd
        nsqd.child = self._supervisor.spawn(self._serve, nsqd, deliveries, name=address)
        return nsqd

    async def _remove(self, nsqd: _Nsqd) -> None:
        self._nsqds.pop(nsqd.address, None)
        if nsqd.child is not None:
            nsqd.child.cancel()
        if nsqd.connection is not None:
            nsqd.connection.close()
            await nsqd.connection.wait_closed(_CLOSE)

    async def _first_attempts(self, nsqds: list[_Nsqd]) -> list[NsqError]:
        errors = [await nsqd.opened for nsqd in nsqds]
        return [error for error in errors if error is not None]

    async def _serve(self, nsqd: _Nsqd, deliveries: Deliveries) -> None:
        """Keep an nsqd connected; one that was discovered only until its connection ends."""
        options = self._options
        wait = seconds(options.reconnect_wait)
        try:
            while True:
                try:
                    ended = await self._open(nsqd, deliveries)
                except NsqError as failure:
                    error = failure
                    nsqd.attempted(error)
                else:
                    nsqd.attempted(None)
                    wait = seconds(options.reconnect_wait)
                    error = await ended
                if deliveries.is_stopped:
                    break
                logger.warning("not connected to nsqd at %s: %s", nsqd.address, error)
                if nsqd.is_discovered:
                    break
                await asyncio.sleep(wait * (1 + options.lookup_jitter * random.random()))  # noqa: S311
                wait = min(wait * 2, seconds(options.max_reconnect_wait))
        finally:
            nsqd.attempted(NotConnected("the consumer was closed"))
        if self._nsqds.get(nsqd.address) is nsqd:
            del self._nsqds[nsqd.address]
        if nsqd.connection is not None:
            self._lookup_wanted.set()

    async def _open(self, nsqd: _Nsqd, deliveries: Deliveries) -> asyncio.Future[NsqError]:
        """Open a connection to an nsqd, and return the future of the reason of its end."""
        ended: asyncio.Future[NsqError] = asyncio.get_running_loop().create_future()

        def lost(connection: NsqConnection, error: NsqError) -> None:
            deliveries.lost(connection)
            if not ended.done():
                ended.set_result(error)

        connection = NsqConnection(
            nsqd.address,
            self._options,
            received=deliveries.received,
            refused=deliveries.refused,
            lost=lost,
        )
        await connection.open(protocol.sub(self.topic, self.channel))
        nsqd.connection = connection
        deliveries.connected(connection)
        return ended

    async def _look_up(self, discovery: Discovery, deliveries: Deliveries) -> None:
        """Query nsqlookupds at intervals, and soon after a connection has ended."""
        options = self._options
        interval = seconds(options.lookup_interval)
        wait = interval * options.lookup_jitter * random.random()  # noqa: S311 - no secret
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._lookup_wanted.wait()
                await asyncio.sleep(_LOOKUP_PAUSE)
            except TimeoutError:
                pass
            self._lookup_wanted.clear()
            wait = interval * (1 + options.lookup_jitter * random.random())  # noqa: S311
            try:
                found = await discovery.find()
            except NsqError as error:
                logger.warning("nsqds cannot be looked up, known ones stay: %s", error)
                continue
            for address in found - self._nsqds.keys():
                self._add(deliveries, address, discovered=True)
