"""What a member is asked to do: the checked arguments of `Client.group`, and an assignment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from liftbridge_aio.interceptors import Interceptor
from liftbridge_aio.model import StartAt, StreamPartition

Assignment: TypeAlias = frozenset[StreamPartition]
"""The partitions that are assigned to a member."""

RebalanceCallback: TypeAlias = Callable[[Assignment], Awaitable[object] | object]
"""Called with partitions: a coroutine function, which is awaited, or a plain function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The arguments of `Client.group`."""

    group: str
    streams: tuple[str, ...]
    consumer_id: str | None
    start: StartAt | None
    commit_interval: float | None
    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None
    resume: bool
    """Resume partitions that are paused, whenever they are."""
    timeout: float
    """Seconds to join, and for each call of its own."""
    close_timeout: float
    interceptors: tuple[Interceptor, ...] = ()
    """Those of the client; they wrap the handler of `ConsumerGroup.run`."""
