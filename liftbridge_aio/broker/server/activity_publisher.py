"""Publishes the activity stream: an event in `__activity` for each operation."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import anyio

from liftbridge_aio.broker.cluster.activity import activity_event
from liftbridge_aio.broker.cluster.incoming import Incoming
from liftbridge_aio.broker.cluster.messages import refusal_of
from liftbridge_aio.broker.errors import BrokerError, PublishRefused
from liftbridge_aio.broker.storage.core.operations import Operation, PublishActivity
from liftbridge_aio.model import ACTIVITY_STREAM, AckPolicy

from .broker_context import BrokerContext, FirstAck

_PUBLISH_TIMEOUT: Final = 5.0  # seconds, as on a real server
_FIRST_BACKOFF: Final = 1.0  # seconds
_MAX_BACKOFF: Final = 10.0

logger = logging.getLogger("liftbridge_aio.broker")


class ActivityPublisher:
    """Publishes events in order, each at least once, while its node leads the metadata."""

    def __init__(self, context: BrokerContext) -> None:
        """Publish for a broker."""
        self._context = context
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Publish until cancelled. Failures are logged, and retried after the next operation."""
        self._context.controller.watch(self._changed.set)
        try:
            while True:
                self._changed.clear()
                try:
                    more = self._leads() and await self._publish_next()
                except Exception:  # the task must survive
                    logger.exception("cannot publish to the activity stream")
                    more = False
                if not more:
                    await self._changed.wait()
        finally:
            self._context.controller.unwatch(self._changed.set)

    def _leads(self) -> bool:
        controller = self._context.controller
        return controller.has_leader() and controller.leader() is self._context.node

    async def _publish_next(self) -> bool:
        for index, operation in self._context.controller.operations_after(
            self._context.node.published_activity
        ):
            value = activity_event(operation, index)
            if value is not None:
                await self._publish(index, operation, value)
                return True
        return False

    async def _publish(self, index: int, operation: Operation, value: bytes) -> None:
        backoff = _FIRST_BACKOFF
        while True:
            try:
                with anyio.fail_after(_PUBLISH_TIMEOUT):
                    await self._publish_once(value)
                self._context.controller.propose(
                    PublishActivity(index=index), self._context.clock.now_ns()
                )
            except (BrokerError, PublishRefused, TimeoutError) as error:
                name = type(operation).__name__
                logger.warning(
                    "cannot publish the activity event of a %s, retrying: %s", name, error
                )
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, _MAX_BACKOFF)
            else:
                return

    async def _publish_once(self, value: bytes) -> None:
        ack = FirstAck()
        incoming = Incoming(
            b"",
            value,
            {},
            self._context.inbox(),
            "",
            AckPolicy.ALL,
            ack.take,
            expected_offset=0,
            stream=ACTIVITY_STREAM,
        )
        self._context.publish(ACTIVITY_STREAM, 0, incoming)
        refused = refusal_of(await ack.wait())
        if refused is not None:
            raise refused
