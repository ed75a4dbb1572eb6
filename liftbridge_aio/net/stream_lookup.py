"""Waiting until servers know streams, or have denied them for long enough to count as gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from math import inf

from liftbridge_aio._core.absence import Absence, Incarnation
from liftbridge_aio._core.status import error_from
from liftbridge_aio.errors import (
    ConnectionFailed,
    ConnectTimeout,
    LiftbridgeError,
    RequestTimeout,
    StreamNotFound,
    TLSFailed,
)
from liftbridge_aio.model import ANY_STREAM
from liftbridge_aio.retry import wait_before_try
from liftbridge_aio.wire.rpc import FETCH_METADATA

from .router import Router


async def find_streams(
    router: Router,
    streams: Collection[str],
    timeout: float,
    ask: Callable[[float], Awaitable[Incarnation]],
) -> None:
    """Fetch metadata until each of these streams is known or counts as gone (`Absence`).

    Cancelling abandons the wait.

    Args:
        router: delays, and what is known of servers.
        streams: names.
        timeout: seconds for everything.
        ask: fetches their metadata within so many seconds; returns the server that answered.

    Raises:
        StreamNotFound: one was denied all the time, but for too short a time to count as gone.
        LiftbridgeError: the time is up, and a server was lost meanwhile or none answered.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    absences = {name: Absence(router.not_found_timeout) for name in streams}
    attempt = 0
    while True:
        attempt += 1
        delay = router.delay(attempt)
        try:
            async with asyncio.timeout_at(deadline):
                answered_by = await ask(deadline - loop.time())
        except TLSFailed:
            raise  # a retry cannot help
        except (ConnectionFailed, TimeoutError) as error:
            failure = _unanswered(router, absences, timeout, error)
        else:
            known = router.snapshot.streams
            for name, absence in absences.items():
                if name in known or (name == ANY_STREAM and known):
                    absence.known()
                else:
                    absence.denied(loop.time(), answered_by)
            undecided = {
                name: absence for name, absence in absences.items() if 0 < absence.remaining < inf
            }
            if not undecided:
                return
            failure = _undecided(undecided)
            delay = min(delay, *(absence.remaining for absence in undecided.values()))
        wait = wait_before_try(delay, deadline - loop.time())
        if wait is None:
            raise failure
        await asyncio.sleep(wait)


def _unanswered(
    router: Router, absences: Mapping[str, Absence], timeout: float, error: Exception
) -> LiftbridgeError:
    """Return the error to raise if no attempt is left after this one, which got no answer.

    If only the deadline cut it off, what servers answered before still counts.
    """
    if isinstance(error, LiftbridgeError):
        for absence in absences.values():
            absence.interrupt()
        return error
    unusable = unusable_error(router, min(absences))
    if unusable is not None:
        return unusable
    denied = {name: one for name, one in absences.items() if one.denied_by is not None}
    if denied:
        return _undecided(denied)
    if router.all_suspected:
        addresses = ", ".join(router.addresses())
        text = f"no server was reached within {timeout:.3g} s ({addresses})"
        return ConnectTimeout(text, stream=min(absences))
    text = f"no server answered within {timeout:.3g} s whether {_named(absences)} exists"
    return RequestTimeout(text, stream=min(absences))


def unusable_error(
    router: Router, stream: str, partition: int | None = None
) -> LiftbridgeError | None:
    """Return the error that says why no server can be used; None if that is not known of all."""
    unusable = router.unusable
    if unusable is None:
        return None
    return error_from(FETCH_METADATA.name, unusable, stream=stream, partition=partition)


def stream_not_found(streams: Collection[str]) -> LiftbridgeError:
    """Return the error for streams that no broker knows."""
    return StreamNotFound(f"no broker knows {_named(streams)}", stream=min(streams))


def _undecided(absences: Mapping[str, Absence]) -> LiftbridgeError:
    """Return the error for streams that were denied, but not yet for long enough."""
    if not any(absence.interrupted for absence in absences.values()):
        return stream_not_found(absences)
    text = f"connections broke before any server had denied {_named(absences)} for long enough"
    return RequestTimeout(text, stream=min(absences))


def _named(streams: Collection[str]) -> str:
    return f"the stream{'s' * (len(streams) > 1)} {', '.join(map(repr, sorted(streams)))}"
