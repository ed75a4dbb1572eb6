"""Refuses messages that make no sense before anything is sent or lost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .arguments import (
    INT32_MAX,
    INT64_MAX,
    about,
    check_bytes,
    check_text,
    check_type,
    check_whole_number,
)
from .errors import InvalidRequest, MessageTooLarge, WrongType
from .model import RESERVED_HEADERS, AckPolicy

MAX_HEADER_NAME_BYTES: Final = 2**15 - 1
"""A v1.9.0 server ends as a process on a longer one (measured)."""

MAX_HEADERS: Final = 2**16 - 1 - len(RESERVED_HEADERS)
"""Beyond this a v1.9.0 server acks a message and stores it with most of its headers missing
(measured); two are the server's own."""

SERVER_OVERHEAD_BYTES: Final = 256
"""Room for what the server adds before it compares with its limit: subject, inbox, frame."""


def check_message(
    stream: str,
    value: bytes,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    partition: int | None,
    ack_policy: AckPolicy,
    expected_offset: int | None,
) -> None:
    """Check the arguments of a publish.

    Raises:
        InvalidRequest: with what is wrong about them.
    """
    with about(stream, partition):
        check_content(value, key, headers)
        check_text(stream, "a stream name")
        if not stream:
            raise InvalidRequest("a stream name must not be empty")
        if partition is not None:
            check_whole_number(partition, "a partition", 0, INT32_MAX)
        if expected_offset is not None:
            check_whole_number(expected_offset, "an expected offset", 0, INT64_MAX)
            if ack_policy is AckPolicy.NONE:
                text = "without an ack nobody learns whether the expected offset was the right one"
                raise InvalidRequest(text)


def check_content(value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
    """Check what a message consists of.

    Raises:
        InvalidRequest: with what is wrong about it.
    """
    check_bytes(value, "a value")
    if key is not None:
        check_bytes(key, "a key")
    if headers is None:
        return
    check_type(headers, (Mapping,), "headers map names to bytes")
    if len(headers) > MAX_HEADERS:
        text = f"a message has at most {MAX_HEADERS} headers, not {len(headers)}"
        raise InvalidRequest(text)
    for name, content in headers.items():
        check_text(name, "the name of a header")
        check_header_name(name)
        check_bytes(content, f"the header {name!r}")
        if name in RESERVED_HEADERS:
            text = f"the server writes the header {name!r} into every message itself (W5)"
            raise InvalidRequest(text)


def checked_policy(policy: AckPolicy) -> AckPolicy:
    """Return the ack policy, made of a plain number where it is one.

    Raises:
        WrongType: it is neither a policy nor the number of one.
    """
    if type(policy) is AckPolicy:
        return policy
    try:
        return AckPolicy(policy)
    except ValueError:
        text = f"an ack policy is one of AckPolicy, not {policy!r}"
        raise WrongType(text) from None


def check_header_name(name: str) -> None:
    """Check the name of a header.

    Raises:
        InvalidRequest: it is longer than a server can bear.
    """
    if len(name.encode()) > MAX_HEADER_NAME_BYTES:
        text = f"the name of a header has at most {MAX_HEADER_NAME_BYTES} bytes"
        raise InvalidRequest(text)


def check_size(
    size: int, limit: int, *, stream: str | None = None, partition: int | None = None
) -> None:
    """Check the size of an encoded message.

    Raises:
        MessageTooLarge: with what the server adds it exceeds `limit` bytes.
    """
    if size + SERVER_OVERHEAD_BYTES > limit:
        text = (
            f"a message of {size} bytes, with {SERVER_OVERHEAD_BYTES} for what the server adds,"
            f" exceeds max_message_bytes ({limit})"
        )
        raise MessageTooLarge(text, stream=stream, partition=partition)
