"""How the driver asks the servers: patiently, with one connection, and with texts for Spark."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from liftbridge_aio.client import Client
from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    NotPartitionLeader,
    RequestTimeout,
)

from .connection import connection_to
from .options import ReadOptions
from .read_failures import read_failure

T = TypeVar("T")

_BETWEEN_TRIES: Final = 0.2
"""Seconds between two tries."""


def ask(options: ReadOptions, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask the servers, again and again for readTimeout seconds while they are away.

    Blocks the calling thread.

    Args:
        options: of the query.
        question: makes the coroutine that asks; it may be run more than once.

    Raises:
        SparkSourceError: with a text for the user.
    """
    limit = options.read_timeout
    deadline = time.monotonic() + limit
    while True:
        left = max(deadline - time.monotonic(), 0)
        try:
            return connection_to(options.connection).run(question, limit, left)
        except (ConnectionFailed, RequestTimeout, NotPartitionLeader) as error:
            if time.monotonic() + _BETWEEN_TRIES >= deadline:
                failure = read_failure(error, options.connection.servers)
                raise failure from failure.__cause__
        except LiftbridgeError as error:
            failure = read_failure(error, options.connection.servers)
            raise failure from failure.__cause__
        time.sleep(_BETWEEN_TRIES)
