"""A parser of event streams by the WHATWG's rules, and a minimal browser."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import aiohttp

from liftbridge_aio import Client

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class Received(NamedTuple):
    """An event as a page gets it."""

    type: str
    data: str
    last_event_id: str


class EventStreamParser:
    """Interprets an event stream (HTML standard, 9.2.6), in pieces of any size."""

    def __init__(self, last_event_id: str = "") -> None:
        self.last_event_id = last_event_id
        self.reconnection_time: int | None = None
        self.comments: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = False
        self._rest = ""
        self._data = ""
        self._type = ""
        self._id = last_event_id

    def feed(self, data: bytes) -> list[Received]:
        text = self._decoder.decode(data)
        if text and not self._begun:
            self._begun = True
            text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
        text = self._rest + text
        held = text.endswith("\r")  # a line feed may follow
        *lines, self._rest = _LINE_END.split(text[:-1] if held else text)
        self._rest += "\r" * held
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: str) -> Received | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            self.comments.append(value)
        elif name == "event":
            self._type = value
        elif name == "data":
            self._data += value + "\n"
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.reconnection_time = int(value)
        return None

    def _dispatch(self) -> Received | None:
        self.last_event_id = self._id
        data, self._data = self._data, ""
        kind, self._type = self._type, ""
        if not data:
            return None
        return Received(kind or "message", data.removesuffix("\n"), self.last_event_id)


class Browser:
    """One connection of an EventSource."""

    def __init__(self, response: aiohttp.ClientResponse, last_event_id: str) -> None:
        self.response = response
        self.status = response.status
        self.parser = EventStreamParser(last_event_id)
        self._events: deque[Received] = deque()

    @property
    def last_event_id(self) -> str:
        return self.parser.last_event_id

    def __aiter__(self) -> Browser:
        return self

    async def __anext__(self) -> Received:
        while not self._events:
            if not await self.read():
                raise StopAsyncIteration
        return self._events.popleft()

    async def read(self) -> bytes:
        """Take in what comes next; nothing at the end of the response."""
        data = await self.response.content.readany()
        self._events.extend(self.parser.feed(data))
        return data

    async def take(self, count: int) -> list[Received]:
        return [await anext(self) for _ in range(count)]


@asynccontextmanager
async def browse(url: str, last_event_id: str = "") -> AsyncIterator[Browser]:
    """Open an event stream as a browser does; leaving closes the connection."""
    headers = {"Accept": "text/event-stream"}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(url, headers=headers) as response,
    ):
        yield Browser(response, last_event_id)


async def log_of(client: Client, stream: str) -> str:
    """Return the end of each event id, which names the log."""
    created = (await client.fetch_metadata([stream])).streams[stream].creation_timestamp
    assert created
    return f"@{created:x}"
