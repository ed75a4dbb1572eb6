"""Names, offsets and content rules of the protocol. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from liftbridge_aio._core.arguments import check_text
from liftbridge_aio.errors import InvalidRequest, MalformedData, WrongType

from .parsing import OFFSET_MAX_CHARS, is_cursor, is_offset

START: Final = "-1"
"""The offset before the first item of a stream."""
NOW: Final = "now"
"""The offset after the last item of a stream, whatever that is when the request arrives."""

# Headers
STREAM_NEXT_OFFSET: Final = "Stream-Next-Offset"
STREAM_UP_TO_DATE: Final = "Stream-Up-To-Date"
STREAM_CLOSED: Final = "Stream-Closed"
STREAM_CURSOR: Final = "Stream-Cursor"
STREAM_SEQ: Final = "Stream-Seq"
STREAM_TTL: Final = "Stream-TTL"
STREAM_EXPIRES_AT: Final = "Stream-Expires-At"
STREAM_FORKED_FROM: Final = "Stream-Forked-From"
STREAM_FORK_OFFSET: Final = "Stream-Fork-Offset"
STREAM_FORK_SUB_OFFSET: Final = "Stream-Fork-Sub-Offset"
SSE_DATA_ENCODING: Final = "Stream-SSE-Data-Encoding"
PRODUCER_ID: Final = "Producer-Id"
PRODUCER_EPOCH: Final = "Producer-Epoch"
PRODUCER_SEQ: Final = "Producer-Seq"
PRODUCER_EXPECTED_SEQ: Final = "Producer-Expected-Seq"
PRODUCER_RECEIVED_SEQ: Final = "Producer-Received-Seq"

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
JSON_CONTENT_TYPE: Final = "application/json"


def check_offset(offset: str) -> None:
    """Refuse a value that cannot be an offset. Offsets are opaque, so little can be checked.

    Raises:
        WrongType: it is not a string.
        InvalidRequest: it is empty, too long, or has characters that section 8 forbids.
    """
    check_text(offset, "an offset")
    if not is_offset(offset):
        raise InvalidRequest(
            f"{offset[:OFFSET_MAX_CHARS]!r} is no offset; pass one that a read returned"
        )


def is_true(value: str | None) -> bool:
    """Return True if the value of a header such as `Stream-Closed` is true (section 4.1)."""
    return value is not None and value.strip().lower() == "true"


def response_offset(value: str | None, source: str) -> str:
    """Return the offset that a response names.

    Args:
        value: its `Stream-Next-Offset`; None if it has none.
        source: the request, for the error.

    Raises:
        MalformedData: it is missing, or cannot be one.
    """
    if value is None or not is_offset(value):
        what = f"no {STREAM_NEXT_OFFSET}" if value is None else f"{value[:64]!r} as an offset"
        raise MalformedData(f"{source} brought {what}")
    return value


def response_cursor(value: str | None) -> str | None:
    """Return the cursor that a response names, to be sent back.

    Raises:
        MalformedData: it cannot be sent.
    """
    if value is not None and not is_cursor(value):
        raise MalformedData(f"the server sent {value[:64]!r} as a cursor")
    return value


def media_type(content_type: str | None) -> str:
    """Return a content type without its parameters, in lower case."""
    return (content_type or "").partition(";")[0].strip().lower()


def is_json(content_type: str | None) -> bool:
    """Return True if streams of this type keep the boundaries of JSON messages (section 9.1)."""
    return media_type(content_type) == JSON_CONTENT_TYPE


def is_text(content_type: str | None) -> bool:
    """Return True if Server-Sent Events carry this type as text, not in base64 (section 5.8)."""
    return is_json(content_type) or media_type(content_type).startswith("text/")


def encoder(content_type: str) -> Callable[[Any], bytes]:
    """Return the function that encodes one message of a stream.

    It takes for JSON anything that `json.dumps` takes, or bytes that hold one JSON value already;
    for `text/*` a string or bytes; for other types bytes. It raises `WrongType` for what the stream
    cannot hold, and `InvalidRequest` for what is empty or no JSON value.
    """
    if is_json(content_type):
        return _encode_json
    return _encode_text if is_text(content_type) else _encode_bytes


_to_json: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _encode_json(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return _checked(bytes(value), bytes(value).strip())
    try:
        return _to_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        kind = WrongType if isinstance(error, TypeError) else InvalidRequest
        raise kind(f"the value cannot be written as JSON: {error}") from error


def _encode_text(value: Any) -> bytes:
    if isinstance(value, str):
        check_text(value, "the data")
        value = value.encode()
    return _encode_bytes(value)


def _encode_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise WrongType(
            f"this stream holds no JSON, but bytes; encode the {type(value).__name__} first"
        )
    return _checked(bytes(value), value)


def _checked(encoded: bytes, content: bytes | bytearray | memoryview) -> bytes:
    if not content:
        raise InvalidRequest("there is nothing to append")
    return encoded


def join_values(values: list[bytes], content_type: str) -> bytes:
    """Return the body that appends encoded values.

    JSON values always go in an array, of which the server removes one level: a value that is an
    array itself stays one (section 9.1.2).
    """
    if is_json(content_type):
        return b"[" + b",".join(values) + b"]"
    return values[0] if len(values) == 1 else b"".join(values)


def parse_items(body: bytes) -> list[Any]:
    """Return the messages in a body of JSON (section 9.1.5).

    Raises:
        MalformedData: it is no JSON, or no array.
    """
    if not body:
        return []
    try:
        items = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedData(f"the server sent what is no JSON: {body[:64]!r}") from error
    if not isinstance(items, list):
        raise MalformedData(f"the server sent JSON that is no array: {body[:64]!r}")
    return items
