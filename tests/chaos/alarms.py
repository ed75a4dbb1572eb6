"""Takes what nobody else does: errors that go to the event loop or to the log of the client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from chaos.load import Load

CLIENT_LOG: Final = "liftbridge_aio"


class _Listener(logging.Handler):
    """Makes a finding of each error in a log."""

    def __init__(self, load: Load) -> None:
        super().__init__(logging.ERROR)
        self._load = load

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.name} logged: {record.getMessage()}"
        self._load.find(f"{text}: {error!r}" if error else text, excusable=False)


@contextmanager
def listening(load: Load) -> Iterator[None]:
    """Make findings of such errors, in the running loop, until the context is left."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    log, listener = logging.getLogger(CLIENT_LOG), _Listener(load)

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        text = f"the event loop was told: {context['message']}: {context.get('exception')!r}"
        load.find(text, excusable=False)

    loop.set_exception_handler(handle)
    log.addHandler(listener)
    try:
        yield
    finally:
        log.removeHandler(listener)
        loop.set_exception_handler(before)
