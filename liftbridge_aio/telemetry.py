"""Events of the client: the hook that receives them, and frozen records.

Subclass `Hook` and override the methods of the events that you need. `ClientOptions(hook=…)` takes
one hook, or a sequence of hooks, which are called in its order. Methods are called synchronously on
the event loop, so they must be quick; one that raises is logged once and does no harm. The two
methods that are called per message (`published`, `delivered`) cost nothing unless they are
overridden.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from .errors import WrongType
from .model import Ack, EndReason, Message


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection to a broker was made."""

    address: str
    purpose: str
    """"control", "publish" or "subscribe": each has connections of its own."""


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """A connection to a broker could not be made; it is retried, or another broker is used."""

    address: str
    purpose: str
    error: BaseException
    """A `TLSFailed` or `NotLiftbridge` if retries at this address will not help."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A connection to a broker broke or failed its health check."""

    address: str
    purpose: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """One connection of a client, as it is at this moment."""

    address: str
    purpose: str
    """"control", "publish" or "subscribe": each has connections of its own."""
    state: str
    """"connecting" or "up"; connections that were lost or closed are not listed."""
    round_trip_time: float | None
    """Seconds that the last health check or ping on this connection took; None before the first.

    A connection is checked only when nothing has come on it for `ClientOptions.health_interval`.
    """


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """One partition that is being read, as it is at this moment."""

    stream: str
    partition: int
    address: str | None
    """The broker that serves it; None before the first has, and while it is disconnected."""
    position: int | None
    """The offset to be handed out next; None where it is not known yet."""
    lag: int | None
    """Offsets from `position` to the newest committed message that the client knows of.

    Known from metadata that was fetched anyway and from what was received, so it may be out of
    date; `Subscription.lag` asks the leader. None where nothing is known, and in reverse reading.
    """


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription was accepted by the server for the first time."""

    stream: str
    partition: int
    address: str
    start_offset: int | None
    """The first offset requested; None if a position or time was requested."""


@dataclass(frozen=True, slots=True)
class Resubscribed:
    """A broken subscription was resumed."""

    stream: str
    partition: int
    address: str
    next_offset: int | None
    """The next offset to be delivered; None if nothing has been delivered yet."""
    attempts: int
    """Attempts that it took."""
    seconds: float
    """Seconds for which the subscription was down."""


@dataclass(frozen=True, slots=True)
class MessagesMissed:
    """Messages were removed from the log before a subscription that asked for them could read them.

    By retention. Gaps left by compaction are no loss and not reported. But servers do not say which
    streams are compacted: if there is no gap between the oldest remaining messages, those that
    compaction removed before them are reported too.
    """

    stream: str
    partition: int
    first_offset: int
    """The first missing offset."""
    next_offset: int
    """The first offset after the missing ones."""


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """A subscription ended: normally (reason) or with an error."""

    stream: str
    partition: int
    reason: EndReason | None
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The position of a reader could not be stored as a cursor."""

    cursor_id: str
    stream: str
    partition: int
    offset: int
    """The position: the last offset that the reader has processed."""
    error: BaseException


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """The state, epoch or coordinator of a member of a consumer group has changed."""

    group: str
    consumer: str
    state: str
    """The value of a `GroupState`."""
    epoch: int
    coordinator: str


@dataclass(frozen=True, slots=True)
class PartitionBlocked:
    """A partition that is assigned to this member of a group cannot be read; it is retried."""

    group: str
    stream: str
    partition: int
    attempts: int
    """Failed attempts so far."""
    error: BaseException
    """A `PartitionTaken` if another member reads it, perhaps one of a deleted group of the same
    name: the server releases the partition only when that member's subscription ends."""


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """The handler of `ConsumerGroup.run`, or an interceptor around it, raised an exception.

    With `on_error="skip"` the message counts as processed; else the run stops, and it does not.
    """

    group: str
    stream: str
    partition: int
    offset: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class MessageSkipped:
    """A message was skipped because its value could not be decoded."""

    stream: str
    partition: int
    offset: int
    error: BaseException
    """An `UndecodableMessage`; it has the message."""


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """A publish failed; those with ack policy NONE are included."""

    stream: str
    partition: int
    correlation_id: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Retried:
    """A call is about to be retried."""

    call: str
    attempt: int
    """Failed attempts so far."""
    delay: float
    """Seconds until the next one."""
    error: BaseException


