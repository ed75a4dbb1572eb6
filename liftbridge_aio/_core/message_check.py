"""Refuses invalid messages before anything is sent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from liftbridge_aio.errors import InvalidRequest, MessageTooLarge, StreamReserved, WrongType
from liftbridge_aio.model import (
    RESERVED_HEADERS,
    RESERVED_STREAMS,
    TRANSACTION_HEADERS,
    AckPolicy,
    OutgoingMessage,
)

from .arguments import (
    INT32_MAX,
    INT64_MAX,
    about,
    check_bytes,
    check_text,
    check_type,
    check_whole_number,
)

MAX_HEADER_NAME_BYTES: Final = 2**15 - 1
"""A longer name crashes a v1.9.0 server (measured)."""

MAX_HEADERS: Final = 2**16 - 1 - len(RESERVED_HEADERS)
"""With more headers a v1.9.0 server acks a message and stores it without most of them (measured);
two are the server's own."""

SERVER_OVERHEAD_BYTES: Final = 256
"""Bytes reserved for what the server adds before it applies its limit: subject, inbox, frame."""


def check_message(message: OutgoingMessage, policy: AckPolicy) -> None:
    """Check the fields of a message that are sent, but for its correlation id.

    Raises:
        StreamReserved: only servers write to the stream.
        InvalidRequest: one of them is invalid.
    """
    stream, partition, expected_offset = message.stream, message.partition, message.expected_offset
    with about(stream, partition):
        check_content(message.value, message.key, message.headers)
        check_text(stream, "a stream name")
        if not stream:
            raise InvalidRequest("a stream name must not be empty")
        if stream in RESERVED_STREAMS:
            raise StreamReserved("internal streams are written by the server")
        if partition is not None:
            check_whole_number(partition, "a partition", 0, INT32_MAX)
        if expected_offset is not None:
            check_whole_number(expected_offset, "an expected offset", 0, INT64_MAX)
            if policy is AckPolicy.NONE:
                raise InvalidRequest(
                    "an expected offset requires an ack: use another ack policy than NONE"
                )


def check_content(value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
    """Check value, key and headers of a message.

    Raises:
        InvalidRequest: one of them is invalid.
    """
    check_bytes(value, "a value")
    if key is not None:
        check_bytes(key, "a key")
    if headers is None:
        return
    check_type(headers, (Mapping,), "headers map names to bytes")
    if len(headers) > MAX_HEADERS:
        raise InvalidRequest(
            f"a message may have at most {MAX_HEADERS} headers, not {len(headers)}"
        )
    for name, content in headers.items():
        check_text(name, "the name of a header")
        check_header_name(name)
        check_bytes(content, f"the header {name!r}")
        if name in RESERVED_HEADERS:
            raise InvalidRequest(f"the server overwrites the header {name!r}; use another name")
        if name in TRANSACTION_HEADERS:
            raise InvalidRequest(
                f"the header {name!r} is that of transactions, which only producers write"
            )


def checked_policy(policy: AckPolicy) -> AckPolicy:
    """Return the ack policy, converted if it is a plain number.

    Raises:
        WrongType: it is neither a policy nor the number of one.
    """
    if type(policy) is AckPolicy:
        return policy
    number: object = policy
    if not isinstance(number, bool):
        with suppress(ValueError):
            return AckPolicy(policy)
    raise WrongType(f"an ack policy must be an AckPolicy, not {policy!r}")


def check_acked(policy: AckPolicy | None) -> None:
    """Refuse the policy NONE where an ack is awaited; None is the default.

    Raises:
        InvalidRequest: there is no ack to await.
    """
    if policy is not None and checked_policy(policy) is AckPolicy.NONE:
        raise InvalidRequest(
            "without an ack there is nothing to wait for: use the call with `unacked` in its name,"
            " or publish_async"
        )


def check_header_name(name: str) -> None:
    """Check the name of a header.

    Raises:
        InvalidRequest: it is so long that it would crash a server.
    """
    if len(name.encode()) > MAX_HEADER_NAME_BYTES:
        raise InvalidRequest(f"the name of a header may have at most {MAX_HEADER_NAME_BYTES} bytes")


def check_size(
    size: int, limit: int, *, stream: str | None = None, partition: int | None = None
) -> None:
    """Check the size of an encoded message.

    Raises:
        MessageTooLarge: it exceeds `limit` bytes, including what the server adds.
    """
    if size + SERVER_OVERHEAD_BYTES > limit:
        raise MessageTooLarge(
            f"a message of {size} bytes, with {SERVER_OVERHEAD_BYTES} for what the server adds,"
            f" exceeds max_message_bytes ({limit})",
            stream=stream,
            partition=partition,
        )
