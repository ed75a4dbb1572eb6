"""The three hot messages: PublishRequest out, PublishResponse and Message in.

Everything per message goes through these functions. They use protobuf's C runtime: the generated
classes of betterproto2 take thirty to eighty times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import UNCHECKED_OFFSET, Ack, AckError, AckPolicy, Message

from . import proto
from .field_types import wrong_field
from .hot_schema import WireMessage, WirePublishRequest, WirePublishResponse

# Publishing


def encode_publish_request(
    stream: str,
    partition: int,
    value: bytes,
    *,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    ack_policy: AckPolicy,
    correlation_id: str,
    expected_offset: int | None,
) -> bytes:
    """Make the bytes of a PublishRequest; an expected offset of None is sent as -1, unchecked."""
    return bytes(
        WirePublishRequest(
            stream=stream,
            partition=partition,
            value=value,
            key=key or b"",
            headers=[{"name": name, "content": content} for name, content in headers.items()]
            if headers
            else (),
            ack_policy=ack_policy,
            correlation_id=correlation_id,
            expected_offset=UNCHECKED_OFFSET if expected_offset is None else expected_offset,
        ).SerializeToString()
    )


@dataclass(slots=True)
class PublishReply:
    """A PublishResponse: an ack, or the code and text of an error (W8)."""

    correlation_id: str
    ack: Ack | None = None
    error_code: int | None = None
    error_text: str = ""


def decode_publish_response(data: bytes) -> PublishReply:
    """Read a PublishResponse.

    The presence of an error is tested first: errors carry a dummy ack, and code 0 is an error
    too (W8).

    Raises:
        MalformedData: the bytes are no PublishResponse.
    """
    return decode_publish_responses((data,))[0]


def decode_publish_responses(datas: Sequence[bytes]) -> list[PublishReply]:
    """Read many PublishResponses, as `decode_publish_response` does.

    Raises:
        MalformedData: one of them is no PublishResponse; nothing of the others is returned.
    """
    replies: list[PublishReply] = []
    response = WirePublishResponse()
    parse = response.ParseFromString
    for data in datas:
        try:
            parse(data)
        except DecodeError as error:
            text = f"publish response {len(replies)} of {len(data)} bytes cannot be read"
            raise MalformedData(text) from error
        replies.append(_publish_reply(response))
    return replies


def _publish_reply(response: Any) -> PublishReply:
    if response.HasField("async_error"):
        failed = response.async_error
        return PublishReply(response.correlation_id, None, failed.code, failed.message)
    if not response.HasField("ack"):
        text = "a publish response holds neither an ack nor an error"
        raise MalformedData(text)
    ack = _ack(response.ack)
    return PublishReply(ack.correlation_id or response.correlation_id, ack)


def _ack(ack: Any) -> Ack:
    return Ack(
        ack.stream,
        ack.partition_subject,
        ack.msg_subject,
        ack.offset,
        ack.ack_inbox,
        ack.correlation_id,
        _POLICIES.get(ack.ack_policy, AckPolicy.LEADER),
        ack.reception_timestamp,
        ack.commit_timestamp,
        _ERRORS.get(ack.ack_error, AckError.UNKNOWN),
    )


_POLICIES: Final[Mapping[int, AckPolicy]] = {int(policy): policy for policy in AckPolicy}
_ERRORS: Final[Mapping[int, AckError]] = {int(error): error for error in AckError}


def ack_from_wire(ack: proto.Ack) -> Ack:
    """Turn the Ack of betterproto2 into ours; codes that are not known yet count as UNKNOWN.

    Raises:
        MalformedData: a field has the type of another one, which betterproto2 does not look at.
    """
    wrong = wrong_field(ack)
    if wrong is not None:
        text = f"the field {wrong} of an ack has the type of another one"
        raise MalformedData(text)
    return _ack(ack)


# Reading


def decode_message(data: bytes) -> Message:
    """Read a Message.

    Raises:
        MalformedData: the bytes are no Message.
    """
    return decode_messages((data,))[0]


def decode_messages(datas: Sequence[bytes]) -> list[Message]:
    """Read many Messages, as `decode_message` does.

    Raises:
        MalformedData: one of them is no Message; nothing of the others is returned.
    """
    messages: list[Message] = []
    wire = WireMessage()
    parse = wire.ParseFromString
    for data in datas:
        try:
            parse(data)
        except DecodeError as error:
            text = f"message {len(messages)} of {len(data)} bytes cannot be read"
            raise MalformedData(text) from error
        messages.append(
            Message(
                wire.stream,
                wire.partition,
                wire.offset,
                wire.key,
                wire.value,
                wire.timestamp,
                {header.name: header.content for header in wire.headers},
                wire.subject,
                wire.reply_subject,
            )
        )
    return messages


def message_place(data: bytes) -> tuple[int, int]:
    """Read no more of a Message than its offset and timestamp.

    Raises:
        MalformedData: the bytes are no Message.
    """
    try:
        wire = WireMessage.FromString(data)
    except DecodeError as error:
        text = f"a message of {len(data)} bytes cannot be read"
        raise MalformedData(text) from error
    return wire.offset, wire.timestamp
