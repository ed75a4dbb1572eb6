"""Applies planned faults to messages: waits and raises."""

from __future__ import annotations

import asyncio
from typing import Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from .fault_plan import ConditionFailed, FaultPlan, Place, PlannedFault, RpcName


class ChangeSignal:
    """Wakes all tasks that wait for a change."""

    def __init__(self) -> None:
        """Create a signal that has not been notified."""
        self._event: asyncio.Event | None = None

    def notify(self) -> None:
        """Wake all tasks that wait now."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next change. May be cancelled at any time."""
        if self._event is None:
            self._event = asyncio.Event()
        await self._event.wait()


class FaultInjector:
    """Applies one plan to one broker, over all of the broker's restarts."""

    def __init__(self) -> None:
        """Create a fault injector without faults."""
        self.plan = FaultPlan()
        self.changed = ChangeSignal()

    def cancel(self, fault: PlannedFault) -> None:
        """Cancel a fault; messages that it holds back continue."""
        self.plan.cancel(fault)
        self.changed.notify()

    def clear(self) -> None:
        """Cancel all faults; messages that they hold back continue."""
        self.plan.clear()
        self.changed.notify()

    def refuses_connection(self) -> bool:
        """Return True if a connection that is made now must be dropped."""
        if not self.plan.has_faults or self.plan.decide(None, "connection") is None:
            return False
        self.changed.notify()
        return True

    async def apply(self, rpc: RpcName, at: Place, request: Any, reply: Any) -> int:
        """Apply to a message the fault that is planned for it, if any.

        May be cancelled at any time.

        Args:
            rpc: the procedure of its call.
            at: the place of the message in the call.
            request: the request of the call, None where there are many.
            reply: the reply, None for a request or a refusal.

        Returns:
            The number of times to forward the message: 0 if it is dropped.

        Raises:
            GRPCError: the call fails here.
        """
        try:
            fault = self.plan.decide(rpc, at, request, reply)
        except ConditionFailed as failed:
            self.changed.notify()
            raise GRPCError(Status.UNKNOWN, str(failed)) from failed
        if fault is None:
            return 1
        self.changed.notify()
        rule = fault.rule
        match rule.kind:
            case "fail":
                raise GRPCError(Status[rule.code], rule.text)
            case "drop":
                return 0
            case "duplicate":
                return 2
            case "delay":
                await self._hold(fault, rule.seconds)
            case _:
                await self._hold(fault, None)
        return 1

    async def _hold(self, fault: PlannedFault, seconds: float | None) -> None:
        times_cleared = self.plan.times_cleared
        try:
            async with asyncio.timeout(seconds):
                while not fault.is_over and self.plan.times_cleared == times_cleared:
                    await self.changed.wait()
        except TimeoutError:
            return  # the delay is over
