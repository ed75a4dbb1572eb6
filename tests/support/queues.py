"""Arguments of `Client.queue` for tests that keep settings of all kinds in one dict."""

from __future__ import annotations

from typing import Any, Final

from liftbridge_aio.queue import QueueOptions
from liftbridge_aio.queue.policies import RetryDelay

IDENTITY: Final = {"stream", "group", "durable", "client_id", "ephemeral"}


def after(seconds: float) -> RetryDelay:
    """Delay each attempt by the same time."""
    return lambda _attempt, _error: seconds


def queue_arguments(**settings: Any) -> dict[str, Any]:
    """Settings that do not say which queue it is become one `QueueOptions`."""
    arguments = {name: value for name, value in settings.items() if name in IDENTITY}
    options = {name: value for name, value in settings.items() if name not in IDENTITY}
    return {**arguments, "options": QueueOptions(**options)}
