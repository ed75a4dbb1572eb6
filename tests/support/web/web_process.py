"""The services of the guide, each as a process of its own under the server that it is run with."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from support.markdown import ROOT, blocks
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

GUIDE: Final = ROOT / "docs" / "web.md"
BOUND: Final = 20.0
"""Seconds in which a service has started, or ended."""

UVICORN: Final = ("-m", "uvicorn", "service:app", "--timeout-graceful-shutdown", "2", "--port")
AIOHTTP: Final = ("-m", "aiohttp.web", "-H", "127.0.0.1", "service:make_app", "-P")
COMMANDS: Final = {"fastapi": UVICORN, "starlette": UVICORN, "aiohttp": AIOHTTP}
ENDS_WITH: Final = {"fastapi": -signal.SIGTERM, "starlette": -signal.SIGTERM, "aiohttp": 0}
"""uvicorn dies by the signal once everything is in order."""


def code_of(setup: str, stream: str = "orders") -> str:
    """The code of the guide with this setup, for a stream of this name."""
    [block] = [block for block in blocks(GUIDE, "python") if block.setup == setup]
    return block.code.replace('"orders"', f'"{stream}"')


@dataclass(slots=True)
class WebProcess(ServerProcess):
    """A running service."""

    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tell_to_end(self) -> None:
        """Send SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    async def code(self) -> int:
        """Wait for the end, and return the exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, BOUND)


@asynccontextmanager
async def running(
    framework: str, servers: str, folder: Path, code: str
) -> AsyncIterator[WebProcess]:
    """Run a service, and yield it when it is ready."""
    (folder / "service.py").write_text(code)
    [port] = free_ports(1)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LIFTBRIDGE_")}
    process = WebProcess(
        (sys.executable, "-W", "error::ResourceWarning", *COMMANDS[framework], str(port)),
        folder,
        environment=kept | {"LIFTBRIDGE_SERVERS": servers, "PYTHONUNBUFFERED": "1"},
        port=port,
    )
    process.start()
    try:
        async with asyncio.timeout(BOUND), aiohttp.ClientSession() as http:
            while not await _is_ready(http, process.url):
                assert process.running, process.log
                await asyncio.sleep(0.02)
        yield process
    finally:
        process.kill()


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/health") as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False
