"""One call on the server side: messages in and out, with faults applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias, cast

import anyio
from grpclib.exceptions import GRPCError
from grpclib.metadata import Deadline
from grpclib.protocol import Connection as Http2Connection
from grpclib.protocol import Stream as Http2Stream
from grpclib.server import Stream

from liftbridge_aio.broker.faults.fault_injection import FaultInjector
from liftbridge_aio.broker.faults.fault_plan import Place, RpcName
from liftbridge_aio.wire.rpc import Rpc


class Call:
    """A stream of grpclib's, with faults applied to its messages.

    While no fault is planned this costs one attribute lookup per message.
    """

    def __init__(
        self, stream: Stream[Any, Any], procedure: Rpc[Any, Any], faults: FaultInjector
    ) -> None:
        """Wrap a new call.

        Args:
            stream: grpclib's stream.
            procedure: the procedure.
            faults: applies faults to messages.
        """
        self.procedure = procedure
        self.plan = faults.plan
        self.request: Any = None
        """The request, once it was read, of a procedure with one request."""
        self.repeated_request: Any = None
        """A request that a fault has executed once more."""
        self._stream = stream
        self._faults = faults
        self._handshake_sent = not procedure.streams_replies or procedure.streams_requests
        self._is_repeated = False
        self._failure: GRPCError | None = None

    @property
    def name(self) -> RpcName:
        """The name of the procedure."""
        return cast("RpcName", self.procedure.name)

    @property
    def deadline(self) -> Deadline | None:
        """The client's deadline, if it set one."""
        return self._stream.deadline

    @property
    def data(self) -> Http2Stream:
        """The HTTP/2 stream, for which grpclib has no public attribute."""
        return self._stream._stream  # noqa: SLF001 - see above

    @property
    def connection(self) -> Http2Connection:
        """The connection that carries the call."""
        return self.data.connection

    async def accept(self, request: Any) -> bool:
        """Apply the planned fault to a request that was read.

        Returns:
            True if the broker must execute it; a call with one request blocks otherwise.

        Raises:
            GRPCError: the call fails here.
        """
        copies = await self._apply_fault("request", request, None)
        if copies > 1:
            self.repeated_request = request
        elif copies == 0 and not self.procedure.streams_requests:
            await anyio.sleep_forever()
        return copies > 0

    async def send_message(self, reply: Any) -> None:
        """Send one message.

        Waits while flow control grants no credit; cancelling then truncates the message.

        Raises:
            GRPCError: a fault makes the call fail here.
        """
        if self._is_repeated:
            return
        copies = 1
        if self.plan.has_faults:
            place: Place = "reply" if self._handshake_sent else "handshake"
            copies = await self._apply_fault(place, self.request, reply)
            if copies == 0 and not self.procedure.streams_replies:
                await anyio.sleep_forever()
        self._handshake_sent = True
        if self.connection.is_closing():
            # asyncio notices a lost connection some loop iterations before grpclib does, and warns
            # of each write in between. grpclib cancels the call when it notices.
            await anyio.sleep_forever()
        for _ in range(copies):
            await self._stream.send_message(reply)

    async def answer(self, answer: Answer) -> None:
        """Execute the call by `answer`, twice if a fault says so; faults apply to refusals, too.

        Raises:
            GRPCError: it is refused.
        """
        try:
            await self._answer_once(answer)
        except GRPCError:
            await self._repeat(answer)
            raise
        await self._repeat(answer)

    async def _repeat(self, answer: Answer) -> None:
        if self.repeated_request is not None and not self.procedure.streams_requests:
            self._is_repeated = True
            with suppress(GRPCError):  # the client has the first answer
                await answer(self)

    async def _answer_once(self, answer: Answer) -> None:
        try:
            await answer(self)
        except GRPCError as refusal:
            if refusal is not self._failure and self.plan.has_faults:
                await self._refuse()
            raise
        except BaseExceptionGroup:  # of the answer's tasks, one of which hit a fault
            if self._failure is None:
                raise
            raise self._failure from None

    async def _refuse(self) -> None:
        if self.procedure.streams_replies:
            return
        if await self._apply_fault("reply", self.request, None) == 0:
            await anyio.sleep_forever()

    async def _apply_fault(self, place: Place, request: Any, reply: Any) -> int:
        try:
            return await self._faults.apply(self.name, place, request, reply)
        except GRPCError as failure:
            self._failure = failure
            raise


Answer: TypeAlias = Callable[[Call], Awaitable[None]]
