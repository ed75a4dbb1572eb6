"""One call as the coroutine that answers it sees it: messages in and out, and their faults."""

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

from liftbridge_aio.wire.rpc import Rpc

from .fault_injection import FaultInjector
from .fault_plan import Place, RpcName


class Call:
    """A stream of grpclib's, and what may befall its messages.

    While no fault is planned this costs one look at an attribute for each message.
    """

    __slots__ = (
        "_failure",
        "_faults",
        "_greeted",
        "_is_repeated",
        "_stream",
        "again",
        "plan",
        "procedure",
        "request",
    )

    def __init__(
        self, stream: Stream[Any, Any], procedure: Rpc[Any, Any], faults: FaultInjector
    ) -> None:
        """Wrap a call that has just come in.

        Args:
            stream: grpclib's view of it.
            procedure: what is called.
            faults: what may go wrong.
        """
        self.procedure = procedure
        self.plan = faults.plan
        self.request: Any = None
        """The request, where the call has one and it was read."""
        self.again: Any = None
        """A request that is to be taken once more."""
        self._stream = stream
        self._faults = faults
        self._greeted = not procedure.streams_replies or procedure.streams_requests
        self._is_repeated = False
        self._failure: GRPCError | None = None

    @property
    def name(self) -> RpcName:
        """The name of the procedure."""
        return cast("RpcName", self.procedure.name)

    @property
    def deadline(self) -> Deadline | None:
        """Until when the client waits, if it said so."""
        return self._stream.deadline

    @property
    def data(self) -> Http2Stream:
        """The bytes below, for which grpclib has no public face."""
        return self._stream._stream  # noqa: SLF001 - see above

    @property
    def connection(self) -> Http2Connection:
        """The connection that carries the call."""
        return self.data.connection

    async def take(self, request: Any) -> bool:
        """Let a request that was read suffer what is planned for it.

        Returns:
            Whether the broker acts on it. A call with one request waits for its end if not.

        Raises:
            GRPCError: the call fails here.
        """
        copies = await self._befall("request", request, None)
        if copies > 1:
            self.again = request
        elif copies == 0 and not self.procedure.streams_requests:
            await anyio.sleep_forever()
        return copies > 0

    async def send_message(self, reply: Any) -> None:
        """Send one message.

        Waits while the client gives no credit; cancelling then leaves the message cut off.

        Raises:
            GRPCError: a fault was planned: the call fails here.
        """
        if self._is_repeated:
            return
        copies = 1
        if self.plan.armed:
            place: Place = "reply" if self._greeted else "handshake"
            copies = await self._befall(place, self.request, reply)
            if copies == 0 and not self.procedure.streams_replies:
                await anyio.sleep_forever()
        self._greeted = True
        if self.connection.is_closing():
            # asyncio knows of a lost connection some rounds of the event loop before grpclib does,
            # and warns of each write in between. grpclib cancels the call when it knows.
            await anyio.sleep_forever()
        for _ in range(copies):
            await self._stream.send_message(reply)

    async def answer(self, answer: Answer) -> None:
        """Have `answer` answer it, twice if that is planned; refusals may suffer as replies do.

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
        if self.again is not None and not self.procedure.streams_requests:
            self._is_repeated = True
            with suppress(GRPCError):  # the client has the first answer
                await answer(self)

    async def _answer_once(self, answer: Answer) -> None:
        try:
            await answer(self)
        except GRPCError as refusal:
            if refusal is not self._failure and self.plan.armed:
                await self._refuse()
            raise
        except BaseExceptionGroup:  # of tasks of the answer, one of which sent a message
            if self._failure is None:
                raise
            raise self._failure from None

    async def _refuse(self) -> None:
        if self.procedure.streams_replies:
            return
        if await self._befall("reply", self.request, None) == 0:
            await anyio.sleep_forever()

    async def _befall(self, place: Place, request: Any, reply: Any) -> int:
        try:
            return await self._faults.befall(self.name, place, request, reply)
        except GRPCError as failure:
            self._failure = failure
            raise


Answer: TypeAlias = Callable[[Call], Awaitable[None]]
