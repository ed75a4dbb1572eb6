"""The hot messages as betterproto2 reads them: what the fast codec is compared with."""

from __future__ import annotations

from typing import Any

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import Ack, AckError, AckPolicy, Message
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import PublishRefusal
from liftbridge_aio.wire.field_types import wrong_field


def decode_message(data: bytes) -> Message:
    wire = _parsed(proto.Message, data)
    return Message(
        wire.stream,
        wire.partition,
        wire.offset,
        wire.key,
        wire.value,
        wire.timestamp,
        wire.headers,
        wire.subject,
        wire.reply_subject,
    )


def decode_publish_response(data: bytes) -> Ack | PublishRefusal:
    wire = _parsed(proto.PublishResponse, data)
    error, ack = wire.async_error, wire.ack
    if error is not None:
        return PublishRefusal(wire.correlation_id, int(error.code), error.message)
    if ack is None:
        raise MalformedData("neither an ack nor an error")
    policy, code = int(ack.ack_policy), int(ack.ack_error)
    return Ack(
        ack.stream,
        ack.partition_subject,
        ack.msg_subject,
        ack.offset,
        ack.ack_inbox,
        ack.correlation_id or wire.correlation_id,
        AckPolicy(policy) if policy in set(AckPolicy) else AckPolicy.LEADER,
        ack.reception_timestamp,
        ack.commit_timestamp,
        AckError(code) if code in set(AckError) else AckError.UNKNOWN,
    )


def _parsed(message_type: Any, data: bytes) -> Any:
    try:
        message = message_type.parse(data)
    except Exception as error:
        raise MalformedData(str(error)) from error
    if wrong_field(message) is not None:
        raise MalformedData("a field has the type of another one")
    return message
