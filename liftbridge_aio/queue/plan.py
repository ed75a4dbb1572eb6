"""The validated arguments of `Client.queue`, and the parts of the client that a queue uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from liftbridge_aio._admin.streams import StreamAdministration
from liftbridge_aio._publish.retry import RetryingPublisher
from liftbridge_aio._subscribe.core.memory_budget import MemoryBudget
from liftbridge_aio._subscribe.core.visibility import MakeVisibility
from liftbridge_aio.errors import InvalidRequest, UsageError
from liftbridge_aio.interceptors import Interceptor
from liftbridge_aio.model import Message
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.transactions.sender import PublishingClient

from .core.ack_window import Order, WindowSettings
from .options import QueueOptions
from .policies import checked_retry

ReadAt: TypeAlias = Callable[[str, int, int], Awaitable[Message | None]]
"""Reads the message at an offset of a partition; None if retention has removed it."""


class QueueClient(PublishingClient, Protocol):
    """The parts of a connected client that a queue uses."""

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
    """The checked arguments of `Client.queue`, and what the client adds to them."""

    stream: str
    group: str
    """The id of the consumer group that shares the partitions."""
    consumer_id: str | None
    """The id of this member; None for a new one each time."""
    stores_acks: bool
    """False to keep acks in memory."""
    is_ephemeral: bool
    """True to delete the stored acks with the last member of the group."""
    options: QueueOptions
    make_visibility: MakeVisibility | None
    """Makes the read-committed filter of a partition; None reads uncommitted."""
    timeout: float
    close_timeout: float
    interceptors: tuple[Interceptor, ...]
    """The interceptors of the client, which wrap the handler of `Queue.run`."""

    @property
    def tiers(self) -> tuple[float, ...]:
        """The waits of the retry streams, in seconds, ascending; empty without retry streams."""
        streams = self.options.retry_streams
        return () if streams is None else streams.tiers

    def window_settings(self) -> WindowSettings:
        """Return the settings of the ack window of a partition."""
        options = self.options
        return WindowSettings(
            timer_seconds(options.ack_wait),
            options.max_attempts,
            options.max_window,
            options.order,
            checked_retry(options.retry),
            self.tiers[0] if self.tiers else inf,
        )

    def check(self) -> None:
        """Refuse options that do not fit the stream or the kind of the queue.

        Raises:
            InvalidRequest: they do not fit.
            UsageError: `nats` is set, and nats-py is not installed.
        """
        options, is_shared = self.options, self.stores_acks and self.consumer_id is None
        if options.dead_letter is not None and options.dead_letter.stream == self.stream:
            raise InvalidRequest("dead letters need a stream of their own")
        if self.tiers and not (self.stores_acks and options.order is Order.NONE):
            raise InvalidRequest("retry_streams need a group or a durable, and Order.NONE")
        if options.nats is None:
            return
        if not is_shared:
            raise InvalidRequest("nats shares messages in a group: name one")
        try:
            import liftbridge_aio._runtime.nats_library  # noqa: F401, PLC0415 - only where it is used
        except ImportError as error:
            raise UsageError("nats needs nats-py: pip install nats-py") from error
