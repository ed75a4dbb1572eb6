"""The state machine of the messages to one partition: which is sent, and which waits for what.

A broker may not know a stream right after it was created. It refuses the message then, and the
message must be sent again without being overtaken. So the first message to a broker, the probe, is
sent alone, and the others wait. Once it is acked the broker knows the stream, and all are sent.

An ack may take seconds, as while the partition has no leader. Then the broker is asked whether it
has accepted the probe, which it does not refuse any more. If so, the next message becomes the
probe.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar


class QueueState(enum.Enum):
    """Knowledge of the broker that the messages go to."""

    NEW = "new"
    """Nothing. No probe is on its way, and no message waits."""
    PROBING = "probing"
    """The probe is on its way, or will be sent again."""
    CONFIRMING = "confirming"
    """As PROBING, and the broker is asked whether it has accepted the probe."""
    OPEN = "open"
    """It knows the stream. No message waits."""


class QueueEvent(enum.Enum):
    """Events of a partition's messages."""

    ENQUEUED = "a message that the server acks was published"
    ENQUEUED_UNACKED = "a message with ack policy NONE was published"
    ACKED = "the probe, or a message that was accepted before it, was acked"
    REFUSED = "the same was refused, but not because the stream is unknown"
    LATE = "the probe is not acked for a while, and others wait"
    ACCEPTED = "the broker has accepted the probe"
    STREAM_UNKNOWN = "the broker does not know the stream of the probe"
    STREAM_DELETED = "the broker does not know the stream of a message after the probe"
    EXPIRED = "the deadline of the probe has passed"
    CANCELLED = "the probe was cancelled before it was written"
    PROBE_LOST = "the session broke that had the probe"
    SESSION_LOST = "the session broke, or the partition changes its session"
    ABANDONED = "no message can be sent"


class QueueStep(enum.Enum):
    """Reaction of a queue to an event."""

    SEND = enum.auto()
    """Send the message of the event."""
    WAIT = enum.auto()
    """Let the message of the event wait."""
    RETRY = enum.auto()
    """Send the probe again, to another broker."""
    CONFIRM = enum.auto()
    """Ask the broker whether it has accepted the probe."""
    FAIL = enum.auto()
    """Fail the message of the event."""
    DROP = enum.auto()
    """Forget the message of the event."""
    FAIL_ALL = enum.auto()
    """Fail the probe and all that wait."""
    ADVANCE = enum.auto()
    """Take those that wait as if they were published now, until one of them is the probe."""


TABLE: Final[dict[QueueState, dict[QueueEvent, tuple[QueueState, *tuple[QueueStep, ...]]]]] = {
    QueueState.NEW: {
        QueueEvent.ENQUEUED: (QueueState.PROBING, QueueStep.SEND),
        QueueEvent.ENQUEUED_UNACKED: (QueueState.NEW, QueueStep.SEND),
        QueueEvent.ACKED: (QueueState.OPEN, QueueStep.ADVANCE),
        QueueEvent.REFUSED: (QueueState.OPEN, QueueStep.FAIL, QueueStep.ADVANCE),
        QueueEvent.STREAM_DELETED: (QueueState.NEW, QueueStep.FAIL),
        QueueEvent.SESSION_LOST: (QueueState.NEW, QueueStep.ADVANCE),
        QueueEvent.ABANDONED: (QueueState.NEW, QueueStep.FAIL_ALL),
    },
    QueueState.PROBING: {
        QueueEvent.ENQUEUED: (QueueState.PROBING, QueueStep.WAIT),
        QueueEvent.ENQUEUED_UNACKED: (QueueState.PROBING, QueueStep.WAIT),
        QueueEvent.ACKED: (QueueState.OPEN, QueueStep.ADVANCE),
        QueueEvent.REFUSED: (QueueState.OPEN, QueueStep.FAIL, QueueStep.ADVANCE),
        QueueEvent.LATE: (QueueState.CONFIRMING, QueueStep.CONFIRM),
        QueueEvent.STREAM_UNKNOWN: (QueueState.PROBING, QueueStep.RETRY),
        QueueEvent.STREAM_DELETED: (QueueState.PROBING, QueueStep.FAIL),
        QueueEvent.EXPIRED: (QueueState.NEW, QueueStep.FAIL, QueueStep.ADVANCE),
        QueueEvent.CANCELLED: (QueueState.NEW, QueueStep.DROP, QueueStep.ADVANCE),
        QueueEvent.PROBE_LOST: (QueueState.NEW,),
        QueueEvent.SESSION_LOST: (QueueState.PROBING,),  # it will be sent again
        QueueEvent.ABANDONED: (QueueState.NEW, QueueStep.FAIL_ALL),
    },
    QueueState.CONFIRMING: {
        QueueEvent.ENQUEUED: (QueueState.CONFIRMING, QueueStep.WAIT),
        QueueEvent.ENQUEUED_UNACKED: (QueueState.CONFIRMING, QueueStep.WAIT),
        QueueEvent.ACKED: (QueueState.OPEN, QueueStep.ADVANCE),
        QueueEvent.REFUSED: (QueueState.OPEN, QueueStep.FAIL, QueueStep.ADVANCE),
        QueueEvent.LATE: (QueueState.CONFIRMING,),
        QueueEvent.ACCEPTED: (QueueState.NEW, QueueStep.ADVANCE),
        QueueEvent.STREAM_UNKNOWN: (QueueState.PROBING, QueueStep.RETRY),
        QueueEvent.STREAM_DELETED: (QueueState.CONFIRMING, QueueStep.FAIL),
        QueueEvent.EXPIRED: (QueueState.NEW, QueueStep.FAIL, QueueStep.ADVANCE),
        QueueEvent.CANCELLED: (QueueState.NEW, QueueStep.DROP, QueueStep.ADVANCE),
        QueueEvent.PROBE_LOST: (QueueState.NEW,),
        QueueEvent.ABANDONED: (QueueState.NEW, QueueStep.FAIL_ALL),
    },
    QueueState.OPEN: {
        QueueEvent.ENQUEUED: (QueueState.OPEN, QueueStep.SEND),
        QueueEvent.ENQUEUED_UNACKED: (QueueState.OPEN, QueueStep.SEND),
        QueueEvent.STREAM_DELETED: (QueueState.NEW, QueueStep.FAIL),
        QueueEvent.SESSION_LOST: (QueueState.NEW, QueueStep.ADVANCE),
        QueueEvent.ABANDONED: (QueueState.NEW, QueueStep.FAIL_ALL),
    },
}
"""The next state and the steps, by state and event. What is not listed cannot happen."""


