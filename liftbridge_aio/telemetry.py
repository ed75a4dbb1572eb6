"""What the client tells whoever wants to watch it: a hook and frozen event records.

Subclass `Hook` and override what you care for. Methods are called synchronously on the event
loop, so they must be quick; one that raises is logged once and does no harm. The two methods that
are called per message (`published`, `delivered`) cost nothing unless they are overridden.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Ack, EndReason, Message


@dataclass(frozen=True, slots=True)
class Connected:
    """A link to a broker stands."""

    address: str
    purpose: str
    """"control", "publish" or "subscribe": each has links of its own."""


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """A link to a broker could not be made; others may take its place, or another try."""

    address: str
    purpose: str
    error: BaseException
    """A `TLSFailed` or `NotLiftbridge` where no other try at this address will mend it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A link to a broker broke or was found dead."""

    address: str
    purpose: str
    reason: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription was accepted by the server for the first time."""

    stream: str
    partition: int
    address: str
    start_offset: int | None
    """The first offset asked for; None where a position or time was asked for."""


@dataclass(frozen=True, slots=True)
class Resubscribed:
    """A broken subscription goes on."""

    stream: str
    partition: int
    address: str
    next_offset: int | None
    """The next offset to come; None where nothing had been delivered."""
    attempts: int
    """Tries that it took."""
    seconds: float
    """How long the subscription was down."""


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """A subscription is over: in an orderly way (reason) or not (error)."""

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
    """The position: the last offset with which the reader is done."""
    error: BaseException


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A member of a consumer group is in another state, or has another epoch or coordinator."""

    group: str
    consumer: str
    state: str
    """The value of a `GroupState`."""
    epoch: int
    coordinator: str


@dataclass(frozen=True, slots=True)
class PartitionBlocked:
    """A partition that is assigned to this member of a group cannot be read; it is tried again."""

    group: str
    stream: str
    partition: int
    attempts: int
    """Tries that failed so far."""
    error: BaseException
    """A `PartitionTaken` where another member reads it, perhaps one of a group of the same name
    that was deleted: the server lets it go only when that one's subscription ends."""


@dataclass(frozen=True, slots=True)
class MessageSkipped:
    """A message was left out of a reading of values because its value could not be read."""

    stream: str
    partition: int
    offset: int
    error: BaseException
    """An `UndecodableMessage`; it has the message."""


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """A publish ended in an error, those with ack policy NONE included."""

    stream: str
    partition: int
    correlation_id: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Retried:
    """A call is about to be tried again."""

    call: str
    attempt: int
    """How many tries failed so far."""
    delay: float
    """Seconds until the next one."""
    error: BaseException


@dataclass(frozen=True, slots=True)
class MetadataRefreshed:
    """The metadata cache took in an answer."""

    brokers: int
    streams: int


class Hook:
    """The protocol of a watcher: subclass it and override what you care for."""

    __slots__ = ()

    def connected(self, event: Connected) -> None:
        """Take note of a new link."""

    def connect_failed(self, event: ConnectFailed) -> None:
        """Take note of a link that could not be made."""

    def lost(self, event: Lost) -> None:
        """Take note of a broken link."""

    def subscribed(self, event: Subscribed) -> None:
        """Take note of a new subscription."""

    def resubscribed(self, event: Resubscribed) -> None:
        """Take note of a subscription that goes on after a break."""

    def subscription_ended(self, event: SubscriptionEnded) -> None:
        """Take note of the end of a subscription."""

    def commit_failed(self, event: CommitFailed) -> None:
        """Take note of a position that could not be stored; it is tried again by and by."""

    def group_changed(self, event: GroupChanged) -> None:
        """Take note of how a member of a consumer group is."""

    def partition_blocked(self, event: PartitionBlocked) -> None:
        """Take note of a partition of a consumer group that cannot be read for now."""

    def message_skipped(self, event: MessageSkipped) -> None:
        """Take note of a message whose value could not be read, where such are skipped."""

    def publish_failed(self, event: PublishFailed) -> None:
        """Take note of a publish that failed, also one that nobody waits for."""

    def retried(self, event: Retried) -> None:
        """Take note of a call that is tried again."""

    def metadata_refreshed(self, event: MetadataRefreshed) -> None:
        """Take note of fresh metadata."""

    def published(self, ack: Ack) -> None:
        """Take note of each ack; called per message if overridden."""

    def delivered(self, message: Message) -> None:
        """Take note of each message handed to the user; called per message if overridden."""


NO_HOOK = Hook()
"""The default: tells nobody."""
