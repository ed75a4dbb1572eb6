"""The three hot messages: PublishRequest out, PublishResponse and Message in.

Everything per message goes through these functions, so that a faster codec has one place to stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import UNCHECKED_OFFSET, Ack, AckError, AckPolicy, Message

from . import proto


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
        proto.PublishRequest(
            stream=stream,
            partition=partition,
            value=value,
            key=key or b"",
            headers=dict(headers) if headers else {},
            ack_policy=proto.AckPolicy(ack_policy),
            correlation_id=correlation_id,
            expected_offset=UNCHECKED_OFFSET if expected_offset is None else expected_offset,
        )
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
    try:
        response = proto.PublishResponse.parse(data)
    except Exception as error:
        text = f"a publish response of {len(data)} bytes cannot be read"
        raise MalformedData(text) from error
    failed = response.async_error
    if failed is not None:
        return PublishReply(response.correlation_id, None, int(failed.code), failed.message)
    if response.ack is None:
        text = "a publish response holds neither an ack nor an error"
        raise MalformedData(text)
    ack = ack_from_wire(response.ack)
    return PublishReply(ack.correlation_id or response.correlation_id, ack)


def ack_from_wire(ack: proto.Ack) -> Ack:
    """Turn the wire's Ack into ours; codes that are not known yet count as UNKNOWN."""
    code = int(ack.ack_error)
    policy = int(ack.ack_policy)
    return Ack(
        ack.stream,
        ack.partition_subject,
        ack.msg_subject,
        ack.offset,
        ack.ack_inbox,
        ack.correlation_id,
        AckPolicy(policy) if policy in _POLICIES else AckPolicy.LEADER,
        ack.reception_timestamp,
        ack.commit_timestamp,
        AckError(code) if code in _ERRORS else AckError.UNKNOWN,
    )


_POLICIES = frozenset(int(policy) for policy in AckPolicy)
_ERRORS = frozenset(int(error) for error in AckError)


def decode_message(data: bytes) -> Message:
    """Read a Message.

    Raises:
        MalformedData: the bytes are no Message.
    """
    try:
        message = proto.Message.parse(data)
    except Exception as error:
        text = f"a message of {len(data)} bytes cannot be read"
        raise MalformedData(text) from error
    return Message(
        message.stream,
        message.partition,
        message.offset,
        message.key,
        message.value,
        message.timestamp,
        message.headers,
        message.subject,
        message.reply_subject,
    )
