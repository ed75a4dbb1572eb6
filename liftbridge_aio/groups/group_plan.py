"""What a user asked of a member of a group, checked and with defaults filled in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from liftbridge_aio.model import StartAt

from .assignment import Assignment

Handler: TypeAlias = Callable[[Assignment], Awaitable[None]]
"""Told of partitions, and awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The arguments of `Client.group`."""

    group: str
    streams: tuple[str, ...]
    consumer_id: str | None
    start: StartAt | None
    commit_interval: float | None
    on_assigned: Handler | None
    on_revoked: Handler | None
    timeout: float
    """Seconds to join, and for each call of its own."""
    close_timeout: float
