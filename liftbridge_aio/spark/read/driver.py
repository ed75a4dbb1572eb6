"""Call servers from the driver: with retries, and with errors for users of Spark."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    NotPartitionLeader,
    RequestTimeout,
    TLSFailed,
)
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.spark.connection import connection_to
from liftbridge_aio.spark.core.offsets import Offsets
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.core.read_failures import read_failure
from liftbridge_aio.spark.core.selection import described
from liftbridge_aio.spark.errors import SparkSourceError

T = TypeVar("T")

_RETRY_INTERVAL: Final = 0.2
"""Seconds between two attempts."""
_NAMED: Final = 3
"""Most partitions that an error names."""


def run_with_retry(
    options: ReadOptions,
    work: Callable[[Client], Awaitable[T]],
    position: Offsets | None = None,
) -> T:
    """Run a coroutine with the client; retry for readTimeout seconds while servers are unreachable.

    Blocks the calling thread. Streams that servers do not know, or not yet, are looked up for
    `not_found_timeout` seconds more.

    Args:
        options: of the query.
        work: makes the coroutine; it may be called more than once.
        position: the position of the query, for errors; None: not known yet.

    Raises:
        SparkSourceError: the work failed; the text is for users.
    """
    limit, connection = options.read_timeout, options.connection
    longest = limit + timer_seconds(connection.client_options().not_found_timeout)
    deadline = time.monotonic() + limit
    while True:
        left = max(deadline - time.monotonic(), 0)
        try:
            return connection_to(connection).run(work, longest, left)
        except TLSFailed as error:  # a retry would fail in the same way
            failure = _failure(error, options, position)
            raise failure from failure.__cause__
        except (ConnectionFailed, RequestTimeout, NotPartitionLeader) as error:
            if time.monotonic() + _RETRY_INTERVAL >= deadline:
                failure = _failure(error, options, position)
                raise failure from failure.__cause__
        except LiftbridgeError as error:
            failure = _failure(error, options, position)
            raise failure from failure.__cause__
        time.sleep(_RETRY_INTERVAL)


def _failure(
    error: LiftbridgeError, options: ReadOptions, position: Offsets | None
) -> SparkSourceError:
    """Return the error for users; if it names no stream, its text says what the query reads."""
    if isinstance(error, SparkSourceError):
        return error
    failure = read_failure(error, options.connection.servers)
    if failure.stream is None:
        about = _shown(position) if position else described(options.selection)
        failure.message = f"{failure.message} (while planning what to read of {about})"
    elif failure.partition is not None and position:
        place = StreamPartition(failure.stream, failure.partition)
        failure.at(offset=position.get(place))
    return failure


def _shown(position: Offsets) -> str:
    named = [f"{place} from offset {position[place]}" for place in list(position)[:_NAMED]]
    more = len(position) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
