"""The procedures of Liftbridge over gRPC: a thin shell around the state of the broker."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio.model import AckPolicy, BrokerInfo
from liftbridge_aio.wire import health, proto, rpc
from liftbridge_aio.wire.rpc import ReplyT, RequestT, Rpc

from . import messages
from .call import Answer
from .clock import Clock
from .cursors import CursorStore
from .errors import BrokerError, Code, PublishRefused
from .fault_injection import FaultInjector
from .framing import receive_only, send
from .incoming import Incoming
from .procedures import AnyStream, Procedures
from .publish_session import PublishSession
from .reader import ReadEnd, open_reader
from .state import ClusterState

ENCRYPTION_KEY_VARIABLE: Final = "LIFTBRIDGE_ENCRYPTION_KEY"

_READ_BATCH: Final = 32  # messages sent before other tasks get a turn
_HEALTHY_SERVICES: Final = frozenset({"", "proto.API"})
_READ_ENDS: Final = {
    ReadEnd.STOP_REACHED: (Code.RESOURCE_EXHAUSTED, "Stop offset reached"),
    ReadEnd.READONLY: (Code.RESOURCE_EXHAUSTED, "End of readonly partition"),
    ReadEnd.CLOSED: (Code.FAILED_PRECONDITION, "commit log was closed"),
    ReadEnd.DELETED: (Code.NOT_FOUND, "commit log was deleted"),
}


def to_grpc(error: BrokerError) -> GRPCError:
    """Turn a refusal into the status of a call."""
    return GRPCError(Status(error.code), error.text)


@dataclass(slots=True)
class ServiceCounters:
    """What is going on in a service right now, and how much went through it."""

    subscriptions: int = 0
    publish_sessions: int = 0
    messages_delivered: int = 0


class LiftbridgeService:
    """Answers calls. Knows the clock and chance, which the state does not."""

    def __init__(
        self,
        state: ClusterState,
        cursors: CursorStore,
        inbox_prefix: str,
        clock: Clock,
        faults: FaultInjector,
    ) -> None:
        """Serve `state`.

        Args:
            state: streams and partitions.
            cursors: the cursors in it.
            inbox_prefix: first part of the subjects on which acks are asked for.
            clock: the time that messages are stamped with.
            faults: what may befall the messages of calls.
        """
        self.broker = BrokerInfo("", "", 0)
        self.counters = ServiceCounters()
        self._state = state
        self._cursors = cursors
        self._inbox_prefix = inbox_prefix
        self._clock = clock
        self._faults = faults

    def __mapping__(self) -> Procedures:
        """Tell grpclib which coroutine answers which path; the rest is UNIMPLEMENTED."""
        return Procedures(
            [
                self._unary(rpc.CREATE_STREAM, self.create_stream),
                self._unary(rpc.DELETE_STREAM, self.delete_stream),
                self._unary(rpc.PAUSE_STREAM, self.pause_stream),
                self._unary(rpc.SET_STREAM_READONLY, self.set_stream_readonly),
                self._unary(rpc.FETCH_METADATA, self.fetch_metadata),
                self._unary(rpc.FETCH_PARTITION_METADATA, self.fetch_partition_metadata),
                self._unary(rpc.PUBLISH, self.publish),
                self._unary(rpc.PUBLISH_TO_SUBJECT, self.publish_to_subject),
                self._unary(rpc.SET_CURSOR, self.set_cursor),
                self._unary(rpc.FETCH_CURSOR, self.fetch_cursor),
                self._unary(rpc.HEALTH_CHECK, self.check_health),
                (rpc.SUBSCRIBE, self.subscribe),
                (rpc.PUBLISH_ASYNC, self.publish_async),
            ],
            self._faults,
        )

    def _unary(
        self,
        procedure: Rpc[RequestT, ReplyT],
        answer: Callable[[RequestT, AnyStream], Awaitable[ReplyT]],
    ) -> tuple[Rpc[RequestT, ReplyT], Answer]:
        async def handle(stream: AnyStream) -> None:
            request = await receive_only(stream, procedure)
            try:
                reply = await answer(request, stream)
            except BrokerError as error:
                raise to_grpc(error) from error
            except PublishRefused as refused:
                raise to_grpc(refused.as_status()) from refused
            await stream.send_message(reply)

        return procedure, handle

    async def create_stream(
        self, request: proto.CreateStreamRequest, _stream: AnyStream
    ) -> proto.CreateStreamResponse:
        """Create a stream."""
        key = os.environ.get(ENCRYPTION_KEY_VARIABLE, "")
        self._state.create_stream(
            messages.stream_request(request),
            self._clock.now_ns(),
            encryption_key_bytes=len(os.fsencode(key)),
        )
        return proto.CreateStreamResponse()

    async def delete_stream(
        self, request: proto.DeleteStreamRequest, _stream: AnyStream
    ) -> proto.DeleteStreamResponse:
        """Delete a stream."""
        self._state.delete_stream(request.name)
        return proto.DeleteStreamResponse()

    async def pause_stream(
        self, request: proto.PauseStreamRequest, _stream: AnyStream
    ) -> proto.PauseStreamResponse:
        """Pause partitions."""
        self._state.pause(
            request.name, request.partitions, request.resume_all, self._clock.now_ns()
        )
        return proto.PauseStreamResponse()

    async def set_stream_readonly(
        self, request: proto.SetStreamReadonlyRequest, _stream: AnyStream
    ) -> proto.SetStreamReadonlyResponse:
        """Make partitions read-only or writable."""
        self._state.set_readonly(
            request.name, request.partitions, request.readonly, self._clock.now_ns()
        )
        return proto.SetStreamReadonlyResponse()

    async def fetch_metadata(
        self, request: proto.FetchMetadataRequest, _stream: AnyStream
    ) -> proto.FetchMetadataResponse:
        """Describe the broker and streams; unknown ones are entries with an error (W29)."""
        load = self._state.partition_load
        broker = BrokerInfo(self.broker.id, self.broker.host, self.broker.port, load, load)
        names = request.streams or [stream.name for stream in self._state.streams]
        return proto.FetchMetadataResponse(
            brokers=[messages.broker_message(broker)],
            stream_metadata=[self._stream_metadata(name) for name in names],
            group_metadata=[
                proto.ConsumerGroupMetadata(
                    group_id=group, error=proto.ConsumerGroupMetadataError.UNKNOWN_GROUP
                )
                for group in request.groups
            ],
        )

    def _stream_metadata(self, name: str) -> proto.StreamMetadata:
        stream = self._state.stream(name)
        if stream is None:
            unknown = proto.StreamMetadataError.UNKNOWN_STREAM
            return proto.StreamMetadata(name=name, error=unknown)
        return messages.stream_message(stream.info(self.broker.id))

    async def fetch_partition_metadata(
        self, request: proto.FetchPartitionMetadataRequest, _stream: AnyStream
    ) -> proto.FetchPartitionMetadataResponse:
        """Describe one partition; nobody leads a paused one."""
        partition = self._state.partition(request.stream, request.partition)
        if partition is None:
            raise BrokerError(Code.NOT_FOUND, "partition not found")
        if partition.is_paused:
            text = "The request should be sent to partition leader"
            raise BrokerError(Code.FAILED_PRECONDITION, text)
        metadata = messages.partition_message(partition.info(self.broker.id))
        return proto.FetchPartitionMetadataResponse(metadata=metadata)

    async def publish(
        self, request: proto.PublishRequest, stream: AnyStream
    ) -> proto.PublishResponse:
        """Publish one message; waits for its ack only if the call has a deadline."""
        if not request.stream:
            raise BrokerError(Code.INVALID_ARGUMENT, "no stream provided")
        incoming = messages.incoming_message(
            request,
            request.ack_inbox or self._inbox(),
            inbox_is_awaited=_waits_for_ack(request.ack_policy, stream),
        )
        acks = self._state.publish(
            request.stream, request.partition, incoming, self._clock.now_ns(), random.randrange
        )
        if not incoming.inbox_is_awaited:
            return proto.PublishResponse()
        if not acks:
            await _wait_for_deadline()
        refused = messages.refusal_in(acks[0])
        if refused is not None:
            raise refused
        return proto.PublishResponse(ack=messages.ack_message(acks[0]))

    async def publish_to_subject(
        self, request: proto.PublishToSubjectRequest, stream: AnyStream
    ) -> proto.PublishToSubjectResponse:
        """Publish to a NATS subject; a refusal comes back as an ack that carries it (W6)."""
        incoming = Incoming(
            request.key,
            request.value,
            request.headers,
            request.ack_inbox or self._inbox(),
            request.correlation_id,
            int(request.ack_policy),
            expected_offset=0,
            inbox_is_awaited=_waits_for_ack(request.ack_policy, stream),
        )
        acks = self._state.deliver(
            request.subject, incoming, self._clock.now_ns(), random.randrange
        )
        if not incoming.inbox_is_awaited:
            return proto.PublishToSubjectResponse()
        if not acks:
            await _wait_for_deadline()
        return proto.PublishToSubjectResponse(ack=messages.ack_message(acks[0]))

    async def set_cursor(
        self, request: proto.SetCursorRequest, _stream: AnyStream
    ) -> proto.SetCursorResponse:
        """Store a cursor."""
        cursor = proto.Cursor(
            stream=request.stream,
            partition=request.partition,
            cursor_id=request.cursor_id,
            offset=request.offset,
        )
        self._cursors.set(cursor, self._inbox(), self._clock.now_ns(), random.randrange)
        return proto.SetCursorResponse()

    async def fetch_cursor(
        self, request: proto.FetchCursorRequest, _stream: AnyStream
    ) -> proto.FetchCursorResponse:
        """Return a cursor, or -1."""
        offset = self._cursors.get(
            request.cursor_id, request.stream, request.partition, self._clock.now_ns()
        )
        return proto.FetchCursorResponse(offset=offset)

    async def check_health(
        self, request: health.HealthCheckRequest, _stream: AnyStream
    ) -> health.HealthCheckResponse:
        """Say that the service is up."""
        if request.service not in _HEALTHY_SERVICES:
            raise BrokerError(Code.NOT_FOUND, "unknown service")
        return health.HealthCheckResponse(status=health.HealthCheckResponseServingStatus.SERVING)

    async def subscribe(self, stream: AnyStream) -> None:
        """Send a partition's messages, first an empty one that says all is well (W16)."""
        request = await receive_only(stream, rpc.SUBSCRIBE)
        self.counters.subscriptions += 1
        try:
            await self._send_log(stream, request)
        except BrokerError as error:
            raise to_grpc(error) from error
        finally:
            self.counters.subscriptions -= 1

    async def _send_log(self, stream: AnyStream, request: proto.SubscribeRequest) -> None:
        if request.consumer and request.consumer.group_id and not request.consumer.consumer_id:
            text = "Consumer id cannot be empty when group id is provided"
            raise BrokerError(Code.INVALID_ARGUMENT, text)
        partition = self._state.partition(request.stream, request.partition)
        if partition is None:
            raise BrokerError(Code.NOT_FOUND, "No such partition")
        if request.resume:
            self._state.resume(request.stream, request.partition, self._clock.now_ns())
        log = partition.log  # a later resume gives the partition another log
        reader = open_reader(log, messages.read_range(request))
        await stream.send_message(proto.Message())
        changed = asyncio.Event()
        log.watch(changed.set)
        try:
            while True:
                changed.clear()
                batch = reader.poll(_READ_BATCH)
                if isinstance(batch, ReadEnd):
                    raise BrokerError(*_READ_ENDS[batch])
                if not batch:
                    await changed.wait()
                for message in batch:
                    await send(stream, messages.stored_message(message))
                self.counters.messages_delivered += len(batch)
                await asyncio.sleep(0)  # sending need not wait for anything
        finally:
            log.unwatch(changed.set)

    async def publish_async(self, stream: AnyStream) -> None:
        """Take messages and answer each with an ack or an error."""
        self.counters.publish_sessions += 1
        try:
            await PublishSession(self._state, self._inbox(), self._clock).serve(stream)
        finally:
            self.counters.publish_sessions -= 1

    def _inbox(self) -> str:
        return f"{self._inbox_prefix}.ack.{secrets.token_hex(11)}"


def _waits_for_ack(ack_policy: int, stream: AnyStream) -> bool:
    return ack_policy != AckPolicy.NONE and stream.deadline is not None


async def _wait_for_deadline() -> None:
    # grpclib ends the call with DEADLINE_EXCEEDED once its time is over.
    await anyio.sleep_forever()
