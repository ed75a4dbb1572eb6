"""A `CancelledError` that nobody asked this task for is a failure of the callback that raised it.

A callback may await a future that somebody else cancels, or a call of a client that is shut down:
a `CancelledError` comes out of it, and its task was asked nothing. To let it pass would end the
task that calls back, in silence. So every place that calls a user's code converts it, and lets
pass a cancellation that was requested (`asyncio.Task.cancelling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from liftbridge_aio.errors import CallbackCancelled

CALLBACK_ERRORS: Final = (Exception, asyncio.CancelledError)
"""What a plain function may fail with: a request to cancel arrives only where a task awaits."""


def is_requested() -> bool:
    """Return True if the current task was asked to cancel itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def failure_of(error: BaseException, what: str) -> Exception:
    """Return the failure that an error of a callback is; a foreign cancellation is one.

    Args:
        error: what the callback raised.
        what: names the callback: "the handler", "on_revoked".

    Raises:
        CancelledError: the task was asked to cancel itself.
        BaseException: it is no failure either, such as `KeyboardInterrupt`.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError) and not is_requested():
        failure = CallbackCancelled(f"{what} was cancelled by something other than its caller")
        failure.__cause__ = error
        return failure
    raise error


@contextmanager
def foreign_cancellation_fails(what: str) -> Iterator[None]:
    """Raise `CallbackCancelled` for a `CancelledError` that nobody asked this task for."""
    try:
        yield
    except asyncio.CancelledError as error:
        raise failure_of(error, what) from error
