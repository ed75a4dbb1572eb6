"""A TCP proxy that breaks, slows down and damages connections on demand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable

from liftbridge_aio._core.arguments import check_flags, check_integer, check_number

from .connection import ProxiedConnection
from .damage import Allowance, Flips, Truncation
from .fault_plan import PlannedFault
from .faults import Direction, FaultKind
from .forwarding_proxy import ForwardingProxy
from .frames import Part


class FaultProxy(ForwardingProxy):
    """A TCP proxy in front of one address, for tests.

    Faults hold for the connections that are open and for those to come, until `heal`. All chance
    comes from the seed: the nth connection that carries the same bytes after the same orders is
    damaged in the same way. What was done is recorded in `faults`.

    Memory stays bounded: where one end does not read, the other end is not read either. The
    proxy may be entered in one task and left in another.
    """

    # --- faults that end connections ---

    async def cut(self) -> None:
        """Close every connection now, as when the programs at the far ends exit.

        Each end sees the end of the stream, or a reset if it had bytes under way. New connections
        are accepted. Returns when the old ones are gone; cancelling abandons the wait only.
        """
        self._record(FaultKind.CUT)
        await self._end_all(ProxiedConnection.abort)

    async def reset(self) -> None:
        """Reset every connection now: both ends see `ConnectionResetError`.

        New connections are accepted. Returns when the old ones are gone; cancelling abandons the
        wait only.
        """
        self._record(FaultKind.RESET)
        await self._end_all(ProxiedConnection.reset)

    async def _end_all(self, end: Callable[[ProxiedConnection], None]) -> None:
        await self._end(list(self._connections), end)

    async def refuse(self) -> None:
        """Refuse new connections from now on; open ones stay. It does so when cancelled, too."""
        self._record(FaultKind.REFUSE)
        self._stop_listening()
        await asyncio.sleep(0)  # some loops free the port in their next round

    async def accept(self) -> None:
        """Accept connections again, on the same port. Cancelling it may leave them refused.

        Raises:
            OSError: somebody else took the port meanwhile.
        """
        self._record(FaultKind.ACCEPT)
        if self._server is None and not self._closing.is_set() and self._connecting is not None:
            await self._listen()

    # --- faults that hold until they are undone ---

    def freeze(self, direction: Direction = Direction.BOTH) -> None:
        """Forward nothing more, but keep every connection open: they are half open.

        New connections are accepted, and nothing comes through them either. Nothing is lost: what
        is sent meanwhile waits, most of it at the sender.
        """
        self._change(FaultKind.FREEZE, direction, frozen=True)

    def thaw(self, direction: Direction = Direction.BOTH) -> None:
        """Forward again; what was sent meanwhile arrives late."""
        self._change(FaultKind.THAW, direction, frozen=False)

    def swallow(self, direction: Direction = Direction.BOTH) -> None:
        """Take bytes and throw them away: half open, as when the other end lost its power.

        Connections stay open, new ones too, and whoever sends meets no resistance. A connection
        that has lost anything in this way stays dead, and `heal` resets it.
        """
        self._change(FaultKind.SWALLOW, direction, swallowing=True)

    def delay(
        self, seconds: float, jitter: float = 0.0, direction: Direction = Direction.BOTH
    ) -> None:
        """Let every byte take so long, in each direction; order and throughput stay.

        Args:
            seconds: how long at least; 0 for no delay.
            jitter: how many seconds more at most, by chance.
            direction: which way.

        Raises:
            ValueError: a negative or endless time.
        """
        for value in (seconds, jitter):
            check_number(value, "a delay")
            if not 0 <= value < math.inf:
                text = f"a delay is 0 or more seconds, not {value}"
                raise ValueError(text)
        detail = f"{seconds:g} to {seconds + jitter:g} s"
        self._change(FaultKind.DELAY, direction, detail, delay=seconds, jitter=jitter)

    def throttle(
        self, bytes_per_second: float | None, direction: Direction = Direction.BOTH
    ) -> None:
        """Limit what each connection forwards in each direction; None for no limit.

        Raises:
            ValueError: the limit is not positive, or endless.
        """
        if bytes_per_second is not None:
            check_number(bytes_per_second, "a limit")
        if bytes_per_second is not None and not 0 < bytes_per_second < math.inf:
            text = f"a limit is a positive number of bytes per second, not {bytes_per_second}"
            raise ValueError(text)
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

        Which byte of the frame is the first one that is missing, chance decides.

        Args:
            direction: which way the frame goes.
            frames: types of frames (`FrameType`) that it may be; None for any.
            times: how many connections to end, whichever come first; None for all of them.
            reset: end by a reset instead of the end of the stream. What is on its way in the
                sockets may then be lost too.

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

        Without TLS nothing protects a message from this: a bit that flips within a value is
        delivered, as HTTP/2, gRPC and Liftbridge's messages carry no checksum. (TCP has one that is
        weak, which is how such bits pass in real networks.)

        Args:
            direction: which way the bytes go.
            times: how many bits, on whichever connections; None for no limit.
            rate: the chance of each byte to be hit.
            frames: types of frames (`FrameType`) to hit; None for any byte. With types given, the
                first four bytes of a frame (its length and type) are spared.
            parts: parts of frames to hit; None for all.

        Raises:
            ValueError: `times` is not positive, or `rate` is not above 0 and up to 1.
        """
        check_number(rate, "a rate")
        if not 0 < rate <= 1:
            text = f"a rate is above 0 and up to 1, not {rate}"
            raise ValueError(text)
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
        """Undo every fault that holds: afterwards the proxy forwards all it gets, at once.

        What was frozen or on its way arrives. Connections that lost bytes are reset, as by a
        machine that comes back and knows nothing of them. Damage that was ordered and not done is
        called off. Cancelling abandons the wait for those resets, and perhaps `accept`.

        Raises:
            OSError: it was refusing, and somebody else took the port meanwhile.
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
        """Do what a plan says, fault by fault, each healed before the next one.

        It ends healed, also when cancelled.

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
                text = f"{planned.kind} is nothing to plan"
                raise ValueError(text)


def _allowance(times: int | None) -> Allowance:
    if times is not None:
        check_integer(times, "times")
    if times is not None and times < 1:
        text = f"times must be positive, not {times}"
        raise ValueError(text)
    return Allowance(times)
