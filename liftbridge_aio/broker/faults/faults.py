"""The faults that `broker.faults` can inject.

A fault is planned first and applied later, to the next message that matches. Every method that
plans one returns a `Fault`, which counts its applications and can be awaited, so that tests need no
sleep; the guide (`docs/embedded-broker.md`) has an example. The argument `at` is the place:

- `"request"`, the default: the broker has read the message and has not acted on it.
- `"reply"`: it has acted on it, and the answer is on its way. For Subscribe and PublishAsync this
  is each single message and ack. The client cannot know the outcome of its call.
- `"handshake"`: the empty message that a Subscribe begins with.

Conditions are predicates of protocol messages: `when` of the request of the call (for PublishAsync
of each published message), `when_reply` of the reply. At most one fault is applied to a message,
the oldest that is due. Faults stay planned over restarts of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, Unpack, get_args

from liftbridge_aio._core.arguments import check_flags, check_number
from liftbridge_aio.broker.server.clock import Clock
from liftbridge_aio.broker.server.connections import Listener, ServerConnection

from .fault import DEFAULT_WAIT, Fault, Stall
from .fault_injection import FaultInjector
from .fault_plan import AppliedFault, FailureCode, RpcName, Rule, Which, check_name

_DEFAULT_TEXT: Final = "an injected fault"
_MAX_SKEW: Final = 100 * 366 * 86_400.0  # seconds; keeps timestamps within 64 bits
_MAX_UINT31: Final = 2**31 - 1
_MAX_UINT32: Final = 2**32 - 1


class SetForgetful(Protocol):
    """A callback that makes a broker answer as if it had no streams, or as usual again."""

    def __call__(self, *, forgetful: bool) -> None:
        """Set it, now and for every later start."""


class Faults:
    """Injects faults into one broker; every broker has one, as `broker.faults`."""

    def __init__(
        self,
        injector: FaultInjector,
        clock: Clock,
        listener: Callable[[], Listener | None],
        set_forgetful: SetForgetful,
    ) -> None:
        """Control the faults of one broker.

        Args:
            injector: applies planned faults to messages.
            clock: the broker's clock.
            listener: returns the listener, None while the broker is stopped.
            set_forgetful: makes the broker answer as if it had no streams, or as usual.
        """
        self._set_forgetful = set_forgetful
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
        """End calls with a status, when a message matches.

        At a request the call is not executed; a PublishAsync ends after the answers to what came
        before. At a reply it was executed, and the client receives only the status.

        Args:
            rpc: the procedure.
            code: the status.
            text: its message.
            **which: which messages, see `Which`.

        Returns:
            The planned fault.

        Raises:
            ValueError: no message can match.
        """
        if code not in get_args(FailureCode):
            raise ValueError(
                f"no failure status: {code!r}; there are {', '.join(get_args(FailureCode))}"
            )
        return self._add(Rule(kind="fail", rpc=rpc, code=code, text=text, **which))

    def delay(self, rpc: RpcName, seconds: float, **which: Unpack[Which]) -> Fault:
        """Delay messages, and those behind them in the same call.

        Args:
            rpc: the procedure.
            seconds: length of the delay.
            **which: which messages, see `Which`.

        Returns:
            The planned fault; it counts as applied when the delay begins. Cancelling it ends the
            delay.

        Raises:
            ValueError: no message can match, or `seconds` is out of range.
        """
        check_number(seconds, "seconds")
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds must be finite and not negative: {seconds}")
        return self._add(Rule(kind="delay", rpc=rpc, seconds=seconds, **which))

    def drop(self, rpc: RpcName, **which: Unpack[Which]) -> Fault:
        """Drop messages. The call stays open: a unary one, or a Subscribe, is never answered.

        A dropped request is not executed; where a reply is dropped, the request was executed.

        Args:
            rpc: the procedure.
            **which: which messages, see `Which`.

        Returns:
            The planned fault.

        Raises:
            ValueError: no message can match.
        """
        return self._add(Rule(kind="drop", rpc=rpc, **which))

    def duplicate(self, rpc: RpcName, **which: Unpack[Which]) -> Fault:
        """Execute requests twice, or send replies twice.

        A unary call returns the reply to the first execution, a PublishAsync answers both. Only
        Subscribe and PublishAsync can send replies twice.

        Args:
            rpc: the procedure.
            **which: which messages, see `Which`.

        Returns:
            The planned fault.

        Raises:
            ValueError: no message can match.
        """
        return self._add(Rule(kind="duplicate", rpc=rpc, **which))

    def stall(self, rpc: RpcName, **which: Unpack[Which]) -> Stall:
        """Block calls at a message until they are released; they stay open and send nothing.

        By default they block at a reply, before it is sent. At a request they block before it is
        executed, and read no more.

        Args:
            rpc: the procedure.
            **which: which messages, see `Which`; `times` counts calls.

        Returns:
            The planned fault, to release the calls with. Stopping the broker needs no release.

        Raises:
            ValueError: no message can match.
        """
        which.setdefault("at", "reply")
        planned = self._plan.add(Rule(kind="stall", rpc=rpc, **which))
        return Stall(planned, self._injector)

    # --- connections ---

    async def cut_links(
        self, *, carrying: RpcName | None = None, most: int | None = None, reset: bool = False
    ) -> int:
        """Close connections now; return when they are closed. The broker still listens.

        Takes less than a second. Cancelling abandons the wait.

        Args:
            carrying: only connections on which a call of this procedure is open; None: all.
            most: the maximum of connections; None: all of these.
            reset: reset them at once and lose what is in flight. Otherwise they are closed in
                order, and what was sent arrives unless the client is sending, too.

        Returns:
            The number of closed connections.

        Raises:
            ValueError: there is no such procedure, or `most` is negative.
        """
        check_flags(reset=reset)
        if most is not None and most < 0:
            raise ValueError(f"most must not be negative: {most}")
        listener, connections = self._connections(carrying)
        connections = connections[:most]
        self._plan.record("cut link", len(connections))
        if listener is not None:
            close = listener.reset_connections if reset else listener.close_connections
            await close(connections)
        return len(connections)

    def refuse_links(self, times: int | None = 1, *, skip: int = 0) -> Fault:
        """Reset the next connections as soon as they are made.

        Args:
            times: the number of connections; None: all until it is cancelled.
            skip: the number of connections to accept first.

        Returns:
            The planned fault.

        Raises:
            ValueError: a number is out of range.
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
        """Send a GOAWAY on connections, as a server does before it stops.

        Takes less than a second. Cancelling abandons the wait for connections to close.

        Args:
            error_code: of HTTP/2; 0: no error.
            last_stream_id: number of the last HTTP/2 stream that is served; None: the latest one.
                Later calls are ignored, as by a Go server.
            carrying: only on connections on which a call of this procedure is open; None: on all.
            close: close the connections afterwards. Otherwise they and their calls continue.

        Returns:
            The number of connections on which it was sent.

        Raises:
            ValueError: there is no such procedure, or a number does not fit HTTP/2.
        """
        check_flags(close=close)
        if not 0 <= error_code <= _MAX_UINT32:
            raise ValueError(f"error_code must fit in 32 bits: {error_code}")
        if last_stream_id is not None and not 0 <= last_stream_id <= _MAX_UINT31:
            raise ValueError(f"last_stream_id must fit in 31 bits: {last_stream_id}")
        listener, connections = self._connections(carrying)
        self._plan.record("go away", len(connections))
        for connection in connections:
            connection.go_away(error_code, last_stream_id)
        if listener is not None and close:
            await listener.close_connections(connections)
        return len(connections)

    def _connections(
        self, carrying: RpcName | None
    ) -> tuple[Listener | None, Sequence[ServerConnection]]:
        if carrying is not None:
            check_name(carrying)
        listener = self._listener()
        return listener, () if listener is None else listener.carrying(carrying)

    # --- time ---

    def skew_clock(self, seconds: float) -> None:
        """Skew the broker's clock, by which it stamps and ages messages.

        Args:
            seconds: the offset from the system's clock; negative: behind; 0: correct again.

        Raises:
            ValueError: it is not a number, or more than a hundred years.
        """
        check_number(seconds, "seconds")
        if not abs(seconds) <= _MAX_SKEW:
            raise ValueError(f"seconds must be within a hundred years: {seconds}")
        self._clock.skew = seconds
        self._plan.record("skew clock", 1)

    # --- streams ---

    def forget_streams(self) -> None:
        """Make the broker answer as if it had no streams and groups, and take no decisions.

        A single real server answers so for about two seconds after each start, until it has elected
        itself. Lasts over restarts, until `remember_streams`; open calls continue.
        """
        self._set_forgetful(forgetful=True)
        self._plan.record("forget streams", 1)

    def remember_streams(self) -> None:
        """Undo `forget_streams`."""
        self._set_forgetful(forgetful=False)

    # --- outcome ---

    @property
    def applied(self) -> Sequence[AppliedFault]:
        """The faults that were applied, in order."""
        return tuple(self._plan.applied)

    @property
    def pending(self) -> Sequence[Fault]:
        """The faults that were applied less often than planned, oldest first."""
        return tuple(Fault(planned, self._injector) for planned in self._plan.pending)

    def clear(self) -> None:
        """Cancel all faults: blocked messages continue, clock and streams are as usual again.

        `applied` keeps its records; messages that were dropped stay lost.
        """
        self._injector.clear()
        self._clock.skew = 0.0
        self._set_forgetful(forgetful=False)

    async def wait_applied(self, *, timeout: float = DEFAULT_WAIT) -> None:
        """Wait until nothing is pending. May be cancelled at any time.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: a fault still is; the error says which.
            RuntimeError: a condition raised.
        """
        check_number(timeout, "timeout")
        try:
            async with asyncio.timeout(timeout):
                while not self._plan.broken and self._plan.pending:
                    await self._injector.changed.wait()
        except TimeoutError as error:
            raise TimeoutError(self._description()) from error
        if self._plan.broken:
            raise RuntimeError(self._description()) from self._plan.broken[0].error

    def assert_all_applied(self) -> None:
        """Assert, at the end of a test, that every planned fault was applied.

        Raises:
            AssertionError: a fault was not, or its condition raised; the error says which.
        """
        if self._plan.pending or self._plan.broken:
            cause = self._plan.broken[0].error if self._plan.broken else None
            raise AssertionError(self._description()) from cause

    def _description(self) -> str:
        faults = [*self._plan.pending, *self._plan.broken]
        return "; ".join(["not every fault was applied", *map(str, faults)])

    def __repr__(self) -> str:
        return f"<Faults {len(self._plan.applied)} applied, {len(self._plan.pending)} pending>"

    def _add(self, rule: Rule) -> Fault:
        return Fault(self._plan.add(rule), self._injector)
