"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from support.built_pages import BROWSERS

BOUND: Final = 30.0
_LISTENS: Final = re.compile(r"DevTools listening on (ws://\S+)")


class NoChromium(Exception):
    """There is no Chromium on this machine."""


class Tab:
    """A page in the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket = socket
        self._session = session
        self._ids = itertools.count(1000)
        self.errors: list[str] = []
        """What scripts of the page have raised or logged as errors."""

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params, "sessionId": self._session}
        await self._socket.send_json(message)
        async with asyncio.timeout(BOUND):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("method") == "Runtime.exceptionThrown":
                    self.errors.append(json.dumps(answer["params"]))
                if answer.get("method") == "Log.entryAdded":
                    self.errors.append(json.dumps(answer["params"]["entry"]))
                if answer.get("id") == number:
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result

    async def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        found = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(BOUND):
            while not await self.value(f"Boolean({expression})"):  # noqa: ASYNC110 - asked over a socket
                await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the page a size, and a colour scheme."""
        phone = width < 600
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path) -> None:
        """Take a picture of what is seen."""
        found = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))


@asynccontextmanager
async def open_tab(url: str, folder: Path) -> AsyncIterator[Tab]:
    """Open a page in a browser of its own, which ends with the block.

    Raises:
        NoChromium: There is no browser.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise NoChromium("install Chromium, such as by `apt install chromium`")
    process = await asyncio.create_subprocess_exec(
        *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--disable-dev-shm-usage", "--no-proxy-server", f"--user-data-dir={folder}"),
        "--remote-debugging-port=0",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(BOUND):
            while not (found := _LISTENS.search((await process.stderr.readline()).decode())):
                assert process.returncode is None, "the browser ended"
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(found[1], max_msg_size=0) as socket,
        ):
            tab = await _attach(socket, url)
            yield tab
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _attach(socket: aiohttp.ClientWebSocketResponse, url: str) -> Tab:
    async def call(number: int, method: str, **params: Any) -> dict[str, Any]:
        await socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(BOUND):
            while (answer := await socket.receive_json()).get("id") != number:
                pass
        result: dict[str, Any] = answer["result"]
        return result

    target = await call(1, "Target.createTarget", url="about:blank")
    attached = await call(2, "Target.attachToTarget", targetId=target["targetId"], flatten=True)
    tab = Tab(socket, attached["sessionId"])
    for domain in ("Runtime", "Log", "Page"):
        await tab.send(f"{domain}.enable")
    await tab.send("Page.navigate", url=url)
    return tab
