"""Has the faults of a plan befall messages: the part that waits and raises."""

from __future__ import annotations

import asyncio
from typing import Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from .fault_plan import ConditionFailed, FaultPlan, Place, PlannedFault, RpcName


class Change:
    """Wakes those who wait for something to change."""

    def __init__(self) -> None:
        """Nothing has changed yet."""
        self._event: asyncio.Event | None = None

    def happened(self) -> None:
        """Wake everybody who waits now."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next change. Cancellation leaves nothing behind."""
        if self._event is None:
            self._event = asyncio.Event()
        await self._event.wait()


class FaultInjector:
    """A plan at work in one broker. It lives as long as the broker does, over its restarts."""

    def __init__(self) -> None:
        """Begin with nothing planned."""
        self.plan = FaultPlan()
        self.changed = Change()

    def cancel(self, fault: PlannedFault) -> None:
        """End a fault; what it holds back goes on."""
        self.plan.cancel(fault)
        self.changed.happened()

    def clear(self) -> None:
        """End all faults; what they hold back goes on."""
        self.plan.clear()
        self.changed.happened()

    def refuses_link(self) -> bool:
        """Whether a connection that is made now is to be dropped."""
        if not self.plan.armed or self.plan.decide(None, "connection") is None:
            return False
        self.changed.happened()
        return True

    async def befall(self, rpc: RpcName, at: Place, request: Any, reply: Any) -> int:
        """Let a message suffer what is planned for it.

        May be cancelled at any time.

        Args:
            rpc: the procedure of its call.
            at: which way the message goes.
            request: the request of the call, None where there are many.
            reply: the reply, None for a request or a refusal.

        Returns:
            How often the message is passed on: 0 if it is dropped.

        Raises:
            GRPCError: the call fails here.
        """
        try:
            fault = self.plan.decide(rpc, at, request, reply)
        except ConditionFailed as failed:
            self.changed.happened()
            raise GRPCError(Status.UNKNOWN, str(failed)) from failed
        if fault is None:
            return 1
        self.changed.happened()
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
        clearances = self.plan.clearances
        try:
            async with asyncio.timeout(seconds):
                while not fault.is_over and self.plan.clearances == clearances:
                    await self.changed.wait()
        except TimeoutError:
            return  # the delay is over
