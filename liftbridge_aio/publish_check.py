"""Refuses messages that make no sense before anything is sent or lost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .errors import InvalidRequest, MessageTooLarge
from .model import RESERVED_HEADERS, AckPolicy

_SERVER_OVERHEAD_BYTES: Final = 256
"""Room for what the server adds before it compares with its limit: subject, inbox, frame."""


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


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
    problem = None
    if not stream:
        problem = "a stream name must not be empty"
    elif not _is_bytes(value):
        problem = f"a value is bytes, not {type(value).__name__}; encode it first"
    elif key is not None and not _is_bytes(key):
        problem = f"a key is bytes, not {type(key).__name__}; encode it first"
    elif partition is not None and not 0 <= partition < 2**31:
        problem = f"a partition is a number from 0 up, not {partition}"
    elif expected_offset is not None and not 0 <= expected_offset < 2**63:
        problem = f"an expected offset is a number from 0 up, not {expected_offset}"
    elif expected_offset is not None and ack_policy is AckPolicy.NONE:
        problem = "without an ack nobody learns whether the expected offset was the right one"
    elif headers:
        problem = header_problem(headers)
    if problem is not None:
        raise InvalidRequest(problem, stream=stream or None, partition=partition)


def check_size(
    size: int, limit: int, *, stream: str | None = None, partition: int | None = None
) -> None:
    """Check the size of an encoded message.

    Raises:
        MessageTooLarge: with what the server adds it exceeds `limit` bytes.
    """
    if size + _SERVER_OVERHEAD_BYTES > limit:
        text = (
            f"a message of {size} bytes, with {_SERVER_OVERHEAD_BYTES} for what the server adds,"
            f" exceeds max_message_bytes ({limit})"
        )
        raise MessageTooLarge(text, stream=stream, partition=partition)


def header_problem(headers: Mapping[str, bytes]) -> str | None:
    """Say what is wrong about the headers of a message, None if nothing is."""
    for name, content in headers.items():
        if not _is_text(name) or not _is_bytes(content):
            return f"headers map names to bytes, not {name!r} to {type(content).__name__}"
        if name in RESERVED_HEADERS:
            return f"the server writes the header {name!r} into every message itself (W5)"
    return None
