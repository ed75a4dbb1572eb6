"""The validated arguments of `Client.queue`, and what a queue needs of the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from liftbridge_aio._admin.streams import StreamAdministration
from liftbridge_aio._publish.retry import RetryingPublisher
from liftbridge_aio._subscribe.core.memory_budget import MemoryBudget
from liftbridge_aio._subscribe.core.visibility import MakeVisibility
from liftbridge_aio.groups.core.group_plan import OnReset
from liftbridge_aio.interceptors import Interceptor
from liftbridge_aio.model import Message, StartAt
from liftbridge_aio.transactions.sender import PublishingClient

from .core.ack_window import WindowSettings
from .delivery import Delivery
from .policies import DeadLetter, Probing, RetryStreams

OnGivingUp: TypeAlias = Callable[[Delivery], Awaitable[object] | object]
"""Called with a message that is given up: a coroutine function, or a plain function."""

ReadAt: TypeAlias = Callable[[str, int, int], Awaitable[Message | None]]
"""Reads the message at an offset of a partition; None if the log does not have it any more."""


class QueueClient(PublishingClient, Protocol):
    """The parts of a connected client that a queue needs."""

    @property
    def streams(self) -> StreamAdministration:
        """Creates the stream of acks."""

    @property
    def retrying(self) -> RetryingPublisher:
        """Writes acks."""

    @property
    def budget(self) -> MemoryBudget:
        """Limits the unread bytes of this process."""

    @property
    def queues(self) -> WeakSet[Any]:
        """The queues that the client closes with itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """The arguments of `Client.queue`."""

    stream: str
    group: str
    """The id of the consumer group that shares the partitions."""
    consumer_id: str | None
    """The id of this member; None for a new one each time."""
    stores_acks: bool
    """False to keep acks in memory."""
    is_ephemeral: bool
    """True to forget the acks that are stored with the last member of the group."""
    start: StartAt
    on_reset: OnReset
    max_in_flight: int
    window: WindowSettings
    retry_streams: RetryStreams | None
    dead_letter: DeadLetter | None
    on_giving_up: OnGivingUp | None
    backoff: Probing | None
    sample: float
    """The part of the messages that is handed out."""
    commit_interval: float
    timeout: float
    close_timeout: float
    resume: bool = False
    """True to resume paused partitions, now and later."""
    nats: tuple[str, ...] = ()
    """NATS servers over which members lease messages to each other; empty: they do not."""
    make_visibility: MakeVisibility | None = None
    """Chooses what is shown of each partition; None shows all."""
    interceptors: tuple[Interceptor, ...] = ()
