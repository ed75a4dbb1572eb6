"""Awaits many calls with bounded concurrency, and lets all of them finish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import anyio

from liftbridge_aio.errors import LiftbridgeError

_AT_ONCE: Final = 16
"""The number of concurrent calls."""

T = TypeVar("T")
R = TypeVar("R")


async def bounded_gather(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Await `work` for each item, and return the results in the order of the items.

    The others run to their end if one fails. Cancelling cancels all of them.

    Raises:
        LiftbridgeError: the first error.
    """
    everything = list(items)
    if len(everything) == 1:
        return [await work(everything[0])]
    results: dict[int, R] = {}
    errors: list[LiftbridgeError] = []
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def one(number: int, item: T) -> None:
        async with limiter:
            try:
                results[number] = await work(item)
            except LiftbridgeError as error:
                errors.append(error)

    async with anyio.create_task_group() as group:
        for number, item in enumerate(everything):
            group.start_soon(one, number, item)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(everything))]
