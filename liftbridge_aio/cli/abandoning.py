"""Acks that nobody waits for any more, because the command ends early."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


def abandon(futures: Iterable[asyncio.Future[Any]]) -> None:
    """Take back what is not written yet, and look at what failed, lest asyncio complain."""
    for future in futures:
        if not future.cancel() and not future.cancelled():
            future.exception()
