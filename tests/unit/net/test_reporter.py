from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from liftbridge_aio.model import Ack, EndReason, Message
from liftbridge_aio.net.reporter import Reporter
from liftbridge_aio.telemetry import (
    NO_HOOK,
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
)

PER_EVENT: dict[str, Any] = {
    "connected": Connected("a:1", "publish"),
    "connect_failed": ConnectFailed("a:1", "publish", LookupError()),
    "lost": Lost("a:1", "publish", "gone"),
    "subscribed": Subscribed("s", 0, "a:1", None),
    "resubscribed": Resubscribed("s", 0, "a:1", 4, 2, 0.5),
    "messages_missed": MessagesMissed("s", 0, 4, 9),
    "subscription_ended": SubscriptionEnded("s", 0, EndReason.CLOSED, None),
    "commit_failed": CommitFailed("reader", "s", 0, 3, ValueError()),
    "group_changed": GroupChanged("g", "c", "stable", 3, "a"),
    "partition_blocked": PartitionBlocked("g", "s", 0, 1, ValueError()),
    "handler_failed": HandlerFailed("g", "s", 0, 4, ValueError()),
    "message_skipped": MessageSkipped("s", 0, 4, ValueError()),
    "publish_failed": PublishFailed("s", 0, "1", ValueError()),
    "retried": Retried("CreateStream", 1, 0.1, ValueError()),
    "metadata_refreshed": MetadataRefreshed(1, 2),
}
PER_MESSAGE: dict[str, Any] = {
    "published": Ack("s", "s", "s", 3),
    "delivered": Message("s", 0, 3, b"", b"", 0),
}
EVENTS: dict[str, Any] = PER_EVENT | PER_MESSAGE


class Watcher(Hook):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def published(self, ack: Ack) -> None:
        self.seen.append(("published", ack))

    def delivered(self, message: Message) -> None:
        self.seen.append(("delivered", message))


def watching(name: str) -> type[Watcher]:
    def method(self: Watcher, event: Any) -> None:
        self.seen.append((name, event))

    return type("Watching", (Watcher,), {name: method})


def failing(name: str, error: type[BaseException] = LookupError) -> type[Hook]:
    def method(self: Hook, event: Any) -> None:
        raise error(self, event)

    return type("Failing", (Hook,), {name: method})


def test_every_method_of_a_hook_is_covered() -> None:
    assert set(EVENTS) == {name for name in vars(Hook) if not name.startswith("_")}


@pytest.mark.parametrize("name", EVENTS)
def test_each_event_reaches_its_method(name: str) -> None:
    watcher = watching(name)()
    getattr(Reporter(watcher), name)(EVENTS[name])
    assert watcher.seen == [(name, EVENTS[name])]


@pytest.mark.parametrize("name", PER_MESSAGE)
def test_nothing_is_called_per_message_unless_the_hook_asks_for_it(name: str) -> None:
    assert getattr(Reporter(NO_HOOK), name) is None
    other = next(iter(set(PER_MESSAGE) - {name}))
    reporter = Reporter(failing(name)())
    assert getattr(reporter, name) is not None
    assert getattr(reporter, other) is None


@pytest.mark.parametrize("error", [LookupError, asyncio.CancelledError])
@pytest.mark.parametrize("name", EVENTS)
def test_a_hook_that_raises_is_logged_once_and_does_no_harm(
    name: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter(failing(name, error)())
    for _ in range(3):
        getattr(reporter, name)(EVENTS[name])
    (record,) = caplog.records
    assert record.name == "liftbridge_aio.hook"
    assert record.levelno == logging.ERROR
    assert name in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is error


def test_each_method_that_raises_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(failing("lost"), failing("connected")):  # type: ignore[misc]
        pass

    reporter = Reporter(Failing())
    for _ in range(2):
        reporter.lost(PER_EVENT["lost"])
        reporter.connected(PER_EVENT["connected"])
    assert len(caplog.records) == 2


def test_hooks_are_called_in_order_even_if_one_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, last = watching("lost")(), watching("lost")()
    reporter = Reporter([first, failing("lost")(), failing("lost")(), last])
    for _ in range(2):
        reporter.lost(PER_EVENT["lost"])
    assert first.seen == last.seen == [("lost", PER_EVENT["lost"])] * 2
    assert len(caplog.records) == 2, "one of each that raises"
    assert reporter.published is not None
    reporter.published(EVENTS["published"])
    assert first.seen[2:] == last.seen[2:] == [("published", EVENTS["published"])]
    assert Reporter([NO_HOOK, NO_HOOK]).published is None
    Reporter([]).lost(PER_EVENT["lost"])
