"""Passes events to the user's hook; a hook that raises does no harm."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from liftbridge_aio.model import Ack, Message
from liftbridge_aio.telemetry import (
    Connected,
    Hook,
    Lost,
    MetadataRefreshed,
    PublishFailed,
    Resubscribed,
    Retried,
    Subscribed,
    SubscriptionEnded,
)

logger = logging.getLogger("liftbridge_aio.hook")

EventT = TypeVar("EventT")


class Reporter:
    """Wraps a hook.

    `published` and `delivered` are None unless the hook overrides them, so that a message costs
    one test where nobody listens.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._complained: set[str] = set()
        kind = type(hook)
        self.published: Callable[[Ack], None] | None = None
        self.delivered: Callable[[Message], None] | None = None
        if kind.published is not Hook.published:
            self.published = self._guarded("published", hook.published)
        if kind.delivered is not Hook.delivered:
            self.delivered = self._guarded("delivered", hook.delivered)
        self.connected: Callable[[Connected], None] = self._guarded("connected", hook.connected)
        self.lost: Callable[[Lost], None] = self._guarded("lost", hook.lost)
        self.subscribed: Callable[[Subscribed], None] = self._guarded("subscribed", hook.subscribed)
        self.resubscribed: Callable[[Resubscribed], None] = self._guarded(
            "resubscribed", hook.resubscribed
        )
        self.subscription_ended: Callable[[SubscriptionEnded], None] = self._guarded(
            "subscription_ended", hook.subscription_ended
        )
        self.publish_failed: Callable[[PublishFailed], None] = self._guarded(
            "publish_failed", hook.publish_failed
        )
        self.retried: Callable[[Retried], None] = self._guarded("retried", hook.retried)
        self.metadata_refreshed: Callable[[MetadataRefreshed], None] = self._guarded(
            "metadata_refreshed", hook.metadata_refreshed
        )

    def _guarded(self, name: str, method: Callable[[EventT], None]) -> Callable[[EventT], None]:
        def report(event: EventT) -> None:
            try:
                method(event)
            except Exception:
                if name not in self._complained:
                    self._complained.add(name)
                    logger.exception("the hook's %s raised; later failures are not logged", name)

        return report
