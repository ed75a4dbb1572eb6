"""Waiting in tests: for a condition, never for time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until `condition` holds; fail if it never does."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    assert condition(), "the condition that the test waits for never held"
