"""What the faces of the client share: the parts behind them, and how long calls may take."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING

from .errors import ClientClosed, UsageError
from .options import ClientOptions, Duration, timer_seconds

if TYPE_CHECKING:
    from .client_parts import ClientParts


class ClientFace:
    """Base of the groups of calls that make up `Client`."""

    options: ClientOptions
    """How the client behaves."""

    _parts: ClientParts | None = None
    _closed: bool = False

    @property
    def _living(self) -> ClientParts:
        parts = self._parts
        if parts is None or self._closed:
            raise ClientClosed("the client is closed" if self._closed else "not connected yet")
        if parts.loop is not get_running_loop():
            raise UsageError("a client belongs to the event loop in which it was connected")
        return parts

    def _seconds(self, timeout: Duration | None) -> float:
        return timer_seconds(self.options.call_timeout if timeout is None else timeout, "timeout")
