"""The base of the client's mixins: its parts, and default timeouts."""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING

from liftbridge_aio._core.arguments import about
from liftbridge_aio._runtime.event_loop import forked
from liftbridge_aio.errors import ClientClosed, UsageError
from liftbridge_aio.options import ClientOptions, Duration, timer_seconds

if TYPE_CHECKING:
    from liftbridge_aio._subscribe.core.visibility import MakeVisibility
    from liftbridge_aio.transactions.reading import ReadCommitted

    from .parts import ClientParts


class ClientBase:
    """Base of the mixins that make up `Client`."""

    options: ClientOptions
    """Settings of the client."""

    _parts: ClientParts | None = None
    _closed: bool = False
    _forked: bool = False
    """True in a forked child of the process in which this was connected; set with `_closed`."""

    @property
    def _living(self) -> ClientParts:
        parts = self._parts
        self._check_not_closed()
        if parts is None:
            raise ClientClosed("not connected yet")
        if parts.loop is not get_running_loop():
            raise UsageError(
                "a client can only be used in the event loop in which it was connected"
            )
        return parts

    def _check_not_closed(self) -> None:
        if self._forked:
            error = ClientClosed(forked("the client"))
            error.hint = "connect a client of its own in each process"
            raise error
        if self._closed:
            raise ClientClosed("the client is closed")

    def _seconds(self, timeout: Duration | None) -> float:
        return timer_seconds(self.options.call_timeout if timeout is None else timeout, "timeout")

    def _visibility(
        self, committed: bool | ReadCommitted, stream: str | None
    ) -> MakeVisibility | None:
        """Return what makes the visibility of each partition; None if all of it is shown.

        Raises:
            WrongType: it is neither a flag nor a ReadCommitted.
        """
        if committed is False:
            return None
        from liftbridge_aio.transactions.reading import make_visibility  # noqa: PLC0415 - not before use

        with about(stream):
            return make_visibility(committed)
