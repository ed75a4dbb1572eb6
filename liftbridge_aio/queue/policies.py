"""Policies for failed attempts: delays, retry streams, dead letters, backoff."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    check_callable,
    check_number,
    check_text,
    check_whole_number,
)
from liftbridge_aio.errors import InvalidRequest, StreamReserved, WrongType
from liftbridge_aio.model import RESERVED_STREAMS
from liftbridge_aio.options import Duration, seconds

from .delivery import Delivery
from .errors import RetryFailed, error_text


@dataclass(frozen=True, slots=True)
class Exponential:
    """Delays that grow with each attempt: `initial * factor ** (attempt - 1)`, at most `max`.

    Attributes:
        initial: seconds after the first attempt.
        factor: by which each delay is longer than the one before.
        max: the longest delay, in seconds.
        jitter: "full": a random part of the delay, so that messages that failed together are not
            retried together; None: the whole delay.
    """

    initial: float = 1.0
    factor: float = 2.0
    max: float = 120.0
    jitter: Literal["full"] | None = "full"

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: the numbers are out of range or inconsistent.
            WrongType: one of them is not a number.
        """
        for name in ("initial", "factor", "max"):
            check_number(getattr(self, name), name)
        if not (0 <= self.initial <= self.max < math.inf and self.factor >= 1):
            raise InvalidRequest(
                f"a delay grows from 0 or more by a factor of 1 or more to its max, not {self!r}"
            )
        if self.jitter not in {"full", None}:
            raise InvalidRequest(f"jitter is 'full' or None, not {self.jitter!r}")

    def __call__(self, attempt: int, error: BaseException | None = None) -> float:  # noqa: ARG002
        """Return the seconds to wait after an attempt, counted from 1."""
        try:
            delay = min(self.max, self.initial * self.factor ** (attempt - 1))
        except OverflowError:  # beyond the range of a float, so beyond `max` too
            delay = self.max
        return delay * random.random() if self.jitter else delay  # noqa: S311 - no secret


RetryDelay: TypeAlias = Callable[[int, BaseException | None], Duration]
"""Returns the seconds before the next attempt, by the number of the failed one and its error."""

OnGivingUp: TypeAlias = Callable[[Delivery], Awaitable[object] | object]
"""Called with a delivery that is given up: a coroutine function, or a plain function."""


def checked_retry(retry: RetryDelay) -> Callable[[int, BaseException | None], float]:
    """Check a function of delays, and return one that also checks each delay.

    The result raises `RetryFailed` if the function raises, or returns something else.

    Raises:
        WrongType: it cannot be called with an attempt and an error, or is a coroutine function.
    """
    check_callable(retry, "retry")
    try:
        signature: inspect.Signature | None = inspect.signature(retry)
    except (TypeError, ValueError):  # a function in C may have none
        signature = None
    try:
        if signature is not None:
            signature.bind(1, None)
    except TypeError as error:
        raise WrongType(
            f"retry must accept the number of the attempt and its error: {error}"
        ) from error
    if inspect.iscoroutinefunction(retry):
        raise WrongType("retry must return seconds, but it is a coroutine function")

    def delay(attempt: int, error: BaseException | None) -> float:
        try:
            found = seconds(retry(attempt, error), "a delay")
            if found == math.inf:
                raise InvalidRequest("a delay must be finite: raise Reject to give up a message")
        except Exception as failure:
            what = error_text(failure)
            raise RetryFailed(f"retry returned no delay for attempt {attempt}: {what}") from failure
        return found

    return delay


@dataclass(frozen=True, slots=True)
class Probing:
    """Pauses the queue while handlers fail, and probes with one message after each pause.

    Each failure makes the pause longer, up to `max`. After as many successes as there were
    failures, the queue delivers at full rate.

    Attributes:
        initial: seconds; the pause is `initial * 2 ** failures`.
        max: failures that would make the pause longer than this do not count.
    """

    initial: float = 1.0
    max: float = 120.0

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: the numbers are out of range or inconsistent.
            WrongType: one of them is not a number.
        """
        check_number(self.initial, "initial")
        check_number(self.max, "max")
        if not 0 < self.initial <= self.max < math.inf:
            raise InvalidRequest(f"a pause grows from more than 0 s to its max, not {self!r}")


@dataclass(frozen=True, slots=True)
class RetryStreams:
    """Streams in which messages wait for a later attempt, one for each length of the wait.

    A message that is nacked with the shortest tier or a longer delay is copied to the stream of the
    shortest tier that covers the delay, and settled in its own stream. So the window does not grow,
    and delays survive restarts.

    Attributes:
        tiers: seconds, in ascending order. A delay beyond the last tier is shortened to it.
    """

    tiers: tuple[float, ...] = (60.0, 600.0, 3600.0)

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: there are no tiers, or they are not in order.
            WrongType: one of them is not a number.
        """
        for tier in self.tiers:
            check_number(tier, "a tier")
        bounds = (0.0, *self.tiers, math.inf)
        is_ascending = all(low < high for low, high in itertools.pairwise(bounds))
        if not self.tiers or not is_ascending:
            raise InvalidRequest(
                f"tiers are seconds in ascending order, at least one, not {self.tiers!r}"
            )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The stream of dead letters; it must exist.

    A dead letter has the key, the value and the headers of the message. Headers that begin with
    `queue-` have its origin and the reason.

    Attributes:
        stream: the stream.
        limit: the queue stops with `TooManyDeadLetters` instead of giving up more messages than
            this in sequence, without an ack between them; None: no limit.
    """

    stream: str
    limit: int | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: there is no stream, or the limit is out of range.
            WrongType: a value has the wrong type.
        """
        check_text(self.stream, "the stream of dead letters")
        if not self.stream:
            raise InvalidRequest("dead letters need a stream")
        if self.stream in RESERVED_STREAMS:
            raise StreamReserved("dead letters need a stream to which clients may publish")
        if self.limit is not None:
            check_whole_number(self.limit, "limit", 1, INT64_MAX)
