"""The three hot messages: PublishRequest out, PublishResponse and Message in.

Everything per message goes through these functions. They use protobuf's C runtime: the generated
classes of betterproto2 take thirty to eighty times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import (
    RESERVED_HEADERS,
    TRANSACTION_HEADERS,
    UNCHECKED_OFFSET,
    UUID_HEADER,
    Ack,
    AckError,
    AckPolicy,
    AckRest,
    HeadersRow,
    Message,
    MessageRow,
)

from . import proto
from .columns import MIN_MESSAGES, ack_rows, message_rows
from .field_types import wrong_field
from .framing import PREFIX_BYTES
from .hot_schema import (
    PARSE_ERRORS,
    WireMessage,
    WirePublishRequest,
    WirePublishResponse,
    split_headers,
)

_MIN_ACKS_IN_COLUMNS: Final = 8
"""From how many on columns are faster."""

# Publishing

# Tags of PublishRequest's fields.
_KEY: Final = b"\x0a"
_VALUE: Final = b"\x12"
_HEADERS: Final = b"\x2a"
_CORRELATION_ID: Final = b"\x3a"
_EXPECTED_OFFSET: Final = b"\x48"

# Tags of an entry of its map of headers.
_NAME: Final = b"\x0a"
_CONTENT: Final = b"\x12"

_MAX_CACHED_NAME: Final = 128
"""Characters of the longest header name whose encoding is cached."""
_MAX_FAST_HEADERS: Final = 64
_REFUSED: Final = RESERVED_HEADERS | TRANSACTION_HEADERS
"""Names of headers that are not the publisher's to write."""


def publish_head(stream: str, partition: int, ack_policy: AckPolicy) -> bytes:
    """Encode the fields that most PublishRequests to a partition have in common.

    The expected offset is the one of a message without; one that follows replaces it.
    """
    request = WirePublishRequest(
        stream=stream, partition=partition, ack_policy=ack_policy, expected_offset=UNCHECKED_OFFSET
    )
    head: bytes = request.SerializeToString()
    return head


def frame_publish(  # noqa: C901 - a call per field would take longer than the checks
    head: bytes,
    value: bytes,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    expected_offset: int | None,
    correlation_id: str,
    encoded: bytes = b"",
) -> bytes:
    """Encode a PublishRequest with gRPC's prefix.

    Encoded protobuf messages that are joined merge, so `publish_head` is encoded once per partition
    and only the other fields are encoded here. They need not have been checked; `encoded` has
    further headers, see `encode_headers` and `encode_uuid_header`.

    Returns:
        Nothing where a field is unusual or wrong, so that the message must be checked. Afterwards
        headers are given as `encoded`, because names that are seldom used are not cached here.
    """
    if type(value) is not bytes:
        return b""
    correlation = correlation_id.encode()
    if key is None and headers is None and expected_offset is None and not encoded:
        before, between = _around(head, len(value), len(correlation))
        return b"".join((before, value, between, correlation))
    rest = b""
    if expected_offset is not None:
        if type(expected_offset) is not int or not 0 <= expected_offset <= INT64_MAX:
            return b""
        rest = _EXPECTED_OFFSET + _varint(expected_offset)
    if key is not None:
        if type(key) is not bytes:
            return b""
        if key:
            rest += _before_key(len(key)) + key
    if headers is not None:
        if type(headers) is not dict or len(headers) > _MAX_FAST_HEADERS:
            return b""
        try:
            for name, content in headers.items():
                if type(content) is not bytes:
                    return b""
                rest += _before_content_cached(name, len(content)) + content
        except ValueError:
            return b""
    rest += encoded
    before, between = _around(head, len(value), len(correlation), len(rest))
    return b"".join((before, value, between, correlation, rest))


@lru_cache(maxsize=4096)
def _around(
    head: bytes, value_size: int, correlation_size: int, rest_size: int = 0
) -> tuple[bytes, bytes]:
    """Encode what stands before the value of a request, and between it and the correlation id."""
    request = head + _VALUE + _varint(value_size)
    between = _CORRELATION_ID + _varint(correlation_size)
    size = len(request) + value_size + len(between) + correlation_size + rest_size
    return size.to_bytes(PREFIX_BYTES, "big") + request, between


@lru_cache(maxsize=1024)
def _before_key(size: int) -> bytes:
    return _KEY + _varint(size)


@lru_cache(maxsize=4096)
def _before_content_cached(name: str, size: int) -> bytes:
    """Encode what stands before the content of a header.

    Raises:
        ValueError: the name is not allowed, or too long to be cached.
    """
    if type(name) is not str or len(name) > _MAX_CACHED_NAME or name in _REFUSED:
        raise ValueError(name)
    return _before_content(name, size)


def _before_content(name: str, size: int) -> bytes:
    encoded = name.encode()
    entry = _NAME + _varint(len(encoded)) + encoded + _CONTENT + _varint(size)
    return _HEADERS + _varint(len(entry) + size) + entry


def encode_headers(headers: Mapping[str, bytes] | None) -> bytes:
    """Encode headers that were checked, as fields of a request to publish."""
    return b"".join(
        _before_content(name, len(content)) + content for name, content in (headers or {}).items()
    )


def encode_uuid_header(uuid: bytes) -> bytes:
    """Encode the header with the UUID of a message, as a field of a request to publish."""
    return _BEFORE_UUID + uuid


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_UUID_BYTES: Final = 16
_BEFORE_UUID: Final = _before_content(UUID_HEADER, _UUID_BYTES)


