"""The wire itself: calls as they are, without a client in between.

Every call runs in a task of its own, because grpclib cancels the task whose call ends early.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic

from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from liftbridge_aio.wire import proto, rpc
from liftbridge_aio.wire.rpc import ReplyT, RequestT, Rpc

BOUND: Final = 20.0
"""No test waits longer than this for anything, in seconds: disks of busy machines stall."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a call: the status and text of its trailers."""

    status: Status
    text: str = ""


FROM_EARLIEST: Final = {"start_position": proto.StartPosition.EARLIEST}
TO_LATEST: Final = {"stop_position": proto.StopPosition.STOP_LATEST}
STOP_REACHED: Final = End(Status.RESOURCE_EXHAUSTED, "Stop offset reached")


class Ended(Exception):
    """A message was awaited, but the call had ended."""

    def __init__(self, end: End) -> None:
        super().__init__(f"{end.status.name}: {end.text}")
        self.end = end


class Call(Generic[RequestT, ReplyT]):
    """A streaming call: requests go in, replies and then its end come out."""

    def __init__(self, channel: Channel, procedure: Rpc[RequestT, ReplyT]) -> None:
        method = StreamStreamMethod[RequestT, ReplyT](
            channel, procedure.path, procedure.request, procedure.reply
        )
        self._stream = method.open()
        self._half_closed = False
        self._opened = asyncio.Event()
        self._replies: asyncio.Queue[ReplyT | End] = asyncio.Queue()

    async def run(self) -> None:
        """Read until the server ends the call; its end is the last thing in the queue."""
        self._replies.put_nowait(await self._read())

    async def _read(self) -> End:
        try:
            async with self._stream as stream:
                await stream.send_request()
                self._opened.set()
                while (reply := await stream.recv_message()) is not None:
                    self._replies.put_nowait(reply)
                if not self._half_closed:
                    await self.half_close()
                await stream.recv_trailing_metadata()
        except GRPCError as error:
            return End(error.status, error.message or "")
        except (StreamTerminatedError, OSError) as error:
            return End(Status.UNAVAILABLE, str(error))
        return End(Status.OK)

    async def send(self, *requests: RequestT, last: bool = False) -> None:
        """Write requests, in order; `last` ones half-close the call with the same write.

        Raises:
            StreamTerminatedError: The server ended the call meanwhile.
        """
        self._half_closed = last
        await asyncio.create_task(self._send(requests, last))

    async def send_while_open(self, request: RequestT, *, last: bool = False) -> None:
        """Write a request unless the call ends meanwhile; why it ended comes as the next reply."""
        with suppress(StreamTerminatedError):
            await self.send(request, last=last)

    async def _send(self, requests: Iterable[RequestT], last: bool) -> None:
        await self._opened.wait()
        for request in requests:
            await self._stream.send_message(request, end=last)

    async def half_close(self) -> None:
        """Tell the server that no more requests will come."""
        self._half_closed = True
        await self._stream.end()

    async def next(self) -> ReplyT:
        """The next reply.

        Raises:
            Ended: The call ended instead.
        """
        async with asyncio.timeout(BOUND):
            reply = await self._replies.get()
        if isinstance(reply, End):
            raise Ended(reply)
        return reply

    async def take(self, count: int) -> list[ReplyT]:
        """So many replies."""
        return [await self.next() for _ in range(count)]

    async def rest(self) -> tuple[list[ReplyT], End]:
        """All replies that are still to come, and the end of the call."""
        replies: list[ReplyT] = []
        while True:
            try:
                replies.append(await self.next())
            except Ended as ended:
                return replies, ended.end

    async def end(self) -> End:
        """Return the end of the call; no reply may come before."""
        replies, end = await self.rest()
        assert replies == []
        return end


_ANSWER_LOST: Final = 3.0
"""Seconds after which a server that has not answered will not."""
_LOST_IN_RAFT: Final = "raft operation timed out"
"""The text of a server that has missed the answer to its own change."""
_THROUGH_RAFT: Final = {
    rpc.CREATE_STREAM.name: (Status.ALREADY_EXISTS,),
    rpc.DELETE_STREAM.name: (Status.NOT_FOUND,),
    rpc.PAUSE_STREAM.name: (),
    rpc.SET_STREAM_READONLY.name: (),
    rpc.JOIN_CONSUMER_GROUP.name: (),
    rpc.LEAVE_CONSUMER_GROUP.name: (Status.FAILED_PRECONDITION, Status.NOT_FOUND),
}
"""The answers to a repeated call if the first one was carried out."""

Subscription = Call[proto.SubscribeRequest, proto.Message]
PublishSession = Call[proto.PublishRequest, proto.PublishResponse]


