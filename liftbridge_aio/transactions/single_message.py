"""A message outside of transactions: it is sent again until its outcome is known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from liftbridge_aio.errors import ClientClosed, LiftbridgeError, PublishOutcomeUnknown
from liftbridge_aio.model import Ack

from .core.uuid import Flags

if TYPE_CHECKING:
    from liftbridge_aio.interceptors import AckFuture
    from liftbridge_aio.options import Duration

    from .core.transaction import ProducerIdentity
    from .sender import IdentityPool, Sender


class SingleMessage(asyncio.Future[Ack]):
    """A message that committed readings show once, and the future of its ack.

    It has a producer id of its own while it is in flight, so that a repeat of it discards nobody
    else's message. Cancelling takes it back if it is not written yet.
    """

    __slots__ = ("_attempt", "_fields", "_identity", "_pool", "_sender")

    _attempt: AckFuture
    _fields: tuple[
        str, bytes, bytes | None, Mapping[str, bytes] | None, int, bytes, Duration | None
    ]
    _identity: ProducerIdentity
    _pool: IdentityPool
    _sender: Sender

    async def send(
        self,
        sender: Sender,
        pool: IdentityPool,
        stream: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        partition: int,
        timeout: Duration | None,
    ) -> None:
        """Send it for the first time, once there is room. Cancelling leaves nothing behind.

        Args:
            sender: sends it.
            pool: has its producer id, and gets it back once the outcome is known.
            stream: as for `Sender.send`.
            value: as for `Sender.send`.
            key: as for `Sender.send`.
            headers: as for `Sender.send`.
            partition: as for `Sender.send`.
            timeout: as for `Sender.send`.
        """
        self._sender, self._pool = sender, pool
        self._identity = identity = pool.take()
        uuid = identity.next_uuid(Flags.OUTSIDE)
        self._fields = (stream, value, key, headers, partition, uuid, timeout)
        attempt = None
        if timeout is None:
            attempt = sender.send_now(stream, value, key, headers, partition, uuid)
        if attempt is None:
            attempt = await sender.send(*self._fields)
        self._attempt = attempt
        attempt.add_done_callback(self._settle)

    def cancel(self, msg: object = None) -> bool:
        """Take it back if it is not written yet, and wait for it no longer."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._attempt.cancel()
        return cancelled

    def _settle(self, attempt: AckFuture) -> None:
        """Take the first attempt's result over, or begin to send the message again."""
        if attempt.cancelled():
            super().cancel()
            return
        error = attempt.exception()
        if isinstance(error, PublishOutcomeUnknown):
            if not self.done():
                self._begin_again(error)
            return
        self._pool.give_back(self._identity)
        if self.done():
            return
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(cast("Ack", attempt.result()))

    def _begin_again(self, unknown: PublishOutcomeUnknown) -> None:
        """Send it until it is stored. It does no harm if a repeat is stored much later."""

        async def follow() -> None:
            nonlocal unknown
            try:
                ack = cast("Ack", await (await self._sender.send(*self._fields, again=True)))
            except PublishOutcomeUnknown as error:
                unknown = error
            except LiftbridgeError as error:
                unknown.add_note(f"sending it again failed: {error}")
            else:
                self._pool.give_back(self._identity)
                if not self.done():
                    self.set_result(ack)

        def over(_: object) -> None:
            if not self.done():
                self.set_exception(unknown)

        try:
            child = self._sender.supervisor.spawn(follow, name="producer")
        except ClientClosed:
            over(None)
        else:
            child.task.add_done_callback(over)
            self.add_done_callback(lambda _: child.cancel())
