"""Passes events to the user's hook; a hook that raises does no harm."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from liftbridge_aio.model import Ack, Message
from liftbridge_aio.telemetry import (
    NO_HOOK,
    CommitFailed,
    Connected,
    ConnectFailed,
    GroupChanged,
    Hook,
    Lost,
    MessageSkipped,
    MetadataRefreshed,
    PartitionBlocked,
    PublishFailed,
    Resubscribed,
    Retried,
    Subscribed,
    SubscriptionEnded,
)

logger = logging.getLogger("liftbridge_aio.hook")


class Reporter:
    """Wraps a hook.

    `published` and `delivered` are None unless the hook overrides them, so that a message costs
    one test where nobody listens.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._complained: set[str] = set()
        self.published: Callable[[Ack], None] | None = None
        self.delivered: Callable[[Message], None] | None = None
        if self._overridden("published"):
            self.published = self._guarded("published")
        if self._overridden("delivered"):
            self.delivered = self._guarded("delivered")
        self.connected: Callable[[Connected], None] = self._guarded("connected")
        self.connect_failed: Callable[[ConnectFailed], None] = self._guarded("connect_failed")
        self.lost: Callable[[Lost], None] = self._guarded("lost")
        self.subscribed: Callable[[Subscribed], None] = self._guarded("subscribed")
        self.resubscribed: Callable[[Resubscribed], None] = self._guarded("resubscribed")
        self.subscription_ended: Callable[[SubscriptionEnded], None] = self._guarded(
            "subscription_ended"
        )
        self.commit_failed: Callable[[CommitFailed], None] = self._guarded("commit_failed")
        self.group_changed: Callable[[GroupChanged], None] = self._guarded("group_changed")
        self.partition_blocked: Callable[[PartitionBlocked], None] = self._guarded(
            "partition_blocked"
        )
        self.message_skipped: Callable[[MessageSkipped], None] = self._guarded("message_skipped")
        self.publish_failed: Callable[[PublishFailed], None] = self._guarded("publish_failed")
        self.retried: Callable[[Retried], None] = self._guarded("retried")
        self.metadata_refreshed: Callable[[MetadataRefreshed], None] = self._guarded(
            "metadata_refreshed"
        )

    def _overridden(self, name: str) -> bool:
        return getattr(type(self._hook), name, None) not in {None, getattr(Hook, name)}

    def _guarded(self, name: str) -> Callable[[Any], None]:
        # A hook need not come from Hook; what it does not have, it does not want to hear.
        method = getattr(self._hook, name, getattr(NO_HOOK, name))

        def report(event: object) -> None:
            try:
                method(event)
            except Exception:
                if name not in self._complained:
                    self._complained.add(name)
                    logger.exception("the hook's %s raised; later failures are not logged", name)

        return report