class Wire:
    """One connection to a server."""

    def __init__(self, host: str, port: int) -> None:
        self._channel = Channel(host, port)

    def close(self) -> None:
        """Close the connection, with every call on it."""
        self._channel.close()

    async def call(
        self, procedure: Rpc[RequestT, ReplyT], request: RequestT, *, timeout: float | None = BOUND
    ) -> ReplyT:
        """A unary call; ``timeout=None`` sends no deadline to the server.

        Real servers lose some answers to changes that go through Raft: these calls are repeated,
        and so is a publish that was to resume its partition first: nothing was stored.

        Raises:
            GRPCError: The server refused.
        """
        method = UnaryUnaryMethod[RequestT, ReplyT](
            self._channel, procedure.path, procedure.request, procedure.reply
        )
        async with asyncio.timeout(2 * BOUND):
            if timeout != BOUND:
                return await asyncio.create_task(method(request, timeout=timeout))
            through_raft = procedure.name in _THROUGH_RAFT
            try:
                first_timeout = _ANSWER_LOST if through_raft else timeout
                return await asyncio.create_task(method(request, timeout=first_timeout))
            except GRPCError as error:
                if _LOST_IN_RAFT not in (error.message or ""):
                    raise
            except TimeoutError:
                if not through_raft:
                    raise
            try:
                return await asyncio.create_task(method(request, timeout=timeout))
            except GRPCError as error:
                if error.status not in _THROUGH_RAFT.get(procedure.name, ()):
                    raise
                return procedure.reply()

    async def refusal(
        self, procedure: Rpc[RequestT, ReplyT], request: RequestT, *, timeout: float | None = BOUND
    ) -> End:
        """Return the end of a call that must fail."""
        try:
            if procedure.streams_replies:
                async with self._running(Call(self._channel, procedure)) as call:
                    await call.send(request)
                    await call.half_close()
                    reply = await call.next()
            else:
                reply = await self.call(procedure, request, timeout=timeout)
        except Ended as ended:
            return ended.end
        except GRPCError as error:
            return End(error.status, error.message or "")
        except TimeoutError:  # this side was a moment faster than the server
            return End(Status.DEADLINE_EXCEEDED)
        raise AssertionError(f"{procedure.name} was not refused: {reply}")

    @asynccontextmanager
    async def subscribe(self, stream: str, **fields: Any) -> AsyncIterator[Subscription]:
        """A subscription, its handshake already taken off.

        Real servers lose some answers to the resume of a partition: such a call is repeated.

        Raises:
            Ended: The server refused it, or the connection broke.
        """
        request = proto.SubscribeRequest(stream=stream, **fields)
        async with AsyncExitStack() as calls:

            async def subscribed() -> Subscription:
                call = Call(self._channel, rpc.SUBSCRIBE)
                await calls.enter_async_context(self._running(call))
                await call.send_while_open(request, last=True)
                assert await call.next() == proto.Message()
                return call

            try:
                subscription = await subscribed()
            except Ended as ended:
                if _LOST_IN_RAFT not in ended.end.text:
                    raise
                subscription = await subscribed()
            yield subscription

    @asynccontextmanager
    async def publish_session(self) -> AsyncIterator[PublishSession]:
        """A PublishAsync session."""
        async with self._running(Call(self._channel, rpc.PUBLISH_ASYNC)) as call:
            yield call

    @asynccontextmanager
    async def _running(self, call: Call[RequestT, ReplyT]) -> AsyncIterator[Call[RequestT, ReplyT]]:
        reader = asyncio.create_task(call.run())
        try:
            yield call
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def create(self, name: str, **fields: Any) -> None:
        """Create a stream; its subject is its name unless given."""
        request = proto.CreateStreamRequest(**{"name": name, "subject": name, **fields})
        await self.call(rpc.CREATE_STREAM, request)

    async def delete(self, name: str) -> None:
        """Delete a stream."""
        await self.call(rpc.DELETE_STREAM, proto.DeleteStreamRequest(name=name))

    async def pause(self, name: str, *partitions: int, resume_all: bool = False) -> None:
        """Pause some partitions, or all."""
        request = proto.PauseStreamRequest(
            name=name, partitions=list(partitions), resume_all=resume_all
        )
        await self.call(rpc.PAUSE_STREAM, request)

    async def set_readonly(self, name: str, *partitions: int, readonly: bool = True) -> None:
        """Make some partitions read-only or writable, or all."""
        request = proto.SetStreamReadonlyRequest(
            name=name, partitions=list(partitions), readonly=readonly
        )
        await self.call(rpc.SET_STREAM_READONLY, request)

    async def publish(self, stream: str, *values: bytes, **fields: Any) -> list[proto.Ack]:
        """Publish one after the other and wait for each ack."""
        acks = []
        for value in values:
            request = message(stream, value, **fields)
            reply = await self.call(rpc.PUBLISH, request)
            assert reply.ack is not None
            acks.append(reply.ack)
        return acks

    async def read(self, stream: str, partition: int = 0) -> list[proto.Message]:
        """All messages of a partition as it is now."""
        metadata = await self.partition(stream, partition)
        if metadata.newest_offset < 0:
            return []
        async with self.subscribe(
            stream, partition=partition, **FROM_EARLIEST, **TO_LATEST
        ) as subscription:
            messages, end = await subscription.rest()
        assert end == STOP_REACHED
        return messages

    async def stored(self, stream: str, count: int, partition: int = 0) -> list[proto.Message]:
        """All messages of a partition, once there are so many."""

        async def enough() -> bool:
            return (await self.partition(stream, partition)).high_watermark >= count - 1

        await eventually(enough)
        return await self.read(stream, partition)

    async def partition(self, stream: str, partition: int = 0) -> proto.PartitionMetadata:
        """Fetch the metadata of a partition from its leader."""
        request = proto.FetchPartitionMetadataRequest(stream=stream, partition=partition)
        reply = await self.call(rpc.FETCH_PARTITION_METADATA, request)
        assert reply.metadata is not None
        return reply.metadata

    async def stream(self, name: str) -> proto.StreamMetadata:
        """Fetch the metadata of a stream."""
        request = proto.FetchMetadataRequest(streams=[name])
        reply = await self.call(rpc.FETCH_METADATA, request, timeout=None)
        [found] = reply.stream_metadata
        return found


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until it holds.

    Raises:
        TimeoutError: It never did.
    """
    async with asyncio.timeout(BOUND):
        while True:
            holds = condition()
            if await holds if isinstance(holds, Awaitable) else holds:
                return
            await asyncio.sleep(0.01)


def message(stream: str, value: bytes = b"", **fields: Any) -> proto.PublishRequest:
    """A publish that expects no offset, unless told."""
    return proto.PublishRequest(
        **{"stream": stream, "value": value, "expected_offset": -1, **fields}
    )
