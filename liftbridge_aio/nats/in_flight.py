"""Messages in flight over NATS, settled by acks, timeouts and errors.

Nothing here waits or writes. Each message is settled once, and gives its room back then.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import InvalidStateError
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from liftbridge_aio._publish.window import Window
from liftbridge_aio.errors import (
    AckTimeout,
    EncryptionFailed,
    IncorrectOffset,
    LiftbridgeError,
    MalformedData,
    MessageTooLarge,
    PublishError,
    PublishOutcomeUnknown,
    PublishRefused,
    PublishTimeout,
)
from liftbridge_aio.model import Ack, AckError, AckPolicy
from liftbridge_aio.wire.envelope_batches import decode_ack_envelopes

from .core.stream_acks import StreamAcks
from .errors import HINT_FOR_UNKNOWN, NobodyListens

logger = logging.getLogger("liftbridge_aio.nats")

_REMEMBERED: Final = 16_384
"""Ids kept of settled messages: those that failed, and those without an ack."""
_FAILURES_REMEMBERED: Final = 1024


class NatsPublisherStatistics(NamedTuple):
    """Figures of a publisher over NATS."""

    in_flight: int
    """Messages that are not settled."""
    in_flight_bytes: int
    waiting: int
    """Publishes that wait for room."""
    sent: int
    """Messages handed to NATS."""
    acked: int
    """Acks that said yes to a message that waited for them."""
    nacked: int
    """Acks that said no."""
    timed_out: int
    """Messages whose ack did not come in time."""
    nobody_listened: int
    """Messages that NATS had nobody to give to."""
    late: int
    """Acks that came after their message had been given up: it is stored, or refused, after all."""
    unmatched: int
    """Acks that nobody waited for, such as those of further streams on a subject."""
    malformed: int
    """Messages to the ack inbox that were no acks."""


class MessageInFlight(asyncio.Future[Any]):
    """A message between `submit` and its outcome, and the future of that outcome."""

    __slots__ = (
        "ack_timeout",
        "chosen",
        "correlation_id",
        "data",
        "handed_over_at",
        "partition",
        "policy",
        "reply",
        "send_by",
        "several",
        "size",
        "stream",
        "subject",
    )

    subject: str
    stream: str | None
    """Whose ack counts; None: whichever comes first."""
    partition: int | None
    correlation_id: str
    chosen: bool
    """True if a user chose the correlation id."""
    data: bytes
    """The encoded message; empty once it is sent."""
    size: int
    """Bytes that the message takes up in the window."""
    reply: str
    policy: AckPolicy | None
    """None for a plain message, which nobody acks either."""
    several: StreamAcks | None
    """Collector of the acks when a publish waits for those of several streams."""
    send_by: float
    """Loop time until which it must be handed to NATS."""
    ack_timeout: float
    """Seconds from then to the ack."""
    handed_over_at: float | None
    """Loop time of that; None while it waits."""

    @property
    def acked(self) -> bool:
        """True if an ack is expected."""
        return self.policy is not None and self.policy is not AckPolicy.NONE


class MessagesInFlight:
    """Table of messages in flight; settles each of them once."""

    def __init__(self, window: Window) -> None:
        self.unsettled: dict[str, MessageInFlight] = {}
        """By correlation id, oldest first."""
        self.sent = 0
        self.unproven = False
        """True if messages without acks were sent since NATS last confirmed receipt."""
        self._window = window
        self._acked = 0
        self._nacked = 0
        self._timed_out = 0
        self._nobody_listened = 0
        self._late = 0
        self._unmatched = 0
        self._malformed = 0
        self._ids_by_reply: dict[str, str] = {}
        """Messages whose reply subject does not end in the correlation id: a user chose it."""
        self._given_up = _RecentIds()
        self._unacked = _RecentIds()
        """Messages with ack policy NONE: refusals come all the same."""
        self._unacked_replies = _RecentIds()
        """Their ids by reply subject, where that does not end in the id."""
        self._used = _RecentIds()
        """Ids that users chose. Acks of such messages may come when they are long settled."""
        self._failures: deque[asyncio.Future[Any] | LiftbridgeError] = deque(
            maxlen=_FAILURES_REMEMBERED
        )

    def __len__(self) -> int:
        return len(self.unsettled)

    def statistics(self) -> NatsPublisherStatistics:
        """Return a snapshot of the statistics."""
        return NatsPublisherStatistics(
            self._window.messages,
            self._window.bytes,
            self._window.waiting,
            self.sent,
            self._acked,
            self._nacked,
            self._timed_out,
            self._nobody_listened,
            self._late,
            self._unmatched,
            self._malformed,
        )

    def add(self, message: MessageInFlight) -> None:
        """Register a message for which there is room."""
        self.unsettled[message.correlation_id] = message
        if message.chosen:
            self._used.add(message.correlation_id, message.subject)
        if message.reply and message.reply.rpartition(".")[2] != message.correlation_id:
            self._ids_by_reply[message.reply] = message.correlation_id

    def used(self, correlation_id: str) -> bool:
        """Return True if a message with this id is in flight, or a user chose it recently."""
        return correlation_id in self.unsettled or correlation_id in self._used

    # Settling

    def succeed(self, message: MessageInFlight, result: object) -> None:
        """Settle a message that is open."""
        self.forget(message)
        try:
            message.set_result(result)
        except InvalidStateError:
            return  # cancelled: nobody wants to know

    def handed_over(self, message: MessageInFlight) -> None:
        """Note that NATS has a message; what nobody acks is settled with that."""
        self.sent += 1
        message.data = b""
        if not message.acked:
            self.unproven = True
            if message.policy is not None:
                self._unacked.add(message.correlation_id, message.subject)
                if message.reply in self._ids_by_reply:
                    self._unacked_replies.add(message.reply, message.correlation_id)
            self.succeed(message, None)

    def fail(self, message: MessageInFlight, error: LiftbridgeError) -> None:
        """Settle a message with an error; does nothing to one that was given up."""
        self.forget(message)
        if message.done():
            return
        message.set_exception(_told(error, message))
        self._failures.append(message)

    def forget(self, message: MessageInFlight) -> None:
        """Give back the room of a message, once."""
        if self.unsettled.get(message.correlation_id) is not message:
            return
        del self.unsettled[message.correlation_id]
        self._ids_by_reply.pop(message.reply, None)
        message.data = b""
        self._window.leave(message.size)

    # What comes back

    def take_acks(self, datas: Sequence[bytes]) -> None:
        """Settle what the acks are for."""
        unsettled = self.unsettled
        room, count = 0, 0
        for answer in decode_ack_envelopes(datas):
            if isinstance(answer, MalformedData):
                self._malformed += 1
                logger.warning("what came to the ack inbox is no ack: %s", answer)
                continue
            message = unsettled.get(answer.correlation_id)
            if message is None or (message.stream is not None and message.stream != answer.stream):
                self._take_stray(answer)
            elif message.several is not None:
                self._take_one_of_several(message, message.several, answer)
            elif answer.ack_error is AckError.OK:
                # As `succeed`, but the room of all is given back at once.
                del unsettled[message.correlation_id]
                room += message.size
                count += 1
                message.data = b""
                if self._ids_by_reply:
                    self._ids_by_reply.pop(message.reply, None)
                if not message.done():
                    message.set_result(answer)
            else:
                self._nacked += 1
                self.fail(message, nack_error(answer))
        self._acked += count
        if count:
            self._window.leave(room, count)

    def _take_one_of_several(self, message: MessageInFlight, acks: StreamAcks, ack: Ack) -> None:
        refusal = None if ack.ack_error is AckError.OK else _told(nack_error(ack), message)
        if not acks.take(ack, refusal):
            self._unmatched += 1
            return
        if refusal is None:
            self._acked += 1
        else:
            self._nacked += 1
        if acks.complete:
            self.succeed(message, acks)

    def _take_stray(self, ack: Ack) -> None:
        correlation_id = ack.correlation_id
        if correlation_id in self._given_up:
            self._late += 1
        elif correlation_id in self._unacked and ack.ack_error is not AckError.OK:
            self._nacked += 1
            self._fail_unasked(correlation_id, nack_error(ack))
        else:
            # Of another stream on the subject, mostly.
            self._unmatched += 1

    def nobody_listens(self, reply: str) -> None:
        """Fail the message with this reply subject: NATS had nobody to give it to."""
        if reply in self._unacked_replies:
            correlation_id = self._unacked_replies.subject(reply)
        else:
            correlation_id = self._ids_by_reply.get(reply) or reply.rpartition(".")[2]
        message = self.unsettled.get(correlation_id)
        if message is not None:
            self._nobody_listened += 1
            self.fail(message, _nobody_listens_on(message.subject))
        elif correlation_id in self._unacked:
            self._nobody_listened += 1
            subject = self._unacked.subject(correlation_id)
            self._fail_unasked(correlation_id, _nobody_listens_on(subject))

    # What does not come

    def expire(self, now: float, excuse: str) -> None:
        """Fail what has run out of time, and pass over what was given up unsent.

        Args:
            now: loop time.
            excuse: what is known of the reason, for the text of the errors; may be empty.
        """
        for message in list(self.unsettled.values()):
            if message.handed_over_at is None:
                if message.done():
                    self.forget(message)
                elif now >= message.send_by:
                    text = f"the message was not handed to NATS in time{excuse}"
                    self.fail(message, PublishTimeout(text))
            elif now >= message.handed_over_at + message.ack_timeout:
                if message.acked:
                    self._give_up(message, excuse)
                else:
                    # nats-py has it, and waits for a server that takes no more.
                    text = f"NATS did not take the message within {message.ack_timeout:g} s{excuse}"
                    self.fail(message, PublishOutcomeUnknown(text))

    def _give_up(self, message: MessageInFlight, excuse: str) -> None:
        self._timed_out += 1
        self._given_up.add(message.correlation_id, message.subject)
        text = (
            f"no ack for the message to subject {message.subject!r} within"
            f" {message.ack_timeout:g} s{excuse or '; is the partition read-only?'}"
        )
        if message.several is not None:
            message.several.give_up(_told(AckTimeout(text), message))
            self.succeed(message, message.several)
        else:
            self.fail(message, AckTimeout(text))

    def fail_all(self, handed_over: LiftbridgeError, waiting: LiftbridgeError) -> None:
        """Fail everything that is open, with copies of one error or the other."""
        for message in list(self.unsettled.values()):
            known = waiting if message.handed_over_at is None else handed_over
            if message.handed_over_at is not None:
                self._given_up.add(message.correlation_id, message.subject)
            error = type(known)(known.message)
            error.__cause__ = known.__cause__
            self.fail(message, error)

    # Failures that nobody has seen

    def _fail_unasked(self, correlation_id: str, error: LiftbridgeError) -> None:
        """Record the error of a message without an ack, which no caller awaits."""
        if isinstance(error, PublishError):
            error.correlation_id = correlation_id
        self._failures.append(error)

    def raise_first_unseen(self) -> None:
        """Raise the first error since the last call that nobody has retrieved.

        The others count as seen then; a note on the first says how many there are.
        """
        errors = [error for error in map(_unseen_error, self._failures) if error is not None]
        self._failures.clear()
        if not errors:
            return
        if len(errors) > 1:
            errors[0].add_note(f"{len(errors) - 1} more publishes failed since the last flush")
        raise errors[0]


class _RecentIds:
    """The last so many correlation ids of a kind, with their subjects."""

    def __init__(self) -> None:
        self._subjects: dict[str, str] = {}

    def __contains__(self, correlation_id: str) -> bool:
        return correlation_id in self._subjects

    def add(self, correlation_id: str, subject: str) -> None:
        self._subjects[correlation_id] = subject
        if len(self._subjects) > _REMEMBERED:
            del self._subjects[next(iter(self._subjects))]

    def subject(self, correlation_id: str) -> str:
        return self._subjects[correlation_id]


def nack_error(ack: Ack) -> LiftbridgeError:
    """Return the public exception for an ack that reports a refusal."""
    text = f"the server refused the message: its ack says {ack.ack_error.name}"
    kind = _NACK_ERRORS.get(ack.ack_error)
    if kind is not None:
        return kind(text, stream=ack.stream)
    refused = PublishRefused(text, stream=ack.stream)
    refused.code = ack.ack_error.name
    return refused


_NACK_ERRORS: Final[dict[AckError, type[LiftbridgeError]]] = {
    AckError.INCORRECT_OFFSET: IncorrectOffset,
    AckError.TOO_LARGE: MessageTooLarge,
    AckError.ENCRYPTION: EncryptionFailed,
}


def _nobody_listens_on(subject: str) -> NobodyListens:
    return NobodyListens(
        f"nobody listens on subject {subject!r}: no stream has it, or its partition is paused or"
        " without a leader"
    )


def _told(error: LiftbridgeError, message: MessageInFlight) -> LiftbridgeError:
    """Add the message concerned and the suggested action to an error."""
    if isinstance(error, PublishError):
        error.correlation_id = message.correlation_id
    if isinstance(error, PublishOutcomeUnknown):
        error.hint = HINT_FOR_UNKNOWN
    return error.at(message.stream, message.partition)


def _unseen_error(failure: asyncio.Future[Any] | LiftbridgeError) -> BaseException | None:
    if isinstance(failure, LiftbridgeError):
        return failure
    # asyncio keeps this up until somebody has asked for the exception.
    return failure.exception() if getattr(failure, "_log_traceback", False) else None
