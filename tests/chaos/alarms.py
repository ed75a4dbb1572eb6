"""Takes what nobody else does: errors that go to the event loop or to the log of the client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

CLIENT_LOG: Final = "liftbridge_aio"


class _Listener(logging.Handler):
    """Notes each error in a log."""

    def __init__(self, failures: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.name} logged: {record.getMessage()}"
        self._failures.append(f"{text}: {error!r}" if error else text)


@contextmanager
def listening(failures: list[str]) -> Iterator[None]:
    """Note such errors, in the running loop, until the context is left.

    Less is not logged meanwhile: pytest keeps what is, with the frames of errors and all in them.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    log, listener = logging.getLogger(CLIENT_LOG), _Listener(failures)
    level = log.level

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failures.append(f"the loop was told: {context['message']}: {context.get('exception')!r}")

    loop.set_exception_handler(handle)
    log.addHandler(listener)
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.setLevel(level)
        loop.set_exception_handler(before)
