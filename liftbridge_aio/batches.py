"""A subscription read in lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Batches(Generic[T]):
    """An async iterator of lists that are never empty; made by `Subscription.batches`."""

    def __init__(
        self, take: Callable[[int, float], Awaitable[list[T]]], most: int, wait: float
    ) -> None:
        self._take = take
        self._most = most
        self._wait = wait

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> list[T]:
        """Return the next list, waiting for it if need be.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: an orderly end of the subscription.
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: any other end. Each error is raised once.
        """
        return await self._take(self._most, self._wait)
