"""The validated arguments of `Client.group`, and the type of an assignment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from liftbridge_aio._subscribe.core.visibility import MakeVisibility
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.interceptors import Interceptor
from liftbridge_aio.model import StartAt, StreamPartition

Assignment: TypeAlias = frozenset[StreamPartition]
"""The partitions that are assigned to a member."""

RebalanceCallback: TypeAlias = Callable[[Assignment], Awaitable[object] | object]
"""A callback for partitions: a coroutine function, which is awaited, or a plain function."""

OnReset: TypeAlias = Literal["error", "start"]
"""What a member does with a position in a former log of a stream: raise `StreamReset`, or begin at
its start."""


def check_on_reset(on_reset: str) -> None:
    """Refuse what is no `OnReset`.

    Raises:
        InvalidRequest: it is none.
    """
    if on_reset not in {"error", "start"}:
        raise InvalidRequest(f"on_reset is 'error' or 'start', not {on_reset!r}")


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
    unpause: bool
    """True to resume paused partitions, now and later."""
    timeout: float
    """Seconds to join; also the timeout of other calls."""
    close_timeout: float
    on_reset: OnReset = "error"
    make_visibility: MakeVisibility | None = None
    """Makes what decides about the messages of each partition; None shows all of them."""
    resumed: frozenset[str] = frozenset()
    """Streams whose partitions are resumed in any case: those of a queue's own."""
    interceptors: tuple[Interceptor, ...] = ()
    """The interceptors of the client, which wrap the handler of `ConsumerGroup.run`."""
    on_taken: Callable[[StreamPartition], None] | None = None
    """Called with a partition that another member has begun to read, before it is revoked."""
