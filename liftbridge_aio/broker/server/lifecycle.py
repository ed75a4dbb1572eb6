"""Starting, stopping and restarting, as a broker and a cluster of brokers share them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifecycle(ABC):
    """The base of servers that can be started and stopped repeatedly, on the same ports."""

    @abstractmethod
    async def start(self) -> None:
        """Open the ports. Cancelling it leaves everything stopped."""

    @abstractmethod
    async def stop(self) -> None:
        """Close the ports; stored data is kept."""

    async def restart(self) -> None:
        """Stop and start again at once: clients see all connections break.

        Cancelling it leaves everything stopped, or stopping in the background.

        Raises:
            OSError: a port was taken in between.
        """
        await self.stop()
        await self.start()

    async def aclose(self) -> None:
        """Do the same as `stop`, cancellation included."""
        await self.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()
