"""An event loop in a thread of its own, for tests whose own thread is blocked by Spark."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

BOUND: Final = 30.0
"""Seconds after which a call has failed."""


class Closing(ABC):
    """What is closed at the end of its block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End it, and what it runs."""


class LoopThread(Closing):
    """Runs coroutines in the event loop of its thread, one call at a time or many."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = BOUND) -> T:
        """Run it to its end and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND)
        self._loop.close()
