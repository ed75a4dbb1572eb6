"""One PublishAsync call: messages in, acks out."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import Any, Final

import anyio
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from liftbridge_aio.wire import proto, rpc

from . import messages
from .errors import PublishCode, PublishRefused
from .framing import receive, send
from .state import ClusterState

HALF_CLOSE_WAIT: Final = 5.0
"""Seconds that a session waits for missing acks after the client's last message."""

_MAX_OUTBOX: Final = 65_536  # answers that a client may leave unread before it is read no more
_TURN: Final = 32  # messages taken before other tasks get a turn


class PublishSession:
    """Reads and writes independently, so that a client may publish before it reads acks."""

    def __init__(self, state: ClusterState, ack_inbox: str) -> None:
        """Publish into `state`.

        Args:
            state: the streams.
            ack_inbox: replaces the inbox that messages of this session ask for (W10).
        """
        self._state = state
        self._ack_inbox = ack_inbox
        self._outbox: deque[proto.PublishResponse] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._no_more = False
        self._in_flight = 0

    async def serve(self, stream: Stream[Any, Any]) -> None:
        """Run until the client has sent its last message and everything is answered.

        Cancellation drops what is not answered yet; messages that were read are stored.

        Raises:
            GRPCError: the client sent what is no message, or too large.
        """
        refusal: GRPCError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer, stream)
            try:
                await self._take_all(stream)
            except GRPCError as error:  # after the answers to what came before
                refusal = error
            self._no_more = True
            self._filled.set()
        if refusal is not None:
            raise refusal

    async def _take_all(self, stream: Stream[Any, Any]) -> None:
        taken = 0
        while (request := await receive(stream, rpc.PUBLISH_ASYNC)) is not None:
            self._publish(request)
            taken += 1
            if taken % _TURN == 0:
                await asyncio.sleep(0)  # reading need not wait for anything
            while len(self._outbox) >= _MAX_OUTBOX:
                self._drained.clear()
                await self._drained.wait()
        if self._in_flight:
            # Acks come at once or never, but the real server waits for these as well.
            await asyncio.sleep(HALF_CLOSE_WAIT)

    def _publish(self, request: proto.PublishRequest) -> None:
        incoming = messages.incoming_message(request, self._ack_inbox)
        try:
            acks = self._state.publish(
                request.stream, request.partition, incoming, time.time_ns(), random.randrange
            )
        except PublishRefused as refused:
            # What NATS does not take counts as in flight all the same, on the real server too.
            self._in_flight += incoming.wants_ack and refused.code is PublishCode.INTERNAL
            self._send(messages.async_error(refused, request.correlation_id))
            return
        self._in_flight += incoming.wants_ack
        for ack in acks:
            self._in_flight = max(self._in_flight - 1, 0)
            self._send(messages.async_response(ack))

    def _send(self, response: proto.PublishResponse) -> None:
        self._outbox.append(response)
        self._filled.set()

    async def _answer(self, stream: Stream[Any, Any]) -> None:
        sent = 0
        while True:
            while self._outbox:
                await send(stream, self._outbox.popleft())
                sent += 1
                if sent % _TURN == 0:
                    self._drained.set()
                    await asyncio.sleep(0)
            if self._no_more:
                return
            self._filled.clear()
            await self._filled.wait()
