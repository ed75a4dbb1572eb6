"""Requests: their headers and queries as values, or the reason of a refusal. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from liftbridge_aio.errors import InvalidRequest

from .parsing import INTEGER_MAX, decode_path, parse_integer, parse_json, parse_time
from .protocol import (
    DEFAULT_CONTENT_TYPE,
    NOW,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PRODUCER_SEQ,
    START,
    STREAM_CLOSED,
    STREAM_EXPIRES_AT,
    STREAM_FORK_OFFSET,
    STREAM_FORK_SUB_OFFSET,
    STREAM_FORKED_FROM,
    STREAM_SEQ,
    STREAM_TTL,
    check_offset,
    is_json,
    is_true,
)
from .stream_log import Append, ProducerTuple

_MEDIA_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~\w-]+/[!#$%&'*+.^_`|~\w-]+\s*(;.*)?")
_WHITESPACE: Final = b" \t\r\n"


class RequestRefused(Exception):
    """A request that is answered with a status of 400 or above.

    Args:
        status: the HTTP status.
        text: why, for people.
        headers: further headers of the response.
    """

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.text = text
        self.headers = headers or {}
        super().__init__(text)


class Live(Enum):
    """The way a read goes on at the tail; the value is that of the query."""

    NO = ""
    LONG_POLL = "long-poll"
    SSE = "sse"


class Read(NamedTuple):
    """A GET."""

    offset: str
    """A token, `START` or `NOW`."""
    live: Live
    cursor: str | None


class ForkOf(NamedTuple):
    """The source of a fork."""

    path: str
    """Decoded."""
    offset: str | None
    sub_offset: int


class Creation(NamedTuple):
    """A PUT, but for its body."""

    content_type: str | None
    """None if it was not given."""
    ttl: int | None
    expires_at: str | None
    expiry: float | None
    closed: bool
    fork: ForkOf | None


def parse_read(query: Sequence[tuple[str, str]]) -> Read:
    """Return what a GET asks for; unknown parameters are ignored.

    Raises:
        RequestRefused: a parameter is invalid.
    """
    given: dict[str, list[str]] = {}
    for name, value in query:
        given.setdefault(name, []).append(value)
    offsets = given.get("offset", [])
    if len(offsets) > 1:
        raise RequestRefused(400, "there is more than one offset")
    for offset in offsets:
        if offset not in {START, NOW}:
            checked_offset(offset)
    lives = given.get("live", [""])
    try:
        live = Live(lives[-1])
    except ValueError:
        raise RequestRefused(400, "live is long-poll or sse") from None
    if live is not Live.NO and not offsets:
        raise RequestRefused(400, "a live read needs an offset")
    cursors = given.get("cursor")
    return Read(offsets[0] if offsets else START, live, cursors[-1] if cursors else None)


def checked_offset(offset: str) -> str:
    """Return an offset whose characters are allowed.

    Raises:
        RequestRefused: it cannot be one.
    """
    try:
        check_offset(offset)
    except InvalidRequest as error:
        raise RequestRefused(400, str(error)) from None
    return offset


def parse_creation(headers: Mapping[str, str], root: str = "") -> Creation:
    """Return what a PUT asks for.

    Args:
        headers: of the request.
        root: what stands before all paths of streams, where the gateway is mounted; decoded.

    Raises:
        RequestRefused: a header is invalid, or headers contradict each other.
    """
    content_type = headers.get("content-type")
    if content_type is not None and not _MEDIA_TYPE.fullmatch(content_type.strip()):
        content_type = DEFAULT_CONTENT_TYPE
    ttl_text, expires_at = headers.get(STREAM_TTL), headers.get(STREAM_EXPIRES_AT)
    if ttl_text is not None and expires_at is not None:
        raise RequestRefused(400, "a stream has Stream-TTL or Stream-Expires-At, not both")
    ttl = parse_integer(ttl_text)
    if ttl_text is not None and ttl is None:
        raise RequestRefused(400, f"Stream-TTL is a whole number of seconds, at most {INTEGER_MAX}")
    return Creation(
        content_type,
        ttl,
        expires_at,
        None if expires_at is None else _parse_time(expires_at),
        is_true(headers.get(STREAM_CLOSED)),
        _parse_fork(headers, root),
    )


def _parse_time(text: str) -> float:
    moment = parse_time(text)
    if moment is None:
        raise RequestRefused(400, "Stream-Expires-At is a time of RFC 3339")
    return moment.timestamp()


def _parse_fork(headers: Mapping[str, str], root: str) -> ForkOf | None:
    path = headers.get(STREAM_FORKED_FROM)
    offset, sub_text = headers.get(STREAM_FORK_OFFSET), headers.get(STREAM_FORK_SUB_OFFSET)
    sub_offset = parse_integer(sub_text)
    if sub_text is not None and sub_offset is None:
        raise RequestRefused(400, "Stream-Fork-Sub-Offset is a whole number")
    if path is None:
        if offset is not None or sub_text is not None:
            raise RequestRefused(400, "a place to fork at needs Stream-Forked-From")
        return None
    if offset is None and sub_offset:
        raise RequestRefused(400, "Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
    if offset is not None and offset not in {START, NOW}:
        checked_offset(offset)
    # Header values are bytes, which Latin-1 keeps as they came.
    source = decode_path(path.encode("latin-1", "replace"))
    if source is None:
        raise RequestRefused(400, f"{STREAM_FORKED_FROM} is not UTF-8")
    return ForkOf(source.removeprefix(root), offset, sub_offset or 0)


def parse_append(headers: Mapping[str, str]) -> Append:
    """Return what a POST asks for, but for its value.

    Raises:
        RequestRefused: a header is invalid, or one of a producer's is missing.
    """
    return Append(
        b"", _parse_producer(headers), headers.get(STREAM_SEQ), is_true(headers.get(STREAM_CLOSED))
    )


def _parse_producer(headers: Mapping[str, str]) -> ProducerTuple | None:
    producer = headers.get(PRODUCER_ID)
    epoch_text, seq_text = headers.get(PRODUCER_EPOCH), headers.get(PRODUCER_SEQ)
    if producer is None and epoch_text is None and seq_text is None:
        return None
    epoch, seq = parse_integer(epoch_text), parse_integer(seq_text)
    if not producer or epoch is None or seq is None:
        raise RequestRefused(
            400, "a producer sends Producer-Id, and whole numbers Producer-Epoch and Producer-Seq"
        )
    return ProducerTuple(producer, epoch, seq)


def content_of(body: bytes, content_type: str, *, may_be_empty: bool = False) -> bytes:
    """Return what a message stores of a body: the bytes, or JSON values joined by commas.

    Raises:
        RequestRefused: it is no JSON, or an empty array where there must be values.
    """
    if not is_json(content_type) or not body:
        return body
    try:
        value = parse_json(body)
    except ValueError:
        raise RequestRefused(400, "the body is no JSON") from None
    if not isinstance(value, list):
        return body.strip(_WHITESPACE)
    if not value and not may_be_empty:
        raise RequestRefused(400, "an empty array appends nothing")
    return body.strip(_WHITESPACE)[1:-1].strip(_WHITESPACE)


def prefix_of(value: bytes, count: int, content_type: str) -> bytes:
    """Return the first bytes of a message, or the first of its JSON values.

    Raises:
        RequestRefused: it has fewer.
    """
    if not is_json(content_type):
        if count > len(value):
            raise RequestRefused(400, "Stream-Fork-Sub-Offset lies beyond the message")
        return value[:count]
    text = value.decode()
    decoder = json.JSONDecoder()
    end = at = 0
    for _ in range(count):
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at == len(text):
            raise RequestRefused(400, "Stream-Fork-Sub-Offset lies beyond the message")
        _, end = decoder.raw_decode(text, at)
        at = end
    return text[:end].encode()
