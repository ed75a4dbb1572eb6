"""Messages of a subscription between NATS and their readers, and the acks on the way back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from operator import sub
from typing import Final, NamedTuple

from liftbridge_aio._core.message_lane import publish_head
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.wire.hot_schema import PARSE_ERRORS
from liftbridge_aio.wire.stan_codec import (
    ReceivedMessage,
    ack_head,
    decode_message,
    encode_acks,
)

from .core.buffer import Buffer, Identity
from .core.progress import Place, Progress
from .core.start import StartAt
from .errors import AckedAutomatically
from .link import Prepared, StreamingLink
from .message import Message
from .options import SubscriptionPlan

logger = logging.getLogger("liftbridge_aio.stan")

_ENOUGH_ACKS: Final = 256
"""So many are sent before others have their turn, so that the server is not idle while a program
takes what has come."""


class DeliveryCounts(NamedTuple):
    """Figures of a subscription."""

    pending: int
    """Messages that were received and wait for a reader."""
    pending_bytes: int
    """Bytes of these, as they came."""
    max_pending: int
    max_pending_bytes: int
    received: int
    """Messages that came, redelivered ones included."""
    delivered: int
    """Messages that a reader has got."""
    unacked: int
    """Messages that were received and are not acked."""
    malformed: int
    """Payloads that were no messages. Nothing else is dropped, however slow the readers are."""


class Deliveries:
    """Receives messages, hands them to readers in order, and sends their acks.

    Args:
        plan: of the subscription.
        link: sends acks.
    """

    # State, changed only by methods of this class in the event loop: `_buffer` and `_progress` by
    # what comes and what is acked, `_readers` has the future of each task that waits, `_error` and
    # `_over` by `stop`; `session_number` counts sessions, so that acks do not go to a wrong one.

    def __init__(
        self,
        plan: SubscriptionPlan,
        link: StreamingLink,
    ) -> None:
        self.ack_inbox = ""
        """The subject for the acks of this session; empty before the server has told."""
        self.session_number = 0
        self.ack_start = ack_head(plan.channel)
        self.ack_command = b""
        self._link = link
        self._acker = self.ack if plan.manual_ack else _refuse_ack
        self._buffer = Buffer(self._identify)
        self._progress = Progress(plan.start, shared=bool(plan.queue))
        self._readers: deque[asyncio.Future[None]] = deque()
        self._opened_at: tuple[int, int] | None = None
        """When the first session of the subscription began."""
        self._over = False
        self._error: LiftbridgeError | None = None
        self._received = self._delivered = self._malformed = 0
        self._acks = _Acks(self)
        self._loop = asyncio.get_running_loop()

    def statistics(self) -> DeliveryCounts:
        """Return a snapshot of the statistics."""
        buffer = self._buffer
        return DeliveryCounts(
            len(buffer),
            buffer.bytes,
            buffer.max_messages,
            buffer.max_bytes,
            self._received - self._malformed,
            self._delivered,
            len(self._progress.unacked) + len(buffer),
            self._malformed,
        )

    # Sessions

    def end_session(self) -> Place | None:
        """Prepare for another session; return the message by which its log is to be recognised.

        None if nothing was ever received.
        """
        self.session_number += 1
        self._acks = _Acks(self)
        self.ack_inbox = ""
        waiting = set()
        for data in self._buffer:
            message = self._decode(data)
            if message is None or self._buffer.again.get(message.sequence):
                continue  # the latter was acked while it waited to be delivered again
            if self._progress.received(message.sequence, message.timestamp):
                waiting.add(message.sequence)
        self._buffer.clear()
        return self._progress.end_session(waiting)

    def next_start(self, found: Place | None) -> StartAt:
        """Return where to start in another session, after `end_session`.

        Args:
            found: what came of a subscription that starts at the sequence of the known message.
        """
        elapsed = 0
        if self._opened_at is not None:
            # One clock may have been set back, the other stops while the machine sleeps.
            elapsed = max(map(sub, _clocks(), self._opened_at))
        return self._progress.next_start(found, elapsed)

    def opened(self, ack_inbox: str) -> None:
        """Send acks: the server has created the subscription."""
        self.ack_inbox = ack_inbox
        self.ack_command = publish_head(ack_inbox)
        if self._opened_at is None:
            self._opened_at = _clocks()

    def stop(self, error: LiftbridgeError | None = None) -> None:
        """Hand out nothing more; readers get the error, or the end."""
        if not self._over:
            self._over, self._error = True, error
            self._buffer.clear()
            self.wake_all()

    # Receiving

    def receive(self, arrived: list[bytes]) -> None:
        """Take in what came to the inbox, in this order."""
        if self._over:
            return
        self._received += len(arrived)
        self._buffer.put(arrived)
        for _ in range(min(len(arrived), len(self._readers))):
            self._wake_one()

    def take_waiting(self) -> Message | None:
        """Return the next message that waits; None if none does."""
        buffer = self._buffer
        while (data := buffer.pop()) is not None:
            received = self._decode(data)
            if received is None:
                continue
            message = Message(received, self._acker)
            sequence = message.sequence
            if buffer.again and not buffer.popped(sequence):
                continue
            if self._progress.received(sequence, message.timestamp):
                self._delivered += 1
                return message
            self._send_ack(sequence)
        return None

    def _decode(self, data: bytes) -> ReceivedMessage | None:
        try:
            message = decode_message(data)
        except PARSE_ERRORS as error:
            reason = str(error)
        else:
            if message.sequence:
                return message
            reason = "it has no sequence"
        self._malformed += 1
        logger.warning("what came to the inbox of a subscription is no message: %s", reason)
        return None

    def _identify(self, data: bytes) -> Identity | None:
        message = self._decode(data)
        return None if message is None else Identity(message.sequence, message.redelivered)

    async def take(self, stopped: Callable[[], bool]) -> Message | None:
        """Return the next message, or None at the end or when `stopped` is true.

        Several tasks may wait; each message goes to one of them. Cancelling loses no message.

        Raises:
            LiftbridgeError: the subscription has failed; one reader gets it, others the end.
        """
        while not stopped():
            message = self.take_waiting()
            if message is not None:
                return message
            if self._over:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                return None
            reader = self._loop.create_future()
            self._readers.append(reader)
            try:
                await reader
            except asyncio.CancelledError:
                if reader.done() and not reader.cancelled() and len(self._buffer):
                    self._wake_one()  # what this one was woken for is somebody else's now
                raise
            finally:
                if reader in self._readers:
                    self._readers.remove(reader)
        return None

    def _wake_one(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return

    def wake_all(self) -> None:
        """Have all readers look whether they are to stop."""
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)
        self._readers.clear()

    # Acks

    def ack(self, message: Message) -> bool:
        """Ack a message, once; return False, and send nothing, if the subscription is over."""
        if self._over:
            return False
        sequence = message.sequence
        if self._progress.acked(sequence, message.timestamp):
            if self._buffer.again:
                self._buffer.acked(sequence)
            acks = self._acks
            if self._link.is_last(acks):
                acks.sequences.append(sequence)
                if len(acks.sequences) >= _ENOUGH_ACKS:
                    self._link.write_now()
            else:
                self._send_ack(sequence)
        return True

    def _send_ack(self, sequence: int) -> None:
        self._acks = _Acks(self)
        self._acks.sequences.append(sequence)
        self._link.send(self._acks)


def _clocks() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()


def _refuse_ack(_: Message) -> bool:
    raise AckedAutomatically("the subscription acks its messages automatically")


class _Acks:
    """Acks that wait to be sent, one after the other, in the session in which they were made."""

    __slots__ = ("_deliveries", "sequences", "session_number")

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self.session_number = deliveries.session_number
        self.sequences: list[int] = []

    def prepare(self) -> Prepared | None:
        """Encode them; None if the session is another one by now."""
        deliveries = self._deliveries
        if self.session_number != deliveries.session_number or not deliveries.ack_inbox:
            return None
        return deliveries.ack_command, encode_acks(deliveries.ack_start, self.sequences)

    def failed(self, error: Exception) -> None:
        """Do nothing: the server delivers the message again."""
