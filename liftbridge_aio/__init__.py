"""The asyncio client for Liftbridge.

    async with Client("127.0.0.1:9292") as client:
        await client.create_stream("greetings", exist_ok=True)
        await client.publish("greetings", b"hello")
        async for message in client.subscribe("greetings", start=StartAt.earliest()):
            print(message.value)

`liftbridge_aio.broker.EmbeddedBroker` is a server to try it on.
"""

import logging
from typing import TYPE_CHECKING, Any

from .client import Client, ClientStatistics
from .errors import (
    AckTimeout,
    ActivityUnavailable,
    AlreadyMember,
    ClientClosed,
    ClientNotTrusted,
    ConcurrentRead,
    ConnectionFailed,
    ConnectTimeout,
    CursorsUnavailable,
    DuplicateCorrelationId,
    EncryptionFailed,
    GroupError,
    IncorrectOffset,
    InvalidRequest,
    LiftbridgeError,
    MalformedData,
    MessageTooLarge,
    NoCommittedPosition,
    NoMetadataLeader,
    NotFound,
    NotGroupMember,
    NotLiftbridge,
    NotPartitionLeader,
    PartitionNotFound,
    PartitionPaused,
    PartitionReadonly,
    PartitionTaken,
    PermissionDenied,
    PublishError,
    PublishManyFailed,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishRefused,
    PublishTimeout,
    RequestTimeout,
    ServerError,
    ServerNotTrusted,
    StreamDeleted,
    StreamExists,
    StreamNotFound,
    StreamReserved,
    StreamReset,
    SubscriptionError,
    SubscriptionLost,
    TLSFailed,
    UndecodableMessage,
    UnsupportedByServer,
    UsageError,
    WrongType,
)
from .model import (
    ALL_PARTITIONS,
    Ack,
    AckError,
    AckPolicy,
    BrokerInfo,
    EndReason,
    EventTimestamps,
    GroupInfo,
    Message,
    Metadata,
    Partitioner,
    PartitionInfo,
    Record,
    StartAt,
    StopAt,
    StreamInfo,
)
from .options import ClientOptions, Duration, StreamOptions
from .partitioner import by_key, round_robin
from .retry import Backoff, Retry
from .telemetry import Hook
from .tls import TLS

if TYPE_CHECKING:
    from .groups import ConsumerGroup, GroupState, StreamPartition
    from .merged_subscription import MergedSubscription
    from .raw_message import RawMessage
    from .subscription import Subscription

__all__ = [
    "ALL_PARTITIONS",
    "TLS",
    "Ack",
    "AckError",
    "AckPolicy",
    "AckTimeout",
    "ActivityUnavailable",
    "AlreadyMember",
    "Backoff",
    "BrokerInfo",
    "Client",
    "ClientClosed",
    "ClientNotTrusted",
    "ClientOptions",
    "ClientStatistics",
    "ConcurrentRead",
    "ConnectTimeout",
    "ConnectionFailed",
    "ConsumerGroup",
    "CursorsUnavailable",
    "DuplicateCorrelationId",
    "Duration",
    "EncryptionFailed",
    "EndReason",
    "EventTimestamps",
    "GroupError",
    "GroupInfo",
    "GroupState",
    "Hook",
    "IncorrectOffset",
    "InvalidRequest",
    "LiftbridgeError",
    "MalformedData",
    "MergedSubscription",
    "Message",
    "MessageTooLarge",
    "Metadata",
    "NoCommittedPosition",
    "NoMetadataLeader",
    "NotFound",
    "NotGroupMember",
    "NotLiftbridge",
    "NotPartitionLeader",
    "PartitionInfo",
    "PartitionNotFound",
    "PartitionPaused",
    "PartitionReadonly",
    "PartitionTaken",
    "Partitioner",
    "PermissionDenied",
    "PublishError",
    "PublishManyFailed",
    "PublishNotSent",
    "PublishOutcomeUnknown",
    "PublishRefused",
    "PublishTimeout",
    "RawMessage",
    "Record",
    "RequestTimeout",
    "Retry",
    "ServerError",
    "ServerNotTrusted",
    "StartAt",
    "StopAt",
    "StreamDeleted",
    "StreamExists",
    "StreamInfo",
    "StreamNotFound",
    "StreamOptions",
    "StreamPartition",
    "StreamReserved",
    "StreamReset",
    "Subscription",
    "SubscriptionError",
    "SubscriptionLost",
    "TLSFailed",
    "UndecodableMessage",
    "UnsupportedByServer",
    "UsageError",
    "WrongType",
    "by_key",
    "round_robin",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    # These import the network and protobuf, so they are imported when somebody asks for them.
    if name == "Subscription":
        from .subscription import Subscription  # noqa: PLC0415 - see above

        return Subscription
    if name == "MergedSubscription":
        from .merged_subscription import MergedSubscription  # noqa: PLC0415 - see above

        return MergedSubscription
    if name == "RawMessage":
        from .raw_message import RawMessage  # noqa: PLC0415 - see above

        return RawMessage
    if name in {"ConsumerGroup", "GroupState", "StreamPartition"}:
        from . import groups  # noqa: PLC0415 - see above

        return getattr(groups, name)
    text = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(text)
