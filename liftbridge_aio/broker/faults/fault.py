"""A planned fault, which a test can await and cancel."""

from __future__ import annotations

import asyncio
from typing import Final

from liftbridge_aio._core.arguments import check_integer, check_number

from .fault_injection import FaultInjector
from .fault_plan import PlannedFault

DEFAULT_WAIT: Final = 10.0
"""Seconds to wait for a fault, by default."""


class Fault:
    """A planned fault, as returned by the methods of `Faults`."""

    def __init__(self, planned: PlannedFault, injector: FaultInjector) -> None:
        """Wrap a planned fault."""
        self._planned = planned
        self._injector = injector

    @property
    def applied(self) -> int:
        """The number of times that it was applied so far."""
        return self._planned.applied

    @property
    def is_pending(self) -> bool:
        """True if it was applied less often than planned; False once it is cancelled."""
        return self._planned.is_pending

    def cancel(self) -> None:
        """Cancel it. A message that it delays continues immediately."""
        self._injector.cancel(self._planned)

    async def wait(self, times: int | None = None, *, timeout: float = DEFAULT_WAIT) -> None:
        """Wait until it was applied.

        May be cancelled at any time.

        Args:
            times: the number of applications to wait for; None: as planned, or 1 if planned without
                an end.
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it was not applied so often in time.
            RuntimeError: it was cancelled, or its condition raised.
        """
        if times is not None:
            check_integer(times, "times")
        check_number(timeout, "timeout")
        planned = self._planned
        wanted = times or planned.rule.times or 1
        try:
            async with asyncio.timeout(timeout):
                while planned.applied < wanted:
                    if planned.is_over:
                        raise RuntimeError(
                            f"the fault was cancelled or its condition raised: {planned}"
                        ) from planned.error
                    await self._injector.changed.wait()
        except TimeoutError as error:
            raise TimeoutError(
                f"not applied {wanted} times within {timeout} s: {planned}"
            ) from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._planned}>"


class Stall(Fault):
    """A fault that blocks calls until it is released."""

    def release(self) -> None:
        """Let the blocked calls continue, and block no others."""
        self.cancel()
