"""The three hot messages: PublishRequest out, PublishResponse and Message in.

Everything per message goes through these functions, so that a faster codec has one place to stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import UNCHECKED_OFFSET, Ack, AckError, AckPolicy, Message

from . import proto

T = TypeVar("T")


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
        reply = _publish_reply(proto.PublishResponse.parse(data))
    except Exception as error:
        text = f"a publish response of {len(data)} bytes cannot be read"
        raise MalformedData(text) from error
    if reply.ack is None and reply.error_code is None:
        text = "a publish response holds neither an ack nor an error"
        raise MalformedData(text)
    return reply


def _publish_reply(response: proto.PublishResponse) -> PublishReply:
    correlation_id = _typed(response.correlation_id, str)
    failed = response.async_error
    if failed is not None:
        code, text = _typed(failed.code, int), _typed(failed.message, str)
        return PublishReply(correlation_id, None, int(code), text)
    if response.ack is None:
        return PublishReply(correlation_id)
    ack = ack_from_wire(response.ack)
    return PublishReply(ack.correlation_id or correlation_id, ack)


def ack_from_wire(ack: proto.Ack) -> Ack:
    """Turn the wire's Ack into ours; codes that are not known yet count as UNKNOWN.

    Raises:
        MalformedData: a field has the type of another one.
    """
    code = int(_typed(ack.ack_error, int))
    policy = int(_typed(ack.ack_policy, int))
    return Ack(
        _typed(ack.stream, str),
        _typed(ack.partition_subject, str),
        _typed(ack.msg_subject, str),
        _typed(ack.offset, int),
        _typed(ack.ack_inbox, str),
        _typed(ack.correlation_id, str),
        AckPolicy(policy) if policy in _POLICIES else AckPolicy.LEADER,
        _typed(ack.reception_timestamp, int),
        _typed(ack.commit_timestamp, int),
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
        return _message(proto.Message.parse(data))
    except Exception as error:
        text = f"a message of {len(data)} bytes cannot be read"
        raise MalformedData(text) from error


def _message(message: proto.Message) -> Message:
    for name, content in message.headers.items():
        _typed(name, str)
        _typed(content, bytes)
    return Message(
        _typed(message.stream, str),
        _typed(message.partition, int),
        _typed(message.offset, int),
        _typed(message.key, bytes),
        _typed(message.value, bytes),
        _typed(message.timestamp, int),
        message.headers,
        _typed(message.subject, str),
        _typed(message.reply_subject, str),
    )


def _typed(value: T, kind: type[Any]) -> T:
    """Return a value, if it is what its field calls for: betterproto2 does not look."""
    if not isinstance(value, kind):
        text = f"a field holds {value!r:.40}, which is no {kind.__name__}"
        raise MalformedData(text)
    return value
