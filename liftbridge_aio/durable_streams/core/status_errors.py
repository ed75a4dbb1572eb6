"""The meaning of status and headers of a response that is no success. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from liftbridge_aio.durable_streams.errors import (
    BadRequest,
    Conflict,
    Gone,
    InvalidOffset,
    NoStream,
    NotSupported,
    Refused,
    SequenceConflict,
    SequenceGap,
    StaleEpoch,
    StreamClosed,
    TooLarge,
    UnexpectedStatus,
)

from . import protocol
from .parsing import parse_integer

RELAYED: Final = frozenset({502, 504})
"""Statuses of a proxy that got no answer: the server behind it may have done what it was asked."""
RETRIED: Final = frozenset({429, 500, 503}) | RELAYED
"""Statuses after which a request may be sent again."""
_CONFLICT: Final = 409
_SAID_CHARS: Final = 200
_BY_STATUS: Final[Mapping[int, type[Refused]]] = {
    400: BadRequest,
    404: NoStream,
    405: NotSupported,
    410: Gone,
    413: TooLarge,
    501: NotSupported,
}


def refusal(
    method: str, url: str, sent: Mapping[str, str], status: int, got: Mapping[str, str], body: str
) -> Refused:
    """Return the error for a response.

    Args:
        method: of the request.
        url: of the stream.
        sent: the headers of the request that the protocol defines.
        status: of the response.
        got: the headers of the response; looked up without regard to case.
        body: its text, which is only repeated: the protocol gives it no meaning.
    """
    said = " ".join(body.split())[:_SAID_CHARS]
    text = f"{method} {url} was refused with {status}{f' ({said})' if said else ''}"
    error = _error(method, sent, status, got, text)
    if 300 <= status < 400 and (target := got.get("Location")):
        error.message = f"{method} {url} was redirected with {status} to {target[:_SAID_CHARS]}"
        error.hint = "redirects are not followed: use the URL of the stream itself"
    error.status = status
    return error


def _error(
    method: str, sent: Mapping[str, str], status: int, got: Mapping[str, str], text: str
) -> Refused:
    if status == _CONFLICT:
        return _conflict(sent, got, text)
    if status == 403 and protocol.PRODUCER_EPOCH in got:
        stale = StaleEpoch(text)
        stale.current_epoch = parse_integer(got[protocol.PRODUCER_EPOCH])
        return stale
    if status == 400 and method == "GET":
        return InvalidOffset(text)
    return _BY_STATUS.get(status, UnexpectedStatus)(text)


def _conflict(sent: Mapping[str, str], got: Mapping[str, str], text: str) -> Conflict:
    """Return the error for a 409, in the order in which servers check (section 5.2)."""
    if protocol.is_true(got.get(protocol.STREAM_CLOSED)):
        closed = StreamClosed(text)
        closed.final_offset = got.get(protocol.STREAM_NEXT_OFFSET)
        return closed
    if protocol.PRODUCER_EXPECTED_SEQ in got:
        gap = SequenceGap(text)
        gap.expected = parse_integer(got[protocol.PRODUCER_EXPECTED_SEQ])
        gap.received = parse_integer(got.get(protocol.PRODUCER_RECEIVED_SEQ))
        return gap
    return SequenceConflict(text) if protocol.STREAM_SEQ in sent else Conflict(text)
