"""`Bridge`: copies messages from one system to another, and resumes where it stopped."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.arguments import INT64_MAX, check_flags, check_text, check_whole_number
from liftbridge_aio.errors import (
    ConnectionFailed,
    CursorsUnavailable,
    IncorrectOffset,
    InvalidRequest,
    LiftbridgeError,
    NoMetadataLeader,
    NotFound,
    NotPartitionLeader,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
    SubscriptionLost,
    TLSFailed,
    UsageError,
)
from liftbridge_aio.model import Message
from liftbridge_aio.options import Duration, seconds
from liftbridge_aio.retry import Backoff
from liftbridge_aio.stan import ClientIdTaken, SubscriptionClosed

from .core.rate import Rate
from .ends import Plan, Record, Source, Target
from .errors import MessageRefused
from .liftbridge import LIFTBRIDGE, LIFTBRIDGE_TLS
from .nsq import NSQ, NSQ_LOOKUP
from .stan import STAN
from .systems import Address, System, check_pair, parse_address

logger = logging.getLogger("liftbridge_aio.bridge")

SYSTEMS: Final[tuple[System, ...]] = (STAN, NSQ, NSQ_LOOKUP, LIFTBRIDGE, LIFTBRIDGE_TLS)
"""All systems; a new one is made by its module, and listed here."""

_PASSING: Final = (
    ClientIdTaken,
    ConnectionFailed,
    CursorsUnavailable,
    IncorrectOffset,
    NoMetadataLeader,
    NotPartitionLeader,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
    SubscriptionClosed,
    SubscriptionLost,
)
"""Errors after which the bridge connects again."""
_BACKOFF: Final = Backoff(initial=0.2, maximum=5.0)
_CLOSE: Final = 10.0
"""Seconds for the end of the connections."""
_MIN_PATIENCE: Final = 3.0
"""Seconds that every attempt to connect may take."""
_MIN_MESSAGE_TIMEOUT: Final = 1.0
"""Seconds; nsqd refuses less."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of a bridge since it was created."""

    copied: int
    """Messages that the target has stored."""
    repeats: int
    """Messages that it had already, so that they were not stored again."""
    skipped: int
    """Messages that it refused, with `skip_refused`."""
    rate: float
    """Messages copied per second, over the last 10 seconds."""
    lag: int | None
    """Messages that wait to be copied, when `Bridge.measure_lag` was called last; None: unknown."""
    retries: int
    """Times that the bridge has connected again."""


