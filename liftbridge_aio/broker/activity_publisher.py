"""Keeps the activity stream: what happened to the cluster, as messages in `__activity`."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import anyio

from liftbridge_aio.model import ACTIVITY_STREAM, AckPolicy

from .activity import activity_event
from .errors import BrokerError, PublishRefused
from .incoming import Incoming
from .member import FirstAck, Member
from .messages import refusal_in
from .operations import Operation, PublishActivity
from .requests import StreamRequest

_PUBLISH_TIMEOUT: Final = 5.0  # seconds, as on a real server
_FIRST_BACKOFF: Final = 1.0  # seconds
_MAX_BACKOFF: Final = 10.0

_log = logging.getLogger("liftbridge_aio.broker")


def activity_stream(subject: str) -> StreamRequest:
    """Describe `__activity`, which all brokers of a cluster keep."""
    return StreamRequest(name=ACTIVITY_STREAM, subject=subject, replication_factor=-1)


class ActivityPublisher:
    """Publishes events in order, each at least once, while its broker leads the metadata."""

    def __init__(self, member: Member) -> None:
        """Publish on behalf of a broker."""
        self._member = member
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled. What fails is logged, and tried again after the next operation."""
        self._member.controller.watch(self._changed.set)
        try:
            while True:
                self._changed.clear()
                try:
                    more = self._leads() and await self._publish_next()
                except Exception:  # noqa: BLE001 - the rest of the work must go on
                    _log.exception("the activity stream of a broker failed")
                    more = False
                if not more:
                    await self._changed.wait()
        finally:
            self._member.controller.unwatch(self._changed.set)

    def _leads(self) -> bool:
        controller = self._member.controller
        return controller.has_leader() and controller.leader() is self._member.node

    async def _publish_next(self) -> bool:
        for index, operation in self._member.controller.after(self._member.node.published_activity):
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
                self._member.controller.propose(
                    PublishActivity(index=index), self._member.clock.now_ns()
                )
            except (BrokerError, PublishRefused, TimeoutError) as error:
                name = type(operation).__name__
                _log.warning("cannot tell the activity stream of a %s: %s", name, error)
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
            self._member.inbox(),
            "",
            AckPolicy.ALL,
            ack.take,
            expected_offset=0,
            stream=ACTIVITY_STREAM,
        )
        self._member.publish(ACTIVITY_STREAM, 0, incoming)
        refused = refusal_in(await ack.wait())
        if refused is not None:
            raise refused
