"""A TCP proxy that breaks, slows down and damages connections on demand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable

from liftbridge_aio._core.arguments import check_flags, check_integer, check_number
from liftbridge_aio._core.public_face import as_one_class

from .connection import ProxiedConnection
from .damage import Allowance, Flips, Truncation
from .fault_plan import PlannedFault
from .faults import Direction, FaultKind
from .forwarding_proxy import ForwardingProxy
from .frames import Part


@as_one_class
class FaultProxy(ForwardingProxy):
    """A TCP proxy in front of one address, for tests.

    Faults apply to open and new connections until `heal`. All random choices derive from the seed:
    given the same orders and bytes, the nth connection is damaged in the same way. Every fault is
    recorded in `faults`.

    Memory is bounded: the proxy stops reading from one end while the other end does not read. The
    proxy may be entered in one task and exited in another.
    """

    # --- faults that end connections ---

    async def cut(self) -> None:
        """Close every connection now, as if the peers had exited.

        Each end sees the end of the stream, or a reset if it had bytes in flight. New connections
        are accepted. Returns when the old ones are closed; cancellation ends only the wait.
        """
        self._record(FaultKind.CUT)
        await self._end_all(ProxiedConnection.abort)

    async def reset(self) -> None:
        """Reset every connection now: both ends see `ConnectionResetError`.

        New connections are accepted. Returns when the old ones are closed; cancellation ends only
        the wait.
        """
        self._record(FaultKind.RESET)
        await self._end_all(ProxiedConnection.reset)

    async def _end_all(self, end: Callable[[ProxiedConnection], None]) -> None:
        await self._end(list(self._connections), end)

    async def refuse(self) -> None:
        """Refuse new connections, also if cancelled; open connections stay."""
        self._record(FaultKind.REFUSE)
        self._stop_listening()
        await asyncio.sleep(0)  # some loops release the port in their next iteration

    async def accept(self) -> None:
        """Accept connections again on the same port.

        If cancelled, connections may remain refused.

        Raises:
            OSError: the port has been taken by another process.
        """
        self._record(FaultKind.ACCEPT)
        if self._server is None and not self._closing.is_set() and self._connecting is not None:
            await self._listen()

    # --- faults that last until they are undone ---

    def freeze(self, direction: Direction = Direction.BOTH) -> None:
        """Stop forwarding but keep every connection open, as half-open connections.

        New connections are accepted and frozen too. Nothing is lost: bytes sent meanwhile are held,
        most of them at the sender.
        """
        self._change(FaultKind.FREEZE, direction, frozen=True)

    def thaw(self, direction: Direction = Direction.BOTH) -> None:
        """Resume forwarding; bytes sent meanwhile arrive late."""
        self._change(FaultKind.THAW, direction, frozen=False)

    def swallow(self, direction: Direction = Direction.BOTH) -> None:
        """Read bytes and discard them, as if the other end had lost power.

        Open and new connections stay open, and senders see no back-pressure. A connection that has
        lost bytes stays dead, and `heal` resets it.
        """
        self._change(FaultKind.SWALLOW, direction, swallowing=True)

    def delay(
        self, seconds: float, jitter: float = 0.0, direction: Direction = Direction.BOTH
    ) -> None:
        """Delay every byte; order and throughput are unchanged.

        Args:
            seconds: the minimum delay; 0 for no delay.
            jitter: the maximum of a random additional delay in seconds.
            direction: the direction; None for both.

        Raises:
            ValueError: a time is negative or not finite.
        """
        for value in (seconds, jitter):
            check_number(value, "a delay")
            if not 0 <= value < math.inf:
                raise ValueError(
                    f"a delay must be a finite number of seconds, at least 0, not {value}"
                )
        detail = f"{seconds:g} to {seconds + jitter:g} s"
        self._change(FaultKind.DELAY, direction, detail, delay=seconds, jitter=jitter)

    def throttle(
        self, bytes_per_second: float | None, direction: Direction = Direction.BOTH
    ) -> None:
        """Limit the throughput of each connection per direction; None for no limit.

        Raises:
            ValueError: the limit is not positive or not finite.
        """
        if bytes_per_second is not None:
            check_number(bytes_per_second, "a limit")
        if bytes_per_second is not None and not 0 < bytes_per_second < math.inf:
            raise ValueError(f"the limit must be positive bytes per second, not {bytes_per_second}")
        detail = "no limit" if bytes_per_second is None else f"{bytes_per_second:g} bytes/s"
        self._change(FaultKind.THROTTLE, direction, detail, bytes_per_second=bytes_per_second)

    def _change(
        self, kind: FaultKind, direction: Direction, detail: str = "", **values: float | None
    ) -> None:
        self._record(kind, direction, detail)
        for each in direction:
            for name, value in values.items():
                setattr(self._conditions[each], name, value)
        self._update()

    def _update(self) -> None:
        for connection in list(self._connections):
            connection.update()

    # --- damage ---

    def truncate(
        self,
        direction: Direction,
        *,
        frames: Collection[int] | None = None,
        times: int | None = 1,
        reset: bool = False,
    ) -> None:
        """End a connection in the middle of the next HTTP/2 frame that begins.

        The first missing byte of the frame is chosen at random.

        Args:
            direction: the direction of the frame.
            frames: types of frames (`FrameType`) to truncate; None for any.
            times: the number of connections to end, in order of occurrence; None for all.
            reset: True to end them with a reset instead of the end of the stream. Bytes in the
                socket buffers may then be lost too.

        Raises:
            ValueError: `times` is not positive.
        """
        check_flags(reset=reset)
        chosen = None if frames is None else frozenset(frames)
        order = Truncation(_allowance(times), reset, chosen)
        self._order(FaultKind.TRUNCATE, direction, order)

    def flip(
        self,
        direction: Direction,
        *,
        times: int | None = 1,
        rate: float = 1 / 16,
        frames: Collection[int] | None = None,
        parts: Collection[Part] | None = None,
    ) -> None:
        """Flip bits at random.

        Without TLS nothing protects a message from this: a bit flipped within a value is delivered,
        because HTTP/2, gRPC and Liftbridge's messages carry no checksum. (The checksum of TCP is
        weak, which is how such errors pass in real networks.)

        Args:
            direction: the direction of the bytes.
            times: the number of bits over all connections; None for no limit.
            rate: the probability that a byte is damaged.
            frames: types of frames (`FrameType`) to damage; None for any byte. With types given,
                the first four bytes of a frame (its length and type) are spared.
            parts: parts of frames to damage; None for all.

        Raises:
            ValueError: `times` is not positive, or `rate` is not above 0 and up to 1.
        """
        check_number(rate, "a rate")
        if not 0 < rate <= 1:
            raise ValueError(f"the rate must be above 0 and at most 1, not {rate}")
        chosen = None if frames is None else frozenset(frames)
        wanted = None if parts is None else frozenset(parts)
        self._order(FaultKind.FLIP, direction, Flips(_allowance(times), rate, chosen, wanted))

    def _order(self, kind: FaultKind, directions: Direction, order: Flips | Truncation) -> None:
        self._record(kind, directions)
        self._orders.give(directions, order)
        for connection in self._connections:
            for direction, pipe in connection.pipes.items():
                self._orders.hand_on_last(pipe.damager, connection.number, direction)

    # --- the end of faults ---

    async def heal(self) -> None:
        """Undo every fault, so that the proxy forwards all bytes without delay.

        Frozen and delayed bytes arrive. Connections that lost bytes are reset, as by a machine that
        has restarted. Pending damage orders are cancelled. Cancellation ends the wait for the
        resets and may leave new connections refused.

        Raises:
            OSError: it was refusing, and the port has been taken by another process.
        """
        self._record(FaultKind.HEAL)
        for conditions in self._conditions.values():
            conditions.heal()
        self._orders.call_off()
        lost = [each for each in self._connections if each.lost_bytes]
        self._update()
        await self._end(lost, ProxiedConnection.reset)
        if self._server is None:
            await self.accept()

    async def play(self, plan: Iterable[PlannedFault]) -> None:
        """Execute a plan, healing each fault before the next one.

        All faults are healed at the end, also if cancelled.

        Raises:
            OSError: see `heal`.
        """
        try:
            for planned in plan:
                await self._begin(planned)
                await asyncio.sleep(planned.lasts)
                await self.heal()
                await asyncio.sleep(planned.pause)
        finally:
            await self.heal()

    async def _begin(self, planned: PlannedFault) -> None:
        match planned.kind:
            case FaultKind.CUT:
                await self.cut()
            case FaultKind.RESET:
                await self.reset()
            case FaultKind.REFUSE:
                await self.refuse()
                await self.cut()
            case FaultKind.FREEZE:
                self.freeze(planned.direction)
            case FaultKind.SWALLOW:
                self.swallow(planned.direction)
            case FaultKind.DELAY:
                self.delay(planned.amount, planned.amount / 2, planned.direction)
            case FaultKind.THROTTLE:
                self.throttle(planned.amount, planned.direction)
            case FaultKind.TRUNCATE:
                self.truncate(planned.direction)
            case FaultKind.FLIP:
                self.flip(planned.direction)
            case _:
                raise ValueError(f"{planned.kind} cannot be planned")


def _allowance(times: int | None) -> Allowance:
    if times is not None:
        check_integer(times, "times")
    if times is not None and times < 1:
        raise ValueError(f"times must be positive, not {times}")
    return Allowance(times)