class QueuedMessage(Protocol):
    """Attributes of a message that a queue reads."""

    @property
    def acked(self) -> bool:
        """True if the server acks it."""

    def done(self) -> bool:
        """Return True if its publisher has cancelled it."""


MessageT = TypeVar("MessageT", bound=QueuedMessage)


@dataclass(frozen=True, slots=True)
class Send(Generic[MessageT]):
    """Hand messages to the session, in order."""

    messages: Collection[MessageT]


@dataclass(frozen=True, slots=True)
class Retry(Generic[MessageT]):
    """Send the probe again, to the next broker."""

    message: MessageT


@dataclass(frozen=True, slots=True)
class Confirm(Generic[MessageT]):
    """Ask the broker whether it has accepted the probe."""

    message: MessageT


@dataclass(frozen=True, slots=True)
class Fail(Generic[MessageT]):
    """Settle messages with the error of the event."""

    messages: Collection[MessageT]


@dataclass(frozen=True, slots=True)
class Drop(Generic[MessageT]):
    """Forget cancelled messages."""

    messages: Collection[MessageT]


Action: TypeAlias = (
    Send[MessageT] | Retry[MessageT] | Confirm[MessageT] | Fail[MessageT] | Drop[MessageT]
)


class PartitionQueue(Generic[MessageT]):
    """The messages of one partition that are not settled, on their way through one session.

    Nothing else changes its state. Each method takes an event and returns the actions to carry
    out, in order. While it is OPEN, `enqueued` does no more than to return `Send` of the message,
    and `acked` no more than nothing, so that callers may skip both.
    """

    __slots__ = ("accepted", "probe", "state", "waiting")

    def __init__(self) -> None:
        self.state = QueueState.NEW
        self.probe: MessageT | None = None
        """The message that is sent alone, in PROBING and CONFIRMING."""
        self.accepted: set[MessageT] = set()
        """Messages that were probes, and that the broker has accepted and not acked."""
        self.waiting: deque[MessageT] = deque()

    def enqueued(self, message: MessageT) -> list[Action[MessageT]]:
        """Take a message that was published."""
        acked = message.acked
        return self._on(QueueEvent.ENQUEUED if acked else QueueEvent.ENQUEUED_UNACKED, message)

    def acked(self, message: MessageT) -> list[Action[MessageT]]:
        """Record that a message was acked."""
        return self._on(QueueEvent.ACKED, message) if self._proves(message) else []

    def refused(self, message: MessageT) -> list[Action[MessageT]]:
        """Record that a message was refused, but not because the stream is unknown."""
        if self._proves(message):
            return self._on(QueueEvent.REFUSED, message)
        return [Fail((message,))]

    def stream_unknown(self, message: MessageT) -> list[Action[MessageT]]:
        """Record that a message was refused because the broker does not know its stream.

        If it is not the probe, the broker knew the stream before, so it was deleted. The message is
        not sent again: those behind it could overtake it if the stream were created anew.
        """
        event = QueueEvent.STREAM_UNKNOWN if message is self.probe else QueueEvent.STREAM_DELETED
        return self._on(event, message)

    def late(self, message: MessageT) -> list[Action[MessageT]]:
        """Record that a message has not been acked for a while."""
        waited_for = message is self.probe and self.waiting
        return self._on(QueueEvent.LATE, message) if waited_for else []

    def was_accepted(self, message: MessageT) -> list[Action[MessageT]]:
        """Record that the broker has accepted the probe, which CONFIRM asked for."""
        return self._on(QueueEvent.ACCEPTED, message) if message is self.probe else []

    def expired(self, message: MessageT) -> list[Action[MessageT]]:
        """Record that the deadline of a message has passed."""
        self.accepted.discard(message)
        if message is self.probe:
            return self._on(QueueEvent.EXPIRED, message)
        return [Fail((message,))]

    def cancelled(self, message: MessageT) -> list[Action[MessageT]]:
        """Record that a message was cancelled before it was written."""
        if message is self.probe:
            return self._on(QueueEvent.CANCELLED, message)
        return [Drop((message,))]

    def session_lost(
        self, failed: Collection[MessageT] = (), returned: Iterable[MessageT] = ()
    ) -> list[Action[MessageT]]:
        """Record that the session broke, or that another takes its place.

        Args:
            failed: messages that were written; they are settled already.
            returned: messages that were not written, in order.
        """
        returned = list(returned)
        probe = self.probe
        if probe is not None and (probe in failed or probe in returned or probe.done()):
            self._on(QueueEvent.PROBE_LOST, probe)
        self.waiting.extendleft(reversed(returned))
        return self._on(QueueEvent.SESSION_LOST)

    def abandoned(self, returned: Iterable[MessageT] = ()) -> list[Action[MessageT]]:
        """Record that no message can be sent, those that a broken session returned included."""
        self.waiting.extendleft(reversed(list(returned)))
        return self._on(QueueEvent.ABANDONED)

    def clear(self) -> None:
        """Let go of all messages, which are settled."""
        self.state, self.probe = QueueState.NEW, None
        self.accepted.clear()
        self.waiting.clear()

    def _proves(self, message: MessageT) -> bool:
        """Return True if an answer to a message shows that the broker knows the stream."""
        return message is self.probe or message in self.accepted

    def _on(self, event: QueueEvent, message: MessageT | None = None) -> list[Action[MessageT]]:
        before, probe = self.state, self.probe
        entry = TABLE[before].get(event)
        if entry is None:
            raise AssertionError(
                f"a queue that is {before.value} cannot take the event {event.name}"
            )
        self.state, *steps = entry
        if event is QueueEvent.ACCEPTED and probe is not None:
            self.accepted.add(probe)
        elif self.state is QueueState.OPEN or event in _FORGETTING:
            self.accepted.clear()
        if self.state not in _PROBE_STATES:
            self.probe = None
        elif before not in _PROBE_STATES:
            self.probe = message
        return self._actions(steps, message, probe)

    def _actions(
        self, steps: Iterable[QueueStep], message: MessageT | None, probe: MessageT | None
    ) -> list[Action[MessageT]]:
        actions: list[Action[MessageT]] = []
        for step in steps:
            if step is QueueStep.ADVANCE:
                actions += self._advance()
            elif step is QueueStep.FAIL_ALL:
                actions.append(Fail([*([] if probe is None else [probe]), *self.waiting]))
                self.waiting.clear()
            elif message is None:
                continue  # the other steps are about one
            elif step is QueueStep.WAIT:
                self.waiting.append(message)
            elif step is QueueStep.RETRY:
                actions.append(Retry(message))
            elif step is QueueStep.CONFIRM:
                actions.append(Confirm(message))
            elif step is QueueStep.SEND:
                actions.append(Send((message,)))
            elif step is QueueStep.FAIL:
                actions.append(Fail((message,)))
            else:
                actions.append(Drop((message,)))
        return actions

    def _advance(self) -> list[Action[MessageT]]:
        sent: list[MessageT] = []
        dropped: list[MessageT] = []
        while self.waiting and self.probe is None:
            message = self.waiting.popleft()
            if message.done():
                dropped.append(message)
            else:
                self.enqueued(message)  # whose action is to send it
                sent.append(message)
        actions: list[Action[MessageT]] = [Drop(dropped)] if dropped else []
        return [*actions, Send(sent)] if sent else actions


_PROBE_STATES: Final = (QueueState.PROBING, QueueState.CONFIRMING)
_FORGETTING: Final = (QueueEvent.STREAM_UNKNOWN, QueueEvent.SESSION_LOST, QueueEvent.ABANDONED)
"""Events after which the broker may be another one, so that no earlier message tells of it."""