@dataclass(slots=True)
class PublishRefusal:
    """A PublishResponse that reports a refusal."""

    correlation_id: str
    code: int
    text: str


def decode_publish_response(data: bytes) -> Ack | PublishRefusal:
    """Read a PublishResponse.

    The presence of an error is tested first: errors carry a dummy ack, and code 0 is an error
    too.

    Raises:
        MalformedData: the bytes are no PublishResponse.
    """
    try:
        return _answer(WirePublishResponse.FromString(data))
    except PARSE_ERRORS as error:
        raise MalformedData(f"a publish response of {len(data)} bytes cannot be read") from error


def decode_acks(datas: Sequence[bytes]) -> list[Ack] | None:
    """Read many PublishResponses that all hold acks that say OK.

    Returns:
        None where they have to be read one by one, by `decode_publish_responses`.
    """
    if len(datas) < _MIN_ACKS_IN_COLUMNS:
        return None
    rows = ack_rows(datas)
    return None if rows is None else Ack.received(rows, _rest_of_ack)


def decode_publish_responses(datas: Sequence[bytes]) -> list[Ack | PublishRefusal]:
    """Read PublishResponses of any kind.

    Raises:
        MalformedData: one of them is no PublishResponse; the text says which.
    """
    answers: list[Ack | PublishRefusal] = []
    for data in datas:
        try:
            answers.append(decode_publish_response(data))
        except MalformedData as error:
            raise MalformedData(f"response {len(answers)} of {len(datas)}: {error}") from error
    return answers


def _answer(response: Any) -> Ack | PublishRefusal:
    if response.HasField("async_error"):
        failed = response.async_error
        return PublishRefusal(response.correlation_id, failed.code, failed.message)
    if not response.HasField("ack"):
        raise MalformedData("a publish response holds neither an ack nor an error")
    ack = _ack(response.ack)
    if not ack.correlation_id:
        ack.correlation_id = response.correlation_id
    return ack


def _rest_of_ack(data: bytes) -> AckRest:
    """Read what `ack_rows` left.

    Raises:
        MalformedData: never for what servers send. `ack_rows` has read the bytes together with
            those of others, and bytes can be made up that only then look like acks.
    """
    try:
        ack = _ack(WirePublishResponse.FromString(data).ack)
    except PARSE_ERRORS as error:
        raise MalformedData(f"an ack of {len(data)} bytes cannot be read") from error
    return (
        ack.partition_subject,
        ack.msg_subject,
        ack.ack_inbox,
        ack.ack_policy,
        ack.reception_timestamp,
        ack.commit_timestamp,
    )


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
        raise MalformedData(f"the field {wrong} of an ack has the type of another one")
    return _ack(ack)


# Reading


def decode_message(data: bytes) -> Message:
    """Read a Message.

    Raises:
        MalformedData: the bytes are no Message.
    """
    try:
        [message] = Message.received(
            [_message_row(WireMessage.FromString(data), data)], read_headers
        )
    except PARSE_ERRORS as error:
        raise MalformedData(f"a message of {len(data)} bytes cannot be read") from error
    return message


def decode_messages(datas: Sequence[bytes]) -> list[Message]:
    """Read many Messages.

    Raises:
        MalformedData: one of them is no Message; the text says which.
    """
    if len(datas) >= MIN_MESSAGES and max(map(len, datas)) <= MAX_KEPT_BYTES:
        rows = message_rows(datas)
        if rows is not None:
            return Message.received(rows, read_headers)
    return Message.received(_message_rows_one_by_one(datas), read_headers)


def message_place(data: bytes) -> tuple[int, int]:
    """Read no more of a Message than its offset and timestamp.

    Raises:
        MalformedData: the bytes are no Message.
    """
    try:
        wire = WireMessage.FromString(data)
    except PARSE_ERRORS as error:
        raise MalformedData(f"a message of {len(data)} bytes cannot be read") from error
    return wire.offset, wire.timestamp


MAX_KEPT_BYTES: Final = 512
"""A message keeps its bytes up to this size, to read the headers from when they are asked for.

That takes less time and no more memory than making a dict. A large message would need twice the
memory, so its headers are read at once.
"""


def _message_rows_one_by_one(datas: Sequence[bytes]) -> Iterator[MessageRow]:
    # Parsing into a message that is there is faster, but frees nothing before that one goes.
    reused = WireMessage()
    for index, data in enumerate(datas):
        try:
            if len(data) <= MAX_KEPT_BYTES:
                reused.ParseFromString(data)
                yield _message_row(reused, data)
            else:
                yield _message_row(WireMessage.FromString(data), data)
        except PARSE_ERRORS as error:
            raise MalformedData(
                f"message {index} of {len(datas)}, of {len(data)} bytes, cannot be read"
            ) from error


def _message_row(wire: Any, data: bytes) -> MessageRow:
    return (
        wire.stream,
        wire.partition,
        wire.offset,
        wire.key,
        wire.value,
        wire.timestamp,
        data if len(data) <= MAX_KEPT_BYTES else split_headers(wire),
        wire.subject,
        wire.reply_subject,
    )


def read_headers(data: bytes) -> HeadersRow:
    """Read the headers of a message that could be parsed, so they are sound."""
    return split_headers(WireMessage.FromString(data))