@dataclass(frozen=True, slots=True)
class MetadataRefreshed:
    """The metadata cache was refreshed."""

    brokers: int
    streams: int


class Hook:
    """Receives events: subclass it and override the methods of the events that you need."""

    __slots__ = ()

    def connected(self, event: Connected) -> None:
        """Handle a new connection."""

    def connect_failed(self, event: ConnectFailed) -> None:
        """Handle a connection that could not be made."""

    def lost(self, event: Lost) -> None:
        """Handle a lost connection."""

    def subscribed(self, event: Subscribed) -> None:
        """Handle a new subscription."""

    def resubscribed(self, event: Resubscribed) -> None:
        """Handle a subscription that was resumed."""

    def messages_missed(self, event: MessagesMissed) -> None:
        """Handle messages that were removed from the log before they were read."""

    def subscription_ended(self, event: SubscriptionEnded) -> None:
        """Handle the end of a subscription."""

    def commit_failed(self, event: CommitFailed) -> None:
        """Handle a position that could not be committed; it is retried later."""

    def group_changed(self, event: GroupChanged) -> None:
        """Handle a change of a consumer group's member."""

    def partition_blocked(self, event: PartitionBlocked) -> None:
        """Handle a partition of a consumer group that cannot be read for now."""

    def handler_failed(self, event: HandlerFailed) -> None:
        """Handle an exception of the handler of `ConsumerGroup.run`."""

    def message_skipped(self, event: MessageSkipped) -> None:
        """Handle a skipped message, whose value could not be decoded."""

    def publish_failed(self, event: PublishFailed) -> None:
        """Handle a failed publish, also if nothing waits for its ack."""

    def retried(self, event: Retried) -> None:
        """Handle a call that is retried."""

    def metadata_refreshed(self, event: MetadataRefreshed) -> None:
        """Handle refreshed metadata."""

    def published(self, ack: Ack) -> None:
        """Handle an ack; called per message if overridden."""

    def delivered(self, message: Message) -> None:
        """Handle a message delivered to the user; called per message if overridden."""


NO_HOOK = Hook()
"""The default: handles no events."""


_EVENTS: Final = tuple(name for name in vars(Hook) if not name.startswith("_"))


def hooks_of(hook: Hook | Sequence[Hook]) -> tuple[Hook, ...]:
    """Return one hook or several as a tuple. A hook need not come from `Hook`.

    Raises:
        WrongType: one of them is not a hook: it is a class, has no method of a hook, or has one
            that cannot be called or is `async def`.
    """
    several = isinstance(hook, Sequence) and not isinstance(hook, Hook | str)
    hooks = tuple(cast("Sequence[Hook]", hook)) if several else (cast("Hook", hook),)
    for each in hooks:
        _check_hook(each)
    return hooks


def _check_hook(hook: object) -> None:
    if isinstance(hook, type):
        raise WrongType(
            f"a hook is an instance, not the class {hook.__name__}: make one, {hook.__name__}()"
        )
    methods = {name: getattr(hook, name) for name in _EVENTS if hasattr(hook, name)}
    if not methods:
        raise WrongType(f"a hook is an instance of a subclass of Hook, not {hook!r}")
    for name, method in methods.items():
        if not callable(method):
            raise WrongType(f"the {name} of the hook {hook!r} is a method, not {method!r}")
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise WrongType(
                f"the {name} of the hook {hook!r} is async def, but hooks are called and not"
                " awaited: make it a plain method, which may start a task"
            )


def listens(hook: Hook, event: str) -> bool:
    """Return True if a hook defines the method of an event itself."""
    return getattr(type(hook), event, None) not in {None, getattr(Hook, event)}
