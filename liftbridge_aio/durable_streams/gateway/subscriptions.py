"""The subscriptions of a gateway: registered beside its streams, woken, and their workers leased.

Any gateway may wake any subscription; who registers the wake delivers it, and if it is killed
before it has, the lease ends and another gateway does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from liftbridge_aio.durable_streams.core.protocol import JSON_CONTENT_TYPE, is_json
from liftbridge_aio.durable_streams.core.registry import Entry
from liftbridge_aio.durable_streams.core.requests import RequestRefused
from liftbridge_aio.durable_streams.core.stream_log import Append
from liftbridge_aio.durable_streams.core.subscriptions import (
    PULL_WAKE,
    WEBHOOK,
    Answer,
    Subscription,
    SubscriptionRefused,
)
from liftbridge_aio.errors import LiftbridgeError

from .streams import PREFIX, Streams
from .webhooks import Webhooks

logger = logging.getLogger("liftbridge_aio.durable_streams")

_KEY: Final = "subscription:"
_LOOK_INTERVAL: Final = 0.2
"""Seconds between looks for messages that are not acknowledged."""


class Subscriptions:
    """All subscriptions of a gateway.

    Args:
        streams: the streams.
        webhooks: delivers wakes over HTTP; None if that is switched off.
    """

    # State, changed only in the event loop: `_known` by `apply`.

    def __init__(self, streams: Streams, webhooks: Webhooks | None) -> None:
        self.webhooks = webhooks
        self._streams = streams
        self._known: dict[str, Subscription] = {}
        streams.registry.on_record(_KEY, self._apply)

    def start(self) -> None:
        """Look for messages again and again, in a task of the streams."""
        self._streams.spawn(self._look_often, name="subscriptions")

    def _apply(self, name: str, value: bytes) -> None:
        if value:
            self._known[name] = Subscription.from_json(value)
        else:
            self._known.pop(name, None)

    async def _change(self, name: str, decide: Callable[[], Subscription | None]) -> None:
        """Register what `decide` returns; it is called again if another gateway was first."""

        def value() -> bytes:
            subscription = decide()
            return b"" if subscription is None else subscription.to_json()

        await self._streams.registry.record(_KEY + name, value)

    def find(self, name: str) -> Subscription:
        """Return a subscription.

        Raises:
            SubscriptionRefused: there is none.
        """
        found = self._known.get(name)
        if found is None:
            raise SubscriptionRefused(
                404, "SUBSCRIPTION_NOT_FOUND", "there is no such subscription"
            )
        return found

    async def _tails(self, subscription: Subscription) -> dict[str, str]:
        """Return the ends of the streams of a subscription, by path below the root."""
        tails = {}
        for path, entry in self._streams.registry.names():
            short = path.removeprefix(PREFIX)
            if short in subscription.links or subscription.matches(short):
                tails[short] = await self._tail(entry)
        return tails

    async def _tail(self, entry: Entry) -> str:
        with self._streams.logs.using(entry):
            return entry.positions.offset(await self._streams.logs.tail(entry))

    async def create(self, wanted: Subscription) -> tuple[Subscription, bool]:
        """Create a subscription, or find the same one; True if it is new.

        Cancelling may leave it created.

        Raises:
            SubscriptionRefused: there is another one, webhooks are switched off, or its wakes
                could not be appended.
            LiftbridgeError: it could not be registered.
        """
        if wanted.kind == WEBHOOK and self.webhooks is None:
            raise _refused("webhooks are switched off here")
        if wanted.kind == PULL_WAKE and wanted.id not in self._known:
            await self._check_wake_stream(wanted)
        tails = await self._tails(wanted.naming(wanted.named, {}))
        made = wanted.naming(wanted.named, tails).linked(tails, tails)
        made = replace(made, created_at=datetime.now(UTC).isoformat(timespec="milliseconds"))
        new = True

        def decide() -> Subscription:
            nonlocal new
            known = self._known.get(wanted.id)
            new = known is None
            if known is None:
                return made
            if not known.same_as(wanted):
                raise SubscriptionRefused(
                    409,
                    "SUBSCRIPTION_ALREADY_EXISTS",
                    "the subscription exists, and is configured otherwise",
                )
            return known

        await self._change(wanted.id, decide)
        return self.find(wanted.id), new

    async def _check_wake_stream(self, wanted: Subscription) -> None:
        """Refuse a stream that cannot take wakes, or in which each would cause another."""
        path = _wake_path(wanted)
        if path in wanted.named or wanted.matches(path):
            raise _refused(f"{path} cannot be the wake_stream and a stream of the subscription")
        try:
            entry = await self._streams.registry.find(PREFIX + path)
        except RequestRefused:
            raise _refused(
                f"there is no wake_stream {path}; create it with the type {JSON_CONTENT_TYPE}"
            ) from None
        if not is_json(entry.content_type):
            raise _refused(f"the wake_stream {path} has another type than {JSON_CONTENT_TYPE}")

    async def delete(self, name: str) -> None:
        """Delete a subscription; none is fine. Cancelling leaves it open if it is deleted."""
        if name in self._known:
            await self._change(name, lambda: None)

    async def add(self, name: str, paths: tuple[str, ...]) -> None:
        """Add streams. Cancelling leaves it open if they are added."""
        found = self.find(name)
        if found.kind == PULL_WAKE and _wake_path(found) in paths:
            raise _refused("the wake_stream cannot be a stream of the subscription")
        tails = await self._tails(found.naming(paths, {}))
        await self._change(name, lambda: self.find(name).naming(paths, tails))

    async def remove(self, name: str, path: str) -> None:
        """Remove a stream that was added. Cancelling leaves it open if it is removed."""
        self.find(name)
        await self._change(name, lambda: self.find(name).without(path))

    async def claim(self, name: str, worker: str) -> dict[str, Any]:
        """Give the wake of a subscription to a worker; return what it is told.

        Cancelling may leave it claimed until the lease is over.

        Raises:
            SubscriptionRefused: another worker has it, or nothing is pending.
            LiftbridgeError: it could not be registered.
        """
        tails = await self._tails(self.find(name))
        token = secrets.token_urlsafe(24)

        def decide() -> Subscription:
            now = time.time()
            found = self._pulled(name).linked(tails)
            if found.claimed(now):
                text = "another worker has it"
                more = {"current_holder": found.holder, "generation": found.generation}
                raise SubscriptionRefused(409, "ALREADY_CLAIMED", text, **more)
            if not found.pending(tails):
                raise SubscriptionRefused(409, "NO_PENDING_WORK", "nothing is pending")
            if not found.is_open(now):
                found = found.woken(_wake_id(), None, tails, now)
            return found.held(worker, _digest(token), now)

        await self._change(name, decide)
        return {**self._wake(self.find(name), tails), "token": token}

    def _pulled(self, name: str) -> Subscription:
        found = self.find(name)
        if found.kind != PULL_WAKE:
            raise _refused("it is no pull-wake subscription")
        return found

    async def answer(self, name: str, answer: Answer, token: str, *, pulled: bool) -> bool:
        """Take what a worker says of its wake; return True if there is more to do.

        Cancelling leaves it open if it is taken.

        Raises:
            SubscriptionRefused: the wake is over, or the answer is invalid.
            LiftbridgeError: it could not be registered.
        """
        tails = await self._tails(self.find(name))

        def decide() -> Subscription:
            now = time.time()
            found = self._pulled(name) if pulled else self.find(name)
            found.check(answer, _digest(token), now)
            return found.answered(answer, tails, now)

        await self._change(name, decide)
        return answer.done and bool(self.find(name).pending(tails))

    async def release(self, name: str, answer: Answer, token: str) -> None:
        """Take a wake back from its worker. Cancelling leaves it open if it is taken back.

        Raises:
            SubscriptionRefused: the wake is over.
            LiftbridgeError: it could not be registered.
        """

        def decide() -> Subscription:
            found = self._pulled(name)
            found.check(answer, _digest(token), time.time())
            return found.released()

        await self._change(name, decide)

    def _wake(self, subscription: Subscription, tails: Mapping[str, str]) -> dict[str, Any]:
        pending = set(subscription.pending(tails))
        return {
            "subscription_id": subscription.id,
            "wake_id": subscription.wake_id,
            "generation": subscription.generation,
            "lease_ttl_ms": subscription.lease_ms,
            "streams": [
                {
                    "path": path,
                    "link_type": "explicit" if link.explicit else "glob",
                    "acked_offset": link.acked,
                    "tail_offset": tails[path],
                    "has_pending": path in pending,
                }
                for path, link in subscription.links.items()
                if path in tails
            ],
        }

    # Waking

    async def _look_often(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            for name in list(self._known):
                try:
                    await self._look(name)
                except SubscriptionRefused:
                    pass  # deleted meanwhile
                except (LiftbridgeError, RequestRefused) as error:
                    if self._streams.reachable:
                        logger.warning("the subscription %s is looked at again: %s", name, error)

    async def _look(self, name: str) -> None:
        """Wake a subscription that has pending messages and no wake."""
        found = self.find(name)
        if found.kind == WEBHOOK and self.webhooks is None:
            return  # another gateway may
        tails = await self._tails(found)
        if not _due(found.linked(tails), tails):
            return
        token = secrets.token_urlsafe(24) if found.kind == WEBHOOK else None
        woken = False

        def decide() -> Subscription:
            nonlocal woken
            present = self.find(name).linked(tails)
            woken = _due(present, tails)
            if not woken:
                return present
            digest = None if token is None else _digest(token)
            return present.woken(_wake_id(), digest, tails, time.time())

        await self._change(name, decide)
        if woken:
            present = self.find(name)
            if token is None:
                await self._tell_workers(present, present.pending(tails)[0])
            else:
                body = {**self._wake(present, tails), "callback_token": token}
                self._streams.spawn(self._deliver, present, body, name=f"webhook:{name}")

    async def _tell_workers(self, subscription: Subscription, path: str) -> None:
        """Append the wake to the stream that workers read; one that is missing is logged."""
        event = {
            "type": "wake",
            "subscription_id": subscription.id,
            "stream": path,
            "generation": subscription.generation,
            "ts": int(time.time() * 1000),
        }
        target = PREFIX + _wake_path(subscription)
        entry = await self._streams.registry.find(target, touch=True)
        with self._streams.logs.using(entry):
            hosted = await self._streams.logs.own(entry, to_append=True)
            await hosted.append(Append(json.dumps(event, separators=(",", ":")).encode()))

    async def _deliver(self, subscription: Subscription, body: dict[str, Any]) -> None:
        """Deliver a wake, and register what became of it."""
        if self.webhooks is None or subscription.webhook is None:
            return
        done = await self.webhooks.deliver(subscription.id, subscription.webhook, body)

        def decide() -> Subscription:
            present = self.find(subscription.id)
            if present.generation != subscription.generation or present.wake_id is None:
                return present  # answered, or replaced
            return present.done() if done else present.failed(time.time())

        if done is not None:
            try:
                await self._change(subscription.id, decide)
            except (SubscriptionRefused, LiftbridgeError) as error:
                logger.warning("the wake of %s ends with its lease: %s", subscription.id, error)


def _wake_path(subscription: Subscription) -> str:
    """Return the path of the stream that wakes are appended to, below the root."""
    return str(subscription.wake_stream).strip("/")


def _refused(text: str) -> SubscriptionRefused:
    return SubscriptionRefused(400, "INVALID_REQUEST", text)


def _due(subscription: Subscription, tails: Mapping[str, str]) -> bool:
    now = time.time()
    if subscription.is_open(now) or now < subscription.not_before:
        return False
    return bool(subscription.pending(tails))


def _wake_id() -> str:
    return f"wake_{secrets.token_hex(8)}"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
