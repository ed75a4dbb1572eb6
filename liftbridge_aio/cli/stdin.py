"""Lines of stdin, without a thread and without making the terminal non-blocking."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Final

_CHUNK: Final = 65_536


async def stdin_lines() -> AsyncIterator[bytes]:
    r"""Yield the lines of stdin without their `\n`; the last one needs none.

    Cancelling ends the wait at once, also where nothing ever comes.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while True:
        await _wait_readable(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except (PermissionError, NotImplementedError):
        return  # a file is always readable; elsewhere a read that blocks is all there is
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
