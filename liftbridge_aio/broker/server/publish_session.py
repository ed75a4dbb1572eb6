"""One PublishAsync call: messages in, acks out."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import anyio
from grpclib.exceptions import GRPCError

from liftbridge_aio.broker.cluster import messages
from liftbridge_aio.broker.errors import BrokerError, PublishCode, PublishRefused
from liftbridge_aio.model import Ack
from liftbridge_aio.wire import proto, rpc

from .broker_context import BrokerContext
from .call import Call
from .framing import receive

HALF_CLOSE_WAIT: Final = 5.0
"""Seconds that a session waits for missing acks after the client's last message."""

_MAX_OUTBOX: Final = 65_536  # unread answers above which no more messages are read
_BATCH: Final = 32  # messages handled before other tasks run


class PublishStream:
    """Reads and writes independently, so that a client may publish before it reads acks."""

    def __init__(self, context: BrokerContext) -> None:
        """Publish through a broker; a session uses one inbox, whatever inbox messages name."""
        self._context = context
        self._ack_inbox = context.inbox()
        self._outbox: deque[proto.PublishResponse] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._no_more = False
        self._in_flight = 0
        self._settled = asyncio.Event()

    async def serve(self, call: Call) -> None:
        """Run until the client has sent its last message and all messages are answered.

        Cancellation drops answers that are not sent yet; messages that were read are stored.

        Raises:
            GRPCError: the client sent a malformed or too large message.
        """
        refusal: GRPCError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer, call)
            try:
                await self._read_all(call)
            except GRPCError as error:  # raised after the answers to earlier messages
                refusal = error
            self._no_more = True
            self._filled.set()
        if refusal is not None:
            raise refusal

    async def _read_all(self, call: Call) -> None:
        count = 0
        while (request := await receive(call, rpc.PUBLISH_ASYNC)) is not None:
            self._publish(request)
            count += 1
            if count % _BATCH == 0:
                await asyncio.sleep(0)  # reading may never wait
            while len(self._outbox) >= _MAX_OUTBOX:
                self._drained.clear()
                await self._drained.wait()
        with anyio.move_on_after(HALF_CLOSE_WAIT):
            while self._in_flight:
                self._settled.clear()
                await self._settled.wait()

    def _publish(self, request: proto.PublishRequest) -> None:
        incoming = messages.incoming_message(request, self._ack_inbox, self._take_ack)
        self._in_flight += incoming.wants_ack
        try:
            self._context.publish(request.stream, request.partition, incoming)
        except PublishRefused as refused:
            # As on a real server, what NATS refuses still counts as in flight.
            if refused.code is not PublishCode.INTERNAL:
                self._in_flight -= incoming.wants_ack
            self._send(messages.async_error(refused, request.correlation_id))
        except BrokerError as error:
            failed = PublishRefused(PublishCode.INTERNAL, f"failed to resume stream: {error.text}")
            self._send(messages.async_error(failed, request.correlation_id))

    def _take_ack(self, ack: Ack) -> None:
        if self._no_more:
            return
        self._in_flight = max(self._in_flight - 1, 0)
        self._settled.set()
        self._send(messages.async_response(ack))

    def _send(self, response: proto.PublishResponse) -> None:
        self._outbox.append(response)
        self._filled.set()

    async def _answer(self, call: Call) -> None:
        sent = 0
        while True:
            while self._outbox:
                await call.send_message(self._outbox.popleft())
                sent += 1
                if sent % _BATCH == 0:
                    self._drained.set()
                    await asyncio.sleep(0)
            if self._no_more:
                return
            self._filled.clear()
            await self._filled.wait()
