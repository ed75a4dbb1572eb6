"""The protocol of a store of positions, as a subscription uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from liftbridge_aio.errors import LiftbridgeError

if TYPE_CHECKING:
    from .core.plan import ReadingPlan
    from .seekable_reader import SeekableReader


class PositionStore(Protocol):
    """Stores the positions of one subscription: as cursors, or with transactions."""

    async def set_starts(
        self,
        readers: Iterable[tuple[SeekableReader, Callable[[], int | None]]],
        timeout: float,
    ) -> None:
        """Set the start of each reader, given with a function that returns what is finished."""

    async def begin(self) -> None:
        """Begin to store positions."""

    async def check_target(self, plan: ReadingPlan) -> None:
        """Refuse a seek to where nothing can be stored."""

    def sought(self, stream: str, partition: int) -> None:
        """Note that the position of a partition may be lower from now on."""

    async def commit(self) -> None:
        """Store the positions now."""

    async def close(self, timeout: float) -> LiftbridgeError | None:
        """Store the positions a last time, and return the error if that failed."""

    def stop(self) -> None:
        """Store nothing more."""
