"""The hot messages and the metadata as classes of protobuf's own runtime, in a pool of their own.

protobuf's default pool is shared by the whole process and refuses two files that declare the same
name differently. Another Liftbridge client in the same application declares `proto.Message`, so
these stand in a private pool, in a package of their own. They are written here by hand, so that
they work with every supported version of protobuf; generated ones do not.

Enums are plain numbers in them, since a newer server may have more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from liftbridge_aio.model import RESERVED_HEADERS, TRANSACTION_HEADERS

PARSE_ERRORS: Final = (DecodeError, UnicodeDecodeError)
"""Errors of parsing; the second comes from protobuf where its C runtime is missing."""

_PACKAGE: Final = "liftbridge_aio.wire.hot"

_SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}

_MESSAGE: Final = (
    "int64 offset = 1",
    "bytes key = 2",
    "bytes value = 3",
    "int64 timestamp = 4",
    "string stream = 5",
    "int32 partition = 6",
    "string subject = 7",
    "string reply_subject = 8",
    # Nobody looks at these, but texts in them are checked all the same.
    "string ack_inbox = 10",
    "string correlation_id = 11",
    "int32 ack_policy = 12",
)
_HEADERS: Final = "repeated Header headers = 9"

_ACK: Final = (
    "string stream = 1",
    "string partition_subject = 2",
    "string msg_subject = 3",
    "int64 offset = 4",
    "string ack_inbox = 5",
    "string correlation_id = 6",
    "int32 ack_policy = 7",
    "int64 reception_timestamp = 8",
    "int64 commit_timestamp = 9",
    "int32 ack_error = 10",
)


def _repeated(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"repeated {field}" for field in fields)


_MESSAGES: Final = {
    # A header is what an entry of a `map<string, bytes>` is on the wire.
    "Header": ("string name = 1", "bytes content = 2"),
    "Message": (*_MESSAGE, _HEADERS),
    "HeaderColumns": ("repeated string name = 1", "repeated bytes content = 2"),
    "MessageColumns": (*_repeated(_MESSAGE), "HeaderColumns headers = 9"),
    "Ack": _ACK,
    "AckColumns": _repeated(_ACK),
    "PublishAsyncError": ("int32 code = 1", "string message = 2"),
    "PublishResponse": (
        "Ack ack = 1",
        "PublishAsyncError async_error = 2",
        "string correlation_id = 3",
    ),
    "PublishResponseColumns": (
        "AckColumns ack = 1",
        "PublishAsyncError async_error = 2",
        "repeated string correlation_id = 3",
    ),
    "PublishRequest": (
        "bytes key = 1",
        "bytes value = 2",
        "string stream = 3",
        "int32 partition = 4",
        "repeated Header headers = 5",
        "string ack_inbox = 6",
        "string correlation_id = 7",
        "int32 ack_policy = 8",
        "int64 expected_offset = 9",
    ),
    "PublishToSubjectRequest": (
        "bytes key = 1",
        "bytes value = 2",
        "string subject = 3",
        "repeated Header headers = 4",
        "string ack_inbox = 5",
        "string correlation_id = 6",
        "int32 ack_policy = 7",
    ),
    "Broker": (
        "string id = 1",
        "string host = 2",
        "int32 port = 3",
        "int32 partition_count = 4",
        "int32 leader_count = 5",
    ),
    "EventTimestamps": ("int64 first_timestamp = 1", "int64 latest_timestamp = 2"),
    "PartitionMetadata": (
        "int32 id = 1",
        "string leader = 2",
        "repeated string replicas = 3",
        "repeated string isr = 4",
        "int64 high_watermark = 5",
        "int64 newest_offset = 6",
        "bool paused = 7",
        "bool readonly = 8",
        "EventTimestamps messages_received_timestamps = 9",
        "EventTimestamps pause_timestamps = 10",
        "EventTimestamps readonly_timestamps = 11",
    ),
    # An entry of a map; a key of 0 is written in one.
    "Partition": ("optional int32 number = 1", "PartitionMetadata metadata = 2"),
    "StreamMetadata": (
        "string name = 1",
        "string subject = 2",
        "int32 error = 3",
        "repeated Partition partitions = 4",
        "int64 creation_timestamp = 5",
    ),
    "GroupMetadata": (
        "string group_id = 1",
        "int32 error = 2",
        "string coordinator = 3",
        "uint64 epoch = 4",
    ),
    "FetchMetadataResponse": (
        "repeated Broker brokers = 1",
        "repeated StreamMetadata stream_metadata = 2",
        "repeated GroupMetadata group_metadata = 3",
    ),
}


def build_classes(package: str, messages: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Make a class of protobuf's own runtime for each message, in a pool of their own.

    Args:
        package: the name of their package.
        messages: the fields of each, declared as in a .proto file.
    """
    file = FileDescriptorProto(
        name=f"{package.replace('.', '/')}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for declaration in fields:
            _declare(message, declaration, package)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages
    }


def _declare(message: DescriptorProto, declaration: str, package: str) -> None:
    """Add a field that is declared as in a .proto file."""
    declared, number = declaration.split(" = ")
    *label, kind, name = declared.split()
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if label == ["repeated"] else field.LABEL_OPTIONAL
    if label == ["optional"]:
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"


_CLASSES: Final = build_classes(_PACKAGE, _MESSAGES)

WireMessage: Final[Any] = _CLASSES["Message"]


def split_headers(message: Any) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the publisher's headers of a `WireMessage`, and those of transactions."""
    # A list is faster to iterate over than what protobuf has.
    headers = {header.name: header.content for header in message.headers[:]}
    for name in RESERVED_HEADERS:
        headers.pop(name, None)
    own = headers.keys() & TRANSACTION_HEADERS
    return headers, {name: headers.pop(name) for name in own}


WirePublishRequest: Final[Any] = _CLASSES["PublishRequest"]
WirePublishToSubjectRequest: Final[Any] = _CLASSES["PublishToSubjectRequest"]
WirePublishResponse: Final[Any] = _CLASSES["PublishResponse"]
WireMetadata: Final[Any] = _CLASSES["FetchMetadataResponse"]
WirePartition: Final[Any] = _CLASSES["PartitionMetadata"]

# Each field repeated: what `columns` reads many messages with.
MessageColumns: Final[Any] = _CLASSES["MessageColumns"]
PublishResponseColumns: Final[Any] = _CLASSES["PublishResponseColumns"]
