"""The base of the client's mixins: its parts, and default timeouts."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING

from liftbridge_aio.errors import ClientClosed, UsageError
from liftbridge_aio.options import ClientOptions, Duration, timer_seconds

if TYPE_CHECKING:
    from .parts import ClientParts


class ClientBase:
    """Base of the mixins that make up `Client`."""

    options: ClientOptions
    """Settings of the client."""

    _parts: ClientParts | None = None
    _closed: bool = False

    @property
    def _living(self) -> ClientParts:
        parts = self._parts
        if parts is None or self._closed:
            raise ClientClosed("the client is closed" if self._closed else "not connected yet")
        if parts.loop is not get_running_loop():
            raise UsageError(
                "a client can only be used in the event loop in which it was connected"
            )
        return parts

    def _seconds(self, timeout: Duration | None) -> float:
        return timer_seconds(self.options.call_timeout if timeout is None else timeout, "timeout")
