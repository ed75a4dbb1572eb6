"""Programs that run in a process of their own."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

BOUND: Final = 30.0


async def succeeds(program: str, *arguments: str) -> bytes:
    """Run a program in Python with warnings as errors; return what it writes to stdout."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", program, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND):
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    return out
