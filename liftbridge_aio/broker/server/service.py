"""The procedures of Liftbridge, as one broker answers them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio.broker.cluster import messages
from liftbridge_aio.broker.cluster.consumer_group import FIRST_EPOCH
from liftbridge_aio.broker.cluster.cursors import CursorStore, refused_cursor
from liftbridge_aio.broker.cluster.incoming import Incoming
from liftbridge_aio.broker.cluster.requests import check_stream_request
from liftbridge_aio.broker.errors import BrokerError, Code, PublishRefused
from liftbridge_aio.broker.faults.fault_injection import FaultInjector
from liftbridge_aio.broker.flaws import LOST_ANSWERS, RAFT_TIMEOUT
from liftbridge_aio.model import CURSORS_STREAM, AckPolicy
from liftbridge_aio.wire import health, proto, rpc
from liftbridge_aio.wire.convert import ack_to_wire
from liftbridge_aio.wire.rpc import ReplyT, RequestT, Rpc

from .broker_context import BrokerContext, FirstAck
from .call import Answer, Call
from .framing import receive_only
from .group_procedures import GroupProcedures
from .procedures import Procedures
from .publish_session import PublishStream
from .settings import BrokerSettings
from .subscriber import Subscriber

ENCRYPTION_KEY_VARIABLE: Final = "LIFTBRIDGE_ENCRYPTION_KEY"

_HEALTHY_SERVICES: Final = frozenset({"", "proto.API"})
_MAX_STATUS_TEXT: Final = 4096  # characters; a real server has no limit of its own
_CURSOR_TIMEOUT: Final = 5.0  # seconds that storing a cursor may take
_BEFORE_DEADLINE: Final = 0.05  # seconds, so that the client still hears the answer
_NO_ANSWER: Final = "raft operation timed out"
_THROUGH_RAFT: Final = {
    "CreateStream": "Failed to replicate partition",
    "DeleteStream": "Failed to delete stream",
    "PauseStream": "Failed to pause stream",
    "SetStreamReadonly": "Failed to set stream readonly flag",
    "JoinConsumerGroup": "Failed to join consumer group",
    "LeaveConsumerGroup": "Failed to set stream readonly flag",
}
"""What a real server says, before the reason, of changes that Raft has not confirmed."""


def to_grpc(error: BrokerError) -> GRPCError:
    """Convert a refusal to the status of a call.

    Its text may repeat what a client sent, and is cut: encoding a header takes quadratic time, so a
    name of a megabyte would block the broker for minutes.
    """
    return GRPCError(Status(error.code), error.text[:_MAX_STATUS_TEXT])


@dataclass(slots=True)
class ServiceCounters:
    """Open calls of a service, and messages that it has delivered."""

    subscriptions: int = 0
    publish_sessions: int = 0
    messages_delivered: int = 0

    def delivered(self, count: int) -> None:
        """Count messages that were sent to subscribers."""
        self.messages_delivered += count


class LiftbridgeService:
    """Answers the calls of one broker."""

    def __init__(
        self,
        context: BrokerContext,
        groups: GroupProcedures,
        settings: BrokerSettings,
        faults: FaultInjector,
        counters: ServiceCounters,
    ) -> None:
        """Serve for a broker.

        Args:
            context: the broker.
            groups: answers the calls about consumer groups.
            settings: settings of the broker.
            faults: applies faults to the messages of calls.
            counters: counts open calls and messages.
        """
        self.counters = counters
        self._groups = groups
        self._context = context
        self._settings = settings
        self._faults = faults
        self._cursors = CursorStore(context.node)
        self._storing_cursor = asyncio.Lock()

    def __mapping__(self) -> Procedures:
        """Return the table of procedures, for grpclib."""
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
                self._unary(rpc.JOIN_CONSUMER_GROUP, self._groups.join),
                self._unary(rpc.LEAVE_CONSUMER_GROUP, self._groups.leave),
                self._unary(rpc.FETCH_CONSUMER_GROUP_ASSIGNMENTS, self._groups.fetch_assignments),
                self._unary(rpc.REPORT_CONSUMER_GROUP_COORDINATOR, self._groups.report_coordinator),
                self._unary(rpc.HEALTH_CHECK, self.check_health),
                (rpc.SUBSCRIBE, self.subscribe),
                (rpc.PUBLISH_ASYNC, self.publish_async),
            ],
            self._faults,
        )

    def _unary(
        self,
        procedure: Rpc[RequestT, ReplyT],
        answer: Callable[[RequestT, Call], Awaitable[ReplyT]],
    ) -> tuple[Rpc[RequestT, ReplyT], Answer]:
        async def handle(call: Call) -> None:
            request = await receive_only(call, procedure)
            try:
                reply = await answer(request, call)
                await self._confirm(call, reply)
            except BrokerError as error:
                raise to_grpc(error) from error
            except PublishRefused as refused:
                raise to_grpc(refused.as_status()) from refused
            await call.send_message(reply)

        return procedure, handle

    async def _confirm(self, call: Call, reply: object) -> None:
        """Wait for Raft's answer to a change, which `Flaws.loses_answers` loses by chance.

        Raises:
            BrokerError: the answer was lost.
        """
        failed = _THROUGH_RAFT.get(call.name)
        if failed is None or not self._settings.flaws.loses_answers:
            return
        if random.random() >= LOST_ANSWERS:  # noqa: S311 - not for security
            return
        limit = RAFT_TIMEOUT if call.deadline is None else call.deadline.time_remaining()
        await asyncio.sleep(max(limit - _BEFORE_DEADLINE, 0))
        if isinstance(reply, proto.JoinConsumerGroupResponse) and reply.epoch == FIRST_EPOCH:
            raise BrokerError(Code.FAILED_PRECONDITION, _NO_ANSWER)  # the join made the group
        raise BrokerError(Code.INTERNAL, f"{failed}: {_NO_ANSWER}")

    async def create_stream(
        self, request: proto.CreateStreamRequest, _call: Call
    ) -> proto.CreateStreamResponse:
        """Create a stream."""
        key = os.environ.get(ENCRYPTION_KEY_VARIABLE, "")
        wanted = messages.stream_request(request)
        check_stream_request(wanted, encryption_key_bytes=len(os.fsencode(key)))
        if wanted.config.encryption and not self._settings.encrypts:
            raise BrokerError(
                Code.FAILED_PRECONDITION, "this broker stores data on disk without encryption"
            )
        self._context.controller.create_stream(wanted, self._context.clock.now_ns())
        return proto.CreateStreamResponse()

    async def delete_stream(
        self, request: proto.DeleteStreamRequest, _call: Call
    ) -> proto.DeleteStreamResponse:
        """Delete a stream."""
        self._context.controller.delete_stream(request.name, self._context.clock.now_ns())
        return proto.DeleteStreamResponse()

    async def pause_stream(
        self, request: proto.PauseStreamRequest, _call: Call
    ) -> proto.PauseStreamResponse:
        """Pause partitions."""
        self._context.controller.pause(
            request.name,
            self._numbers(request),
            self._context.clock.now_ns(),
            resume_all=request.resume_all,
        )
        return proto.PauseStreamResponse()

    async def set_stream_readonly(
        self, request: proto.SetStreamReadonlyRequest, _call: Call
    ) -> proto.SetStreamReadonlyResponse:
        """Make partitions read-only or writable."""
        self._context.controller.set_readonly(
            request.name,
            self._numbers(request),
            self._context.clock.now_ns(),
            readonly=request.readonly,
        )
        return proto.SetStreamReadonlyResponse()

    def _numbers(
        self, request: proto.PauseStreamRequest | proto.SetStreamReadonlyRequest
    ) -> Sequence[int]:
        """Return the partitions of a request; no numbers mean all that this broker knows."""
        if request.partitions:
            return request.partitions
        return [each.number for each in self._context.node.existing(request.name, ())]

    async def fetch_metadata(
        self, request: proto.FetchMetadataRequest, _call: Call
    ) -> proto.FetchMetadataResponse:
        """Return brokers, streams and groups; unknown ones are entries with an error."""
        names = request.streams or [stream.name for stream in self._context.node.streams]
        return proto.FetchMetadataResponse(
            brokers=[messages.broker_message(one) for one in self._context.brokers()],
            stream_metadata=[self._stream_metadata(name) for name in names],
            group_metadata=[self._group_metadata(name) for name in request.groups],
        )

    def _group_metadata(self, name: str) -> proto.ConsumerGroupMetadata:
        group = self._context.node.groups.group(name)
        if group is None:
            unknown = proto.ConsumerGroupMetadataError.UNKNOWN_GROUP
            return proto.ConsumerGroupMetadata(group_id=name, error=unknown)
        return proto.ConsumerGroupMetadata(
            group_id=name, coordinator=group.coordinator, epoch=group.epoch
        )

    def _stream_metadata(self, name: str) -> proto.StreamMetadata:
        stream = self._context.node.stream(name)
        if stream is None:
            unknown = proto.StreamMetadataError.UNKNOWN_STREAM
            return proto.StreamMetadata(name=name, error=unknown)
        return messages.stream_message(stream.info())

    async def fetch_partition_metadata(
        self, request: proto.FetchPartitionMetadataRequest, _call: Call
    ) -> proto.FetchPartitionMetadataResponse:
        """Return the metadata of a partition; a paused one has no leader to ask."""
        partition = self._context.node.partition(request.stream, request.partition)
        if partition is None:
            raise BrokerError(Code.NOT_FOUND, "partition not found")
        if partition.leadership is None:
            raise BrokerError(
                Code.FAILED_PRECONDITION, "The request should be sent to partition leader"
            )
        metadata = messages.partition_message(partition.info())
        return proto.FetchPartitionMetadataResponse(metadata=metadata)

    async def publish(self, request: proto.PublishRequest, call: Call) -> proto.PublishResponse:
        """Publish one message; wait for its ack only if the call has a deadline."""
        if not request.stream:
            raise BrokerError(Code.INVALID_ARGUMENT, "no stream provided")
        ack = FirstAck()
        incoming = messages.incoming_message(
            request,
            request.ack_inbox or self._context.inbox(),
            ack.take,
            inbox_is_awaited=_waits_for_ack(request.ack_policy, call),
        )
        self._context.publish(request.stream, request.partition, incoming)
        if not incoming.inbox_is_awaited:
            return proto.PublishResponse()
        acked = await ack.wait()
        refused = messages.refusal_of(acked)
        if refused is not None:
            raise refused
        return proto.PublishResponse(ack=ack_to_wire(acked))

    async def publish_to_subject(
        self, request: proto.PublishToSubjectRequest, call: Call
    ) -> proto.PublishToSubjectResponse:
        """Publish to a NATS subject; a refusal is returned as an ack with an error."""
        ack = FirstAck()
        incoming = Incoming(
            request.key,
            request.value,
            request.headers,
            request.ack_inbox or self._context.inbox(),
            request.correlation_id,
            int(request.ack_policy),
            ack.take,
            expected_offset=0,
            inbox_is_awaited=_waits_for_ack(request.ack_policy, call),
        )
        self._context.publish_to_subject(request.subject, incoming)
        if not incoming.inbox_is_awaited:
            return proto.PublishToSubjectResponse()
        return proto.PublishToSubjectResponse(ack=ack_to_wire(await ack.wait()))

    async def set_cursor(
        self, request: proto.SetCursorRequest, _call: Call
    ) -> proto.SetCursorResponse:
        """Store a cursor; one at a time, as on a real server."""
        key, partition = self._cursors.locate(request.cursor_id, request.stream, request.partition)
        cursor = proto.Cursor(
            stream=request.stream,
            partition=request.partition,
            cursor_id=request.cursor_id,
            offset=request.offset,
        )
        ack = FirstAck()
        incoming = Incoming(
            key,
            bytes(cursor),
            {},
            self._context.inbox(),
            "",
            AckPolicy.ALL,
            ack.take,
            expected_offset=0,
            stream=CURSORS_STREAM,
        )
        try:
            with anyio.fail_after(_CURSOR_TIMEOUT):
                async with self._storing_cursor:
                    self._context.publish(CURSORS_STREAM, partition.number, incoming)
                    refused = messages.refusal_of(await ack.wait())
                    if refused is not None:
                        raise refused
                    self._cursors.cache(key, cursor.offset)
        except TimeoutError as error:
            raise BrokerError(Code.INTERNAL, "context deadline exceeded") from error
        except PublishRefused as refused:
            raise refused_cursor(refused) from refused
        return proto.SetCursorResponse()

    async def fetch_cursor(
        self, request: proto.FetchCursorRequest, _call: Call
    ) -> proto.FetchCursorResponse:
        """Return a cursor, -1 if none is stored."""
        key, partition = self._cursors.locate(request.cursor_id, request.stream, request.partition)
        offset = self._cursors.cached(key)
        if offset is None:
            if partition.log.newest_offset >= 0:
                self._context.resume(CURSORS_STREAM, partition.number)
            offset = self._cursors.look_up(key, partition)
        return proto.FetchCursorResponse(offset=offset)

    async def check_health(
        self, request: health.HealthCheckRequest, _call: Call
    ) -> health.HealthCheckResponse:
        """Answer a health check."""
        if request.service not in _HEALTHY_SERVICES:
            raise BrokerError(Code.NOT_FOUND, "unknown service")
        return health.HealthCheckResponse(status=health.HealthCheckResponseServingStatus.SERVING)

    async def subscribe(self, call: Call) -> None:
        """Send a partition's messages."""
        request = await receive_only(call, rpc.SUBSCRIBE)
        self.counters.subscriptions += 1
        try:
            subscriber = Subscriber(self._context, self._settings.profile, self.counters.delivered)
            await subscriber.serve(call, request)
        except BrokerError as error:
            raise to_grpc(error) from error
        finally:
            self.counters.subscriptions -= 1

    async def publish_async(self, call: Call) -> None:
        """Publish messages and answer each with an ack or an error."""
        self.counters.publish_sessions += 1
        try:
            await PublishStream(self._context).serve(call)
        finally:
            self.counters.publish_sessions -= 1


def _waits_for_ack(ack_policy: int, call: Call) -> bool:
    return ack_policy != AckPolicy.NONE and call.deadline is not None
