"""The hot messages as a broker reads and writes them, by protobuf's C runtime.

Publishes, acks and messages are most of what an embedded broker reads and says, and the generated
classes take many times as long for the same bytes. What comes in and out is generated messages all
the same, and everything else goes through them.
"""

from __future__ import annotations

from typing import Any, Final

from . import proto
from .hot_schema import (
    PARSE_ERRORS,
    WireMessage,
    WirePublishRequest,
    WirePublishResponse,
    WirePublishToSubjectRequest,
)
from .metadata_codec import encode_metadata
from .rpc import SLOWLY_READ_BYTES

_POLICIES: Final = {int(policy): policy for policy in proto.AckPolicy}


def parse_publish_request(data: bytes) -> proto.PublishRequest | None:
    """Read a publish as publishers write it; None for all that needs a closer look.

    None does not mean that the bytes are wrong: only that they are not the shortest way to say what
    they say, or that there are fields or an ack policy that few publishers use.
    """
    read = _read(WirePublishRequest(), data)
    if read is None:
        return None
    wire, policy = read
    return proto.PublishRequest(
        key=wire.key,
        value=wire.value,
        stream=wire.stream,
        partition=wire.partition,
        headers={header.name: header.content for header in wire.headers},
        ack_inbox=wire.ack_inbox,
        correlation_id=wire.correlation_id,
        ack_policy=policy,
        expected_offset=wire.expected_offset,
    )


def parse_publish_to_subject_request(data: bytes) -> proto.PublishToSubjectRequest | None:
    """Do the same for a publish to a subject."""
    read = _read(WirePublishToSubjectRequest(), data)
    if read is None:
        return None
    wire, policy = read
    return proto.PublishToSubjectRequest(
        key=wire.key,
        value=wire.value,
        subject=wire.subject,
        headers={header.name: header.content for header in wire.headers},
        ack_inbox=wire.ack_inbox,
        correlation_id=wire.correlation_id,
        ack_policy=policy,
    )


def _read(wire: Any, data: bytes) -> tuple[Any, proto.AckPolicy] | None:
    try:
        wire.ParseFromString(data)
    except PARSE_ERRORS:
        return None
    wire.DiscardUnknownFields()  # among them those of a wrong wire type
    policy = _POLICIES.get(wire.ack_policy)
    # Large requests are not parsed again: the generated classes would take minutes.
    if policy is None or (wire.ByteSize() != len(data) <= SLOWLY_READ_BYTES):
        return None
    return wire, policy


def encode_reply(reply: Any) -> bytes:
    """Return the bytes of a reply, a generated message of any kind.

    Raises:
        ValueError: a number does not fit its field, or a text is no Unicode.
    """
    if isinstance(reply, proto.Message):
        return _encode_message(reply)
    if isinstance(reply, proto.PublishResponse):
        return _encode_publish_response(reply)
    if isinstance(reply, proto.FetchMetadataResponse):
        return encode_metadata(reply)
    return bytes(reply)


def _encode_message(message: proto.Message) -> bytes:
    wire = WireMessage(
        offset=message.offset,
        key=message.key,
        value=message.value,
        timestamp=message.timestamp,
        stream=message.stream,
        partition=message.partition,
        subject=message.subject,
        reply_subject=message.reply_subject,
        ack_inbox=message.ack_inbox,
        correlation_id=message.correlation_id,
        ack_policy=message.ack_policy,
    )
    for name, content in message.headers.items():
        wire.headers.add(name=name, content=content)
    encoded: bytes = wire.SerializeToString()
    return encoded


def _encode_publish_response(response: proto.PublishResponse) -> bytes:
    wire = WirePublishResponse(correlation_id=response.correlation_id)
    ack = response.ack
    if ack is not None:
        to = wire.ack
        to.SetInParent()
        to.stream = ack.stream
        to.partition_subject = ack.partition_subject
        to.msg_subject = ack.msg_subject
        to.offset = ack.offset
        to.ack_inbox = ack.ack_inbox
        to.correlation_id = ack.correlation_id
        to.ack_policy = ack.ack_policy
        to.reception_timestamp = ack.reception_timestamp
        to.commit_timestamp = ack.commit_timestamp
        to.ack_error = ack.ack_error
    error = response.async_error
    if error is not None:
        wire.async_error.SetInParent()
        wire.async_error.code = error.code
        wire.async_error.message = error.message
    encoded: bytes = wire.SerializeToString()
    return encoded
