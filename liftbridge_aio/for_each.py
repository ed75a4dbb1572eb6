"""The same done with many things, some at a time, each to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import anyio

from .errors import LiftbridgeError

_AT_ONCE: Final = 16
"""How many calls are on their way at a time: enough to wait for none of them in vain."""

T = TypeVar("T")
R = TypeVar("R")


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Await `work` for each, and return what came out in their order.

    Those behind one that fails are done all the same. Cancelling cancels all of them.

    Raises:
        LiftbridgeError: the first error, if there was one.
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
