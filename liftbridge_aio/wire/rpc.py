"""The table of remote procedures: written once, read by the client and the embedded broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import betterproto2

from liftbridge_aio.errors import MalformedData

from . import health, proto
from .field_types import wrong_field
from .metadata_codec import parse_metadata
from .strict import is_cut_off

SLOWLY_READ_BYTES: Final = 2**18
"""Most that is read through the generated classes: 512 KiB of nothing but fields that are not known
take them seconds, twice as much four times as long, and the event loop stands still meanwhile."""
_METADATA_BYTES: Final = 4 * 2**20
"""As much as gRPC takes unless told otherwise: some twenty thousand partitions."""

RequestT = TypeVar("RequestT", bound=betterproto2.Message)
ReplyT = TypeVar("ReplyT", bound=betterproto2.Message)


@dataclass(frozen=True, slots=True)
class Rpc(Generic[RequestT, ReplyT]):
    """One remote procedure: its path and the types that go over it."""

    name: str
    request: type[RequestT]
    reply: type[ReplyT]
    streams_requests: bool = False
    streams_replies: bool = False
    service: str = "proto.API"
    quick: Callable[[bytes], Generator[None, None, ReplyT | None]] | None = None
    """Reads a reply as servers write it, in steps; None where it needs a closer look."""
    max_reply_bytes: int = SLOWLY_READ_BYTES
    """Largest reply that is taken, unless replies are streamed."""

    @property
    def path(self) -> str:
        """The request path of HTTP/2."""
        return f"/{self.service}/{self.name}"

    def read_reply(self, data: bytes) -> ReplyT:
        """Parse a reply; what is returned holds values of the types that its fields say.

        Raises:
            MalformedData: the bytes are no such reply.
        """
        steps = self.reply_in_steps(data)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            reply: ReplyT = end.value
            return reply

    def reply_in_steps(self, data: bytes) -> Generator[None, None, ReplyT]:
        """Parse a reply as `read_reply` does, in steps, between which others may run.

        Raises:
            MalformedData: the bytes are no such reply.
        """
        if self.quick is not None and (usual := (yield from self.quick(data))) is not None:
            return usual
        if len(data) > SLOWLY_READ_BYTES:
            raise MalformedData(
                f"the reply to {self.name} cannot be read: {len(data)} bytes make no sense"
            )
        if is_cut_off(data):  # betterproto2 would take what is there
            raise MalformedData(f"the reply to {self.name} cannot be read: it is cut off")
        try:
            reply = self.reply.parse(data)
            wrong = wrong_field(reply)
        except Exception as error:
            raise MalformedData(f"the reply to {self.name} cannot be read: {error!r}") from error
        if wrong is not None:
            raise MalformedData(
                f"the reply to {self.name} cannot be read: {wrong} holds another type"
            )
        return reply


CREATE_STREAM: Final = Rpc("CreateStream", proto.CreateStreamRequest, proto.CreateStreamResponse)
DELETE_STREAM: Final = Rpc("DeleteStream", proto.DeleteStreamRequest, proto.DeleteStreamResponse)
PAUSE_STREAM: Final = Rpc("PauseStream", proto.PauseStreamRequest, proto.PauseStreamResponse)
SET_STREAM_READONLY: Final = Rpc(
    "SetStreamReadonly", proto.SetStreamReadonlyRequest, proto.SetStreamReadonlyResponse
)
SUBSCRIBE: Final = Rpc("Subscribe", proto.SubscribeRequest, proto.Message, streams_replies=True)
FETCH_METADATA: Final = Rpc(
    "FetchMetadata",
    proto.FetchMetadataRequest,
    proto.FetchMetadataResponse,
    quick=parse_metadata,
    max_reply_bytes=_METADATA_BYTES,
)
FETCH_PARTITION_METADATA: Final = Rpc(
    "FetchPartitionMetadata",
    proto.FetchPartitionMetadataRequest,
    proto.FetchPartitionMetadataResponse,
)
PUBLISH: Final = Rpc("Publish", proto.PublishRequest, proto.PublishResponse)
PUBLISH_ASYNC: Final = Rpc(
    "PublishAsync",
    proto.PublishRequest,
    proto.PublishResponse,
    streams_requests=True,
    streams_replies=True,
)
PUBLISH_TO_SUBJECT: Final = Rpc(
    "PublishToSubject", proto.PublishToSubjectRequest, proto.PublishToSubjectResponse
)
SET_CURSOR: Final = Rpc("SetCursor", proto.SetCursorRequest, proto.SetCursorResponse)
FETCH_CURSOR: Final = Rpc("FetchCursor", proto.FetchCursorRequest, proto.FetchCursorResponse)
JOIN_CONSUMER_GROUP: Final = Rpc(
    "JoinConsumerGroup", proto.JoinConsumerGroupRequest, proto.JoinConsumerGroupResponse
)
LEAVE_CONSUMER_GROUP: Final = Rpc(
    "LeaveConsumerGroup", proto.LeaveConsumerGroupRequest, proto.LeaveConsumerGroupResponse
)
FETCH_CONSUMER_GROUP_ASSIGNMENTS: Final = Rpc(
    "FetchConsumerGroupAssignments",
    proto.FetchConsumerGroupAssignmentsRequest,
    proto.FetchConsumerGroupAssignmentsResponse,
)
REPORT_CONSUMER_GROUP_COORDINATOR: Final = Rpc(
    "ReportConsumerGroupCoordinator",
    proto.ReportConsumerGroupCoordinatorRequest,
    proto.ReportConsumerGroupCoordinatorResponse,
)
HEALTH_CHECK: Final = Rpc(
    "Check", health.HealthCheckRequest, health.HealthCheckResponse, service="grpc.health.v1.Health"
)
