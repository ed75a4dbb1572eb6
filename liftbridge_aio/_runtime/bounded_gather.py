"""Awaits many calls with bounded concurrency."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from liftbridge_aio.errors import LiftbridgeError

T = TypeVar("T")
R = TypeVar("R")


async def bounded_gather(
    items: Iterable[T],
    work: Callable[[T], Awaitable[R]],
    *,
    limit: int = 16,
    finish_all: bool = True,
) -> list[R]:
    """Await `work` for each item, and return the results in the order of the items.

    Cancelling cancels all of them.

    Args:
        items: what to call `work` with.
        work: is called once for each item.
        limit: the number of concurrent calls.
        finish_all: let the others run to their end if one fails; False cancels them.

    Raises:
        LiftbridgeError: the first error.
    """
    everything = list(items)
    if len(everything) == 1:
        return [await work(everything[0])]
    results: dict[int, R] = {}
    errors: list[LiftbridgeError] = []
    limiter = anyio.CapacityLimiter(limit)

    async def one(number: int, item: T) -> None:
        async with limiter:
            try:
                results[number] = await work(item)
            except LiftbridgeError as error:
                errors.append(error)
                if not finish_all:
                    group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for number, item in enumerate(everything):
            group.start_soon(one, number, item)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(everything))]
