"""Calls the user's hooks with events; exceptions of hooks are logged and have no effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from liftbridge_aio._core.foreign_cancellation import CALLBACK_ERRORS
from liftbridge_aio.model import Ack, Message
from liftbridge_aio.telemetry import (
    CommitFailed,
    Connected,
    ConnectFailed,
    GroupChanged,
    HandlerFailed,
    Hook,
    Lost,
    MessageSkipped,
    MessagesMissed,
    MetadataRefreshed,
    PartitionBlocked,
    PublishFailed,
    Resubscribed,
    Retried,
    Subscribed,
    SubscriptionEnded,
    hooks_of,
    listens,
)

logger = logging.getLogger("liftbridge_aio.hook")


class Reporter:
    """Wraps one hook or several.

    `published` and `delivered` are None unless a hook overrides them, so that a message costs
    one test where nobody listens.
    """

    def __init__(self, hook: Hook | Sequence[Hook]) -> None:
        self._hooks = hooks_of(hook)
        self._complained: set[tuple[int, str]] = set()
        """Methods of hooks that have raised."""
        self.published: Callable[[Ack], None] | None = None
        self.delivered: Callable[[Message], None] | None = None
        if self._listeners("published"):
            self.published = self._guarded("published")
        if self._listeners("delivered"):
            self.delivered = self._guarded("delivered")
        self.connected: Callable[[Connected], None] = self._guarded("connected")
        self.connect_failed: Callable[[ConnectFailed], None] = self._guarded("connect_failed")
        self.lost: Callable[[Lost], None] = self._guarded("lost")
        self.subscribed: Callable[[Subscribed], None] = self._guarded("subscribed")
        self.resubscribed: Callable[[Resubscribed], None] = self._guarded("resubscribed")
        self.messages_missed: Callable[[MessagesMissed], None] = self._guarded("messages_missed")
        self.subscription_ended: Callable[[SubscriptionEnded], None] = self._guarded(
            "subscription_ended"
        )
        self.commit_failed: Callable[[CommitFailed], None] = self._guarded("commit_failed")
        self.group_changed: Callable[[GroupChanged], None] = self._guarded("group_changed")
        self.partition_blocked: Callable[[PartitionBlocked], None] = self._guarded(
            "partition_blocked"
        )
        self.handler_failed: Callable[[HandlerFailed], None] = self._guarded("handler_failed")
        self.message_skipped: Callable[[MessageSkipped], None] = self._guarded("message_skipped")
        self.publish_failed: Callable[[PublishFailed], None] = self._guarded("publish_failed")
        self.retried: Callable[[Retried], None] = self._guarded("retried")
        self.metadata_refreshed: Callable[[MetadataRefreshed], None] = self._guarded(
            "metadata_refreshed"
        )

    def _listeners(self, name: str) -> list[tuple[int, Callable[[Any], None]]]:
        """Return the methods for an event, each with the number of its hook."""
        # Only methods that a hook defines are called.
        return [
            (number, getattr(hook, name))
            for number, hook in enumerate(self._hooks)
            if listens(hook, name)
        ]

    def _guarded(self, name: str) -> Callable[[Any], None]:
        listeners = self._listeners(name)

        def report(event: object) -> None:
            for number, method in listeners:
                try:
                    method(event)
                except CALLBACK_ERRORS:
                    if (number, name) not in self._complained:
                        self._complained.add((number, name))
                        text = "the hook's %s raised; later failures are not logged"
                        logger.exception(text, name)

        return report
