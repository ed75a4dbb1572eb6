"""Lists of deliveries that are answered together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

from .delivery import Delivery
from .dispatcher import Dispatcher

DeliveryT = TypeVar("DeliveryT", bound=Delivery)


class DeliveryBatch(list[DeliveryT]):
    """Deliveries in the order in which the queue delivered them.

    As a context manager it acks its unanswered deliveries when the block ends, and nacks them if
    the block raises, as a block of one `Delivery` does.
    """

    async def __aenter__(self) -> Self:
        """Return the batch."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Ack all, or nack all if the block raised an exception."""
        outcomes = [await each.__aexit__(exc_type, exc, traceback) for each in self]
        return any(outcomes)


class DeliveryBatches(Generic[DeliveryT]):
    """An iterator of `Queue.batches`.

    Args:
        source: provides the first delivery of a list.
        dispatcher: provides the others.
        most: the maximum of deliveries in a list.
        wait: seconds to wait for more than one.
    """

    def __init__(
        self, source: AsyncIterator[DeliveryT], dispatcher: Dispatcher, most: int, wait: float
    ) -> None:
        self._source = source
        self._dispatcher = dispatcher
        self._most = most
        self._wait = wait
        self._batch: DeliveryBatch[DeliveryT] = DeliveryBatch()
        """Deliveries of the next list so far; kept if the call is cancelled."""

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> DeliveryBatch[DeliveryT]:
        """Return the next list. Cancelling loses none: the next call returns it.

        Raises:
            StopAsyncIteration: the queue was closed.
            LiftbridgeError: as for iterating over the queue.
        """
        if not self._batch:
            self._batch.append(await anext(self._source))
        if self._wait:
            try:
                async with asyncio.timeout(self._wait):
                    await self._fill()
            except TimeoutError:
                pass  # a shorter list
        else:
            self._take()
        batch, self._batch = self._batch, DeliveryBatch()
        return batch

    async def _fill(self) -> None:
        """Take deliveries until there are enough, or no more may be in flight."""
        dispatcher = self._dispatcher
        while not (self._take() or dispatcher.is_full or dispatcher.is_finished):
            await dispatcher.waiters.wait()

    def _take(self) -> bool:
        """Take the deliveries that are ready; return True if the list is full."""
        while len(self._batch) < self._most:
            delivery = self._dispatcher.next_ready()
            if delivery is None:
                return False
            self._batch.append(cast("DeliveryT", delivery))
        return True