class Bridge:
    """Copies messages from one system to another while both are in use.

        bridge = Bridge("stan://127.0.0.1:4222/test-cluster/orders", "liftbridge://127.0.0.1/orders")
        await bridge.run()

    A message is settled at the source once the target has stored it, so a bridge that is killed
    loses nothing, and the next one goes on where it was. The target is created if it is missing.
    What is promised about repeats is in `docs/bridges.md`.

    Args:
        source: the URL of what to copy: `stan://host:4222/cluster/channel`,
            `nsq://host:4150/topic/channel`, `nsq+lookup://host:4161/topic/channel` or
            `liftbridge://host:9292/stream`. Several servers are separated by commas.
        target: the URL of where to copy it. At least one of the two is Liftbridge.
        once: end when everything is copied that was there at the start. With NSQ, which does not
            tell, that is when nothing has come for longer than `message_timeout`.
        after: the sequence of NATS Streaming behind which to begin if the target does not say how
            far the channel was copied.
        skip_refused: log and count messages that the target can never take, because they are too
            large for it, or empty, and go on. False: end with `MessageRefused`.
        message_timeout: seconds after which nsqd delivers a message again that is not copied, from
            1 to its `--max-msg-timeout`, 15 minutes by default.
        retry_timeout: seconds without progress after which `run` ends with the error of the side
            that is away.

    Raises:
        InvalidRequest: a URL or another argument is invalid, neither is Liftbridge, or both are one
            stream.
        WrongType: an argument has the wrong type.
    """

    def __init__(
        self,
        source: str,
        target: str,
        *,
        once: bool = False,
        after: int | None = None,
        skip_refused: bool = False,
        message_timeout: Duration = 10.0,
        retry_timeout: Duration = 60.0,
    ) -> None:
        check_text(source, "the source")
        check_text(target, "the target")
        check_flags(once=once, skip_refused=skip_refused)
        if after is not None:
            check_whole_number(after, "after", 0, INT64_MAX)
        self._from = parse_address(source, SYSTEMS)
        self._to = parse_address(target, SYSTEMS)
        check_pair(self._from, self._to)
        if after is not None and not self._from.system.takes_after:
            raise InvalidRequest(
                f"`after` is a sequence of NATS Streaming: {self._from} has none; leave it out"
            )
        self._once = once
        self._after = after
        self._skip_refused = skip_refused
        self._message_timeout = seconds(message_timeout, "message_timeout")
        if self._message_timeout < _MIN_MESSAGE_TIMEOUT:
            raise InvalidRequest(
                "message_timeout is at least 1 second, as nsqd takes no less, not"
                f" {message_timeout!r}"
            )
        self._retry_timeout = seconds(retry_timeout, "retry_timeout")
        self._copied = self._repeats = self._skipped = self._retries = 0
        self._lag: int | None = None
        self._rate: Rate | None = None
        self._source: Source | None = None
        self._was_open = False
        self._well_at = 0.0
        self._is_storing = False
        """True from the attempt to store messages to its success, be it over later connections."""
        self._is_running = False

    def __repr__(self) -> str:
        """Show what is copied where."""
        return f"<Bridge {self._from} > {self._to} copied={self._copied}>"

    @property
    def is_connected(self) -> bool:
        """True while both sides are connected."""
        return self._source is not None

    @property
    def progress(self) -> Progress:
        """The counts so far."""
        now = asyncio.get_running_loop().time()
        rate = 0.0 if self._rate is None else self._rate.per_second(self._copied, now)
        return Progress(self._copied, self._repeats, self._skipped, rate, self._lag, self._retries)

    async def measure_lag(self) -> int | None:
        """Ask the source how many messages wait to be copied; None if it does not say.

        Cancelling abandons it.

        Raises:
            LiftbridgeError: the source did not answer.
        """
        self._lag = None if self._source is None else await self._source.lag()
        return self._lag

    async def run(self) -> Progress:
        """Copy until the end, if there is one, or until it is cancelled.

        Where one side is away, it waits and connects again. Cancelling ends it in order: what is
        stored is settled at the source, as far as that answers within 10 seconds.

        Raises:
            TargetUnsuitable: the target exists, and is none that this can be copied to.
            SourceReset: the source is another log than the one that was copied.
            PositionLost: the target does not say how far the source was copied.
            MessageRefused: the target can never take a message, and none is skipped.
            LiftbridgeError: a side cannot be reached at the start or has been away for too long,
                or refuses what it is asked for: the stream was deleted, the target is read-only.
            UsageError: it is running already.
        """
        if self._is_running:
            raise UsageError("the bridge is running already")
        self._is_running = True
        loop = asyncio.get_running_loop()
        tries = 0
        self._well_at = loop.time()
        try:
            while True:
                before = self._well_at
                try:
                    await self._copy(max(self._patience(), _MIN_PATIENCE))
                except _PASSING as error:
                    if self._well_at > before:
                        tries = 0
                    left = self._patience()
                    if not self._was_open or left <= 0 or isinstance(error, TLSFailed):
                        raise
                    logger.warning("%r connects again: %s", self, error.message)
                    self._retries += 1
                    delay = _BACKOFF.delay(tries, random.random())  # noqa: S311
                    await asyncio.sleep(min(delay, left))
                    tries += 1
                else:
                    return self.progress
        finally:
            self._is_running = False

    def _patience(self) -> float:
        """Return the seconds that are left until a side has been away for too long."""
        return self._well_at + self._retry_timeout - asyncio.get_running_loop().time()

    async def _copy(self, patience: float) -> None:
        """Copy over one connection to each side, until the end or an error.

        Args:
            patience: the longest that a side may take to answer.
        """
        plan = Plan(
            *(self._from, self._to, self._refuse, patience),
            *(self._once, self._after, self._message_timeout),
        )
        source, target = plan.source.system.source(plan), plan.target.system.target(plan)
        try:
            with self._of_source():
                origin = await source.open()
            with self._of_target():
                copied = await target.open(origin)
            with self._of_source():
                await source.begin(copied)
            self._source = source
            self._was_open = True
            while True:
                with self._of_source():
                    records = await source.next_batch()
                if records is None:
                    return
                if records:
                    self._note_well()
                    with self._of_target():
                        await self._store(target, records)
                    with self._of_source():
                        await source.stored(records)
        finally:
            if self._source is not None:
                self._note_well()
            self._source = None
            await asyncio.gather(_closed(source), _closed(target))

    async def _store(self, target: Target, records: list[Record]) -> None:
        now = asyncio.get_running_loop().time
        self._rate = rate = self._rate or Rate(now())
        self._is_storing = True
        skipped = self._skipped
        repeats = await target.store(records)
        self._repeats += repeats
        self._copied += len(records) - repeats - (self._skipped - skipped)
        rate.note(self._copied, now())
        self._is_storing = False

    def _refuse(self, record: Record, error: LiftbridgeError) -> None:
        """Skip a message that the target can never take, or end there."""
        name = self._from.system.message_name(record.identity)
        text = f"{name} is refused: {error.message}"
        if not self._skip_refused:
            refusal = MessageRefused(text)
            if isinstance(record.origin, Message):
                refusal.at(record.origin.stream, record.origin.partition, record.origin.offset)
            raise refusal from error
        self._skipped += 1
        logger.warning("%r skips a message: %s", self, text)

    def _note_well(self) -> None:
        """Note that all went well until now, unless what came last could not be stored yet."""
        if not self._is_storing:
            self._well_at = asyncio.get_running_loop().time()

    @contextmanager
    def _of_source(self) -> Iterator[None]:
        """Tell errors of the source."""
        try:
            yield
        except LiftbridgeError as error:
            if isinstance(error, NotFound):
                error.hint = "check the URL; a stream that was deleted has nothing to copy"
            _tell_side(error, "source", self._from)
            raise

    @contextmanager
    def _of_target(self) -> Iterator[None]:
        """Tell errors of the target."""
        try:
            yield
        except LiftbridgeError as error:
            if isinstance(error, NotFound):
                error.hint = "start the bridge again, and it creates the target"
            if not isinstance(error, MessageRefused):
                error.offset = None  # an offset that was expected there says nothing here
            _tell_side(error, "target", self._to)
            raise


def _tell_side(error: LiftbridgeError, side: str, address: Address) -> None:
    """Say in an error which side has failed, and what whoever runs the bridge can do."""
    error.message = f"{side} {address.location}: {error.message}"
    if isinstance(error, ClientIdTaken):
        error.hint = "another bridge for this pair is running: stop it"
    elif isinstance(error, _PASSING):
        error.hint = "start the bridge again when that side answers; it resumes where it was"


async def _closed(end: Source | Target) -> None:
    """Close an end, whose failure to close changes nothing."""
    try:
        async with asyncio.timeout(_CLOSE):
            await end.aclose()
    except (LiftbridgeError, TimeoutError) as error:
        logger.warning("while a bridge was closed: %s", error)
