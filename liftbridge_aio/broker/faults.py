"""Faults on demand: what `broker.faults` does.

A fault is asked for first and happens later, to the next message that it is about. Every method
that plans one returns a `Fault`, which tells whether it has happened and can be waited for, so
that tests need no sleep:

    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("orders")
        await client.publish("orders", b"one")

        # Two calls fail, and the client tries again.
        refused = broker.faults.fail("FetchMetadata", times=2, code="UNAVAILABLE")
        await client.fetch_metadata()
        assert refused.applied == 2

        # The message is stored, but its ack is lost.
        lost = broker.faults.drop("PublishAsync", at="reply")
        with pytest.raises(AckTimeout):
            await client.publish("orders", b"two", ack_timeout=0.2)
        assert lost.applied == 1

        # A subscription hangs until it is let go.
        stalled = broker.faults.stall("Subscribe", when=lambda request: request.stream == "orders")
        async with client.subscribe("orders", start=StartAt.earliest()) as messages:
            await stalled.wait()
            stalled.release()
            assert [(await anext(messages)).value for _ in range(2)] == [b"one", b"two"]

        # All connections break; the client goes on, over new ones.
        await broker.faults.cut_links(reset=True)
        await client.publish("orders", b"three", retry=Retry(attempts=3))

        broker.faults.assert_all_applied()

Where a fault acts is said by `at`:

- `"request"`, if nothing else is said: the broker has read the message and has not acted on it.
- `"reply"`: it has acted on it, and the answer is on its way. For Subscribe and PublishAsync this
  is each single message and ack. The client cannot know what became of its call.
- `"handshake"`: the empty message that a Subscribe begins with.

Conditions look at the messages of the wire: `when` at the request of the call (for PublishAsync at
each published message), `when_reply` at the reply. One message suffers one fault, the oldest that
is due. What is planned stays planned over restarts of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, TypedDict, Unpack, get_args

from .clock import Clock
from .connections import Connection, Listener
from .fault_injection import FaultInjector
from .fault_plan import AppliedFault, Condition, PlannedFault, RpcName, Rule, check_name

MessagePlace: TypeAlias = Literal["request", "handshake", "reply"]
"""Where a fault befalls messages; see the text of this module."""

FailureCode: TypeAlias = Literal[
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]
"""The status codes of gRPC that are failures."""


class Which(TypedDict, total=False):
    """Which messages a fault is about: arguments that all such faults share."""

    at: MessagePlace
    """Where it acts: `"request"` unless told otherwise; see the text of this module."""
    times: int | None
    """How many messages it befalls: one unless told otherwise; None: all until it is cancelled."""
    skip: int
    """How many matching messages pass by first, counted from now; none unless told otherwise."""
    when: Condition
    """Looks at the request; the fault is about those for which it is true."""
    when_reply: Condition
    """Looks at the reply; needs `at="reply"`. Refused unary calls have no reply to look at."""


DEFAULT_WAIT: Final = 10.0
"""Seconds that waiting for a fault takes at most unless told otherwise."""

_DEFAULT_TEXT: Final = "a fault that was asked for"
_MAX_SKEW: Final = 100 * 366 * 86_400.0  # seconds; timestamps of 64 bits bear it
_MAX_UINT31: Final = 2**31 - 1
_MAX_UINT32: Final = 2**32 - 1


class Fault:
    """One fault that was asked for. Made by the methods of `Faults`."""

    def __init__(self, planned: PlannedFault, injector: FaultInjector) -> None:
        """Look at a planned fault."""
        self._planned = planned
        self._injector = injector

    @property
    def applied(self) -> int:
        """How often it has happened so far."""
        return self._planned.applied

    @property
    def is_pending(self) -> bool:
        """Whether it was asked for more often than it has happened; cancelled ones are not."""
        return self._planned.is_pending

    def cancel(self) -> None:
        """Let it happen no more. A message that it delays goes on at once."""
        self._injector.cancel(self._planned)

    async def wait(self, times: int | None = None, *, timeout: float = DEFAULT_WAIT) -> None:
        """Wait until it has happened.

        May be cancelled at any time.

        Args:
            times: how often; None: as often as it was asked for, once if that is always.
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it has not.
            RuntimeError: it was cancelled before, or its condition raised.
        """
        planned = self._planned
        wanted = times or planned.rule.times or 1
        try:
            async with asyncio.timeout(timeout):
                while planned.applied < wanted:
                    if planned.is_over:
                        text = f"it is over: {planned}"
                        raise RuntimeError(text) from planned.error
                    await self._injector.changed.wait()
        except TimeoutError as error:
            text = f"not {wanted} times within {timeout} s: {planned}"
            raise TimeoutError(text) from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._planned}>"


class Stall(Fault):
    """Calls that stand still, and go on when they are released."""

    def release(self) -> None:
        """Let the calls that stand go on, and stall no others."""
        self.cancel()


class Faults:
    """Breaks a broker on demand. Every broker has one, as `broker.faults`."""

    def __init__(
        self, injector: FaultInjector, clock: Clock, listener: Callable[[], Listener | None]
    ) -> None:
        """Control the faults of one broker.

        Args:
            injector: has the faults befall messages.
            clock: the broker's clock.
            listener: gives what listens now, None while the broker is stopped.
        """
        self._injector = injector
        self._plan = injector.plan
        self._clock = clock
        self._listener = listener

    # --- messages ---

    def fail(
        self,
        rpc: RpcName,
        *,
        code: FailureCode = "UNAVAILABLE",
        text: str = _DEFAULT_TEXT,
        **which: Unpack[Which],
    ) -> Fault:
        """End calls with a status, at a message of theirs.

        At a request the call is not executed; a PublishAsync ends after the answers to what came
        before. At a reply it was executed, and the status is all that the client hears.

        Args:
            rpc: the procedure.
            code: the status.
            text: its message.
            **which: which messages, see `Which`.

        Returns:
            The fault, to wait for.

        Raises:
            ValueError: this can never happen.
        """
        if code not in get_args(FailureCode):
            problem = (
                f"no status that fails: {code!r}; there are {', '.join(get_args(FailureCode))}"
            )
            raise ValueError(problem)
        return self._add(Rule(kind="fail", rpc=rpc, code=code, text=text, **which))

    def delay(self, rpc: RpcName, seconds: float, **which: Unpack[Which]) -> Fault:
        """Hold messages back for some time. What follows in the same call waits behind them.

        Args:
            rpc: the procedure.
            seconds: for how long.
            **which: which messages, see `Which`.

        Returns:
            The fault; it counts when the delay begins. Cancelling it ends the delay.

        Raises:
            ValueError: this can never happen.
        """
        if not 0 <= seconds < float("inf"):
            problem = f"seconds must be finite and not negative: {seconds}"
            raise ValueError(problem)
        return self._add(Rule(kind="delay", rpc=rpc, seconds=seconds, **which))

    def drop(self, rpc: RpcName, **which: Unpack[Which]) -> Fault:
        """Lose messages. The call stays open: a unary one, or a Subscribe, is never answered.

        A lost request is not executed. When a reply is lost it was, but nobody hears of it.

        Args:
            rpc: the procedure.
            **which: which messages, see `Which`.

        Returns:
            The fault, to wait for.

        Raises:
            ValueError: this can never happen.
        """
        return self._add(Rule(kind="drop", rpc=rpc, **which))

    def duplicate(self, rpc: RpcName, **which: Unpack[Which]) -> Fault:
        """Take messages twice, or send them twice.

        A request is executed twice: a unary call is told how it went the first time, a PublishAsync
        answers both times. Replies can be sent twice by Subscribe and PublishAsync only.

        Args:
            rpc: the procedure.
            **which: which messages, see `Which`.

        Returns:
            The fault, to wait for.

        Raises:
            ValueError: this can never happen.
        """
        return self._add(Rule(kind="duplicate", rpc=rpc, **which))

    def stall(self, rpc: RpcName, **which: Unpack[Which]) -> Stall:
        """Stop calls at a message until they are released; they stay open and say nothing more.

        Unless told otherwise they stop at a reply, instead of sending it. At a request they stop
        before it is executed, and read no more.

        Args:
            rpc: the procedure.
            **which: which messages, see `Which`; one call stops at one message.

        Returns:
            The fault, to wait for and to release. Stopping the broker needs no release.

        Raises:
            ValueError: this can never happen.
        """
        which.setdefault("at", "reply")
        planned = self._plan.add(Rule(kind="stall", rpc=rpc, **which))
        return Stall(planned, self._injector)

    # --- links ---

    async def cut_links(
        self, *, carrying: RpcName | None = None, most: int | None = None, reset: bool = False
    ) -> int:
        """Break connections now and go on listening; returns when they are gone.

        Takes less than a second. Cancelling abandons the wait.

        Args:
            carrying: only connections on which such a call is open; None: all.
            most: at most so many; None: all of these.
            reset: reset them at once, so that what is on its way is lost. Otherwise they are closed
                in order, and what was sent arrives unless the client is sending, too.

        Returns:
            How many there were.

        Raises:
            ValueError: there is no such procedure, or `most` is negative.
        """
        if most is not None and most < 0:
            problem = f"most must not be negative: {most}"
            raise ValueError(problem)
        listener, links = self._links(carrying)
        links = links[:most]
        self._plan.record("cut link", len(links))
        if listener is not None:
            await (listener.reset_connections if reset else listener.close_connections)(links)
        return len(links)

    def refuse_links(self, times: int | None = 1, *, skip: int = 0) -> Fault:
        """Reset the next connections as soon as they are made.

        Args:
            times: how many; None: all until it is cancelled.
            skip: how many are let through first.

        Returns:
            The fault, to wait for.

        Raises:
            ValueError: this can never happen.
        """
        rule = Rule(kind="refuse link", rpc=None, at="connection", times=times, skip=skip)
        return self._add(rule)

    async def go_away(
        self,
        *,
        error_code: int = 0,
        last_stream_id: int | None = None,
        carrying: RpcName | None = None,
        close: bool = False,
    ) -> int:
        """Send a GOAWAY on connections, as a server that is going to stop.

        Takes less than a second. Cancelling abandons the wait for what is closed.

        Args:
            error_code: of HTTP/2; 0: no error.
            last_stream_id: number of the last HTTP/2 stream that is served; None: the latest one.
                Calls after that are passed over in silence, as by a Go server.
            carrying: only on connections on which such a call is open; None: on all.
            close: close the connections then. Otherwise they stay open, and calls go on.

        Returns:
            On how many it was sent.

        Raises:
            ValueError: there is no such procedure, or a number does not fit HTTP/2.
        """
        if not 0 <= error_code <= _MAX_UINT32:
            problem = f"error_code must fit in 32 bits: {error_code}"
            raise ValueError(problem)
        if last_stream_id is not None and not 0 <= last_stream_id <= _MAX_UINT31:
            problem = f"last_stream_id must fit in 31 bits: {last_stream_id}"
            raise ValueError(problem)
        listener, links = self._links(carrying)
        self._plan.record("go away", len(links))
        for link in links:
            link.go_away(error_code, last_stream_id)
        if listener is not None and close:
            await listener.close_connections(links)
        return len(links)

    def _links(self, carrying: RpcName | None) -> tuple[Listener | None, Sequence[Connection]]:
        if carrying is not None:
            check_name(carrying)
        listener = self._listener()
        return listener, () if listener is None else listener.carrying(carrying)

    # --- time ---

    def skew_clock(self, seconds: float) -> None:
        """Set the broker's clock wrong: all that it stamps and ages messages by.

        Args:
            seconds: how far it is ahead of the system's clock; negative: behind; 0: right again.

        Raises:
            ValueError: no number, or more than a hundred years.
        """
        if not abs(seconds) <= _MAX_SKEW:
            problem = f"seconds must be within a hundred years: {seconds}"
            raise ValueError(problem)
        self._clock.skew = seconds
        self._plan.record("skew clock", 1)

    # --- what became of it ---

    @property
    def applied(self) -> Sequence[AppliedFault]:
        """Everything that went wrong on purpose, in order."""
        return tuple(self._plan.applied)

    @property
    def pending(self) -> Sequence[Fault]:
        """What was asked for and has not happened, oldest first."""
        return tuple(Fault(planned, self._injector) for planned in self._plan.pending)

    def clear(self) -> None:
        """Cancel everything: what is held back goes on, and the clock is right again.

        What went wrong stays in `applied`; messages that were dropped stay lost.
        """
        self._injector.clear()
        self._clock.skew = 0.0

    async def wait_applied(self, *, timeout: float = DEFAULT_WAIT) -> None:
        """Wait until nothing is pending. May be cancelled at any time.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: something still is; the error says what.
            RuntimeError: a condition raised.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._plan.broken and self._plan.pending:
                    await self._injector.changed.wait()
        except TimeoutError as error:
            raise TimeoutError(self._description()) from error
        if self._plan.broken:
            raise RuntimeError(self._description()) from self._plan.broken[0].error

    def assert_all_applied(self) -> None:
        """Check, at the end of a test, that everything that was asked for has happened.

        Raises:
            AssertionError: something has not, or a condition raised; the error says what.
        """
        if self._plan.pending or self._plan.broken:
            cause = self._plan.broken[0].error if self._plan.broken else None
            raise AssertionError(self._description()) from cause

    def _description(self) -> str:
        faults = [*self._plan.pending, *self._plan.broken]
        return "; ".join(["not everything was applied", *map(str, faults)])

    def __repr__(self) -> str:
        return f"<Faults {len(self._plan.applied)} applied, {len(self._plan.pending)} pending>"

    def _add(self, rule: Rule) -> Fault:
        return Fault(self._plan.add(rule), self._injector)
