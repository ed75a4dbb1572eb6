"""The asyncio client for Liftbridge.

    async with Client("127.0.0.1:9292") as client:
        await client.create_stream("greetings", exist_ok=True)
        await client.publish("greetings", b"hello")
        async for message in client.subscribe("greetings", start=StartAt.earliest()):
            print(message.value)

`liftbridge_aio.broker.EmbeddedBroker` is a server to try it on.

- `__main__`: `python -m liftbridge_aio`: the command line of the package.
- `activity_events`: Events of the servers' activity stream: operations on streams and groups, as
  values.
- `compression`: Compressed values: a header of the message names the encoding.
- `errors`: Everything this package raises, as one tree.
- `handlers`: Handlers that run on a Liftbridge queue, NATS Streaming and NSQ alike.
- `interceptors`: Interceptors: code that runs around every publish and around the processing of
  every message.
- `model`: The values of the public API: messages, acks, positions, metadata.
- `options`: Options of the client, of streams and of single calls: frozen and checked when they
  are made.
- `partitioner`: The partitioners that come with the package; any `model.Partitioner` will do.
- `pytest_plugin`: The pytest plugin: brokers, clusters and clients as fixtures, in the event loop
  of the test.
- `retry`: Backoff and retry settings, and the wait before the next attempt.
- `serializers`: Serialisation of values: the protocol, and the serialisers that come with it.
- `telemetry`: Events of the client: the hook that receives them, and frozen records.
- `tls`: The TLS option: which servers the client trusts, and how it authenticates itself.
- `values`: Encodes and decodes typed values, and handles messages that cannot be decoded.
- `_admin/`: Calls that administer streams and cursors.
- `_client/`: The client, assembled from the packages below.
- `_core/`: Pure helpers that every part of the package may use.
- `_publish/`: Everything between publish() and an ack.
- `_runtime/`: What runs tasks, connections and signals for every part of the package.
- `_subscribe/`: Everything between a Subscribe call and `async for`.
- `bridge/`: Bridges: copy between Liftbridge and NATS Streaming or NSQ while both are in use.
- `broker/`: A Liftbridge server inside your process: real gRPC on real ports, alone or as a
  cluster.
- `cli/`: The command line: one file per noun, put together here.
- `durable_streams/`: A client for Durable Streams: append-only streams over HTTP, for asyncio.
- `groups/`: Consumer groups: members share the partitions of streams and go on where others
  stopped.
- `integrations/`: Web services on Liftbridge: FastAPI, Starlette and aiohttp, each in the module
  of its name.
- `nats/`: Publishing straight over NATS, past the Liftbridge API, and what is needed around it.
- `net/`: The transport: connections, calls, metadata. The only client package that imports
  grpclib.
- `nsq/`: A client for NSQ: a producer and a consumer for asyncio.
- `queue/`: Queues: what consumers of messages with acks have in common.
- `spark/`: The data source `liftbridge` of Spark, through PySpark.
- `stan/`: A client of NATS Streaming (STAN): publishes to channels, subscribes with durables and
  queues.
- `testing/`: Tools to test services with: a fault proxy and a history checker.
- `transactions/`: Exactly once: messages that are delivered once, and transactions that are visible
  whole.
- `wire/`: Bytes only: generated messages, the table of procedures, the codec of hot messages,
  envelopes.
"""

from liftbridge_aio._runtime import early_interrupt as _early_interrupt  # noqa: F401 - before all that takes time

# isort: split
import importlib
from typing import TYPE_CHECKING, Any

from ._client.client import Client, ClientStatistics
from .errors import (
    AckTimeout,
    ActivityUnavailable,
    AlreadyMember,
    CallbackCancelled,
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
from .interceptors import Interceptor
from .model import (
    Ack,
    AckError,
    AckPolicy,
    BrokerInfo,
    EndReason,
    EventTimestamps,
    GroupInfo,
    Message,
    Metadata,
    OutgoingMessage,
    Partitioner,
    PartitionInfo,
    Record,
    StartAt,
    StopAt,
    StreamInfo,
    StreamPartition,
)
from .options import ClientOptions, Duration, StreamOptions
from .partitioner import by_key, round_robin
from .retry import Backoff, Retry
from .telemetry import ConnectionStatistics, Hook, SubscriptionStatistics
from .tls import TLS

if TYPE_CHECKING:
    from ._publish.publisher import PublisherStatistics
    from ._subscribe.core.checkpoint import Checkpoint
    from ._subscribe.merged_subscription import MergedSubscription
    from ._subscribe.seekable_reader import ReadStatistics
    from ._subscribe.subscription import Subscription
    from .groups import ConsumerGroup, GroupState
    from .wire.raw_message import RawMessage

__all__ = [
    "TLS",
    "Ack",
    "AckError",
    "AckPolicy",
    "AckTimeout",
    "ActivityUnavailable",
    "AlreadyMember",
    "Backoff",
    "BrokerInfo",
    "CallbackCancelled",
    "Checkpoint",
    "Client",
    "ClientClosed",
    "ClientNotTrusted",
    "ClientOptions",
    "ClientStatistics",
    "ConcurrentRead",
    "ConnectTimeout",
    "ConnectionFailed",
    "ConnectionStatistics",
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
    "Interceptor",
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
    "OutgoingMessage",
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
    "PublisherStatistics",
    "RawMessage",
    "ReadStatistics",
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
    "SubscriptionStatistics",
    "TLSFailed",
    "UndecodableMessage",
    "UnsupportedByServer",
    "UsageError",
    "WrongType",
    "by_key",
    "round_robin",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


_LATE = {
    "Checkpoint": "_subscribe.core.checkpoint",
    "ConsumerGroup": "groups",
    "GroupState": "groups",
    "MergedSubscription": "_subscribe.merged_subscription",
    "PublisherStatistics": "_publish.publisher",
    "RawMessage": "wire.raw_message",
    "ReadStatistics": "_subscribe.seekable_reader",
    "Subscription": "_subscribe.subscription",
}
"""Names whose modules import the network or protobuf; they are imported on first use."""
