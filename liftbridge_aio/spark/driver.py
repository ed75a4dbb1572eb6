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
    TLSFailed,
)
from liftbridge_aio.options import timer_seconds

from .connection import connection_to
from .errors import SparkSourceError
from .offsets import Offsets, StreamPartition
from .options import ReadOptions
from .read_failures import read_failure
from .selection import described

T = TypeVar("T")

_BETWEEN_TRIES: Final = 0.2
"""Seconds between two tries."""
_NAMED: Final = 3
"""Partitions that a text names."""


def ask(
    options: ReadOptions,
    question: Callable[[Client], Awaitable[T]],
    position: Offsets | None = None,
) -> T:
    """Ask the servers, again and again for readTimeout seconds while they are away.

    Blocks the calling thread. What servers do not know (yet) is asked for `not_found_timeout`
    seconds beside.

    Args:
        options: of the query.
        question: makes the coroutine that asks; it may be run more than once.
        position: where the query stands, for texts; None where it is not known yet.

    Raises:
        SparkSourceError: with a text for the user.
    """
    limit, connection = options.read_timeout, options.connection
    enough = limit + timer_seconds(connection.client_options().not_found_timeout)
    deadline = time.monotonic() + limit
    while True:
        left = max(deadline - time.monotonic(), 0)
        try:
            return connection_to(connection).run(question, enough, left)
        except TLSFailed as error:  # waiting mends no certificate
            failure = _failure(error, options, position)
            raise failure from failure.__cause__
        except (ConnectionFailed, RequestTimeout, NotPartitionLeader) as error:
            if time.monotonic() + _BETWEEN_TRIES >= deadline:
                failure = _failure(error, options, position)
                raise failure from failure.__cause__
        except LiftbridgeError as error:
            failure = _failure(error, options, position)
            raise failure from failure.__cause__
        time.sleep(_BETWEEN_TRIES)


def _failure(
    error: LiftbridgeError, options: ReadOptions, position: Offsets | None
) -> SparkSourceError:
    """Make the error for the user; where it has no place, its text says what was asked about."""
    if isinstance(error, SparkSourceError):
        return error
    failure = read_failure(error, options.connection.servers)
    if failure.stream is None:
        about = _stands(position) if position else described(options.selection)
        failure.message = f"{failure.message} (while planning what to read of {about})"
    elif failure.partition is not None and position:
        place = StreamPartition(failure.stream, failure.partition)
        failure.at(offset=position.get(place))
    return failure


def _stands(position: Offsets) -> str:
    named = [f"{place} from offset {position[place]}" for place in list(position)[:_NAMED]]
    more = len(position) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
