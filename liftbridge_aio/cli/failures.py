"""What failures are told as: one line, in the words of the command line."""

from __future__ import annotations

from typing import Final

from liftbridge_aio.errors import (
    ClientNotTrusted,
    LiftbridgeError,
    PartitionPaused,
    PartitionReadonly,
    PublishOutcomeUnknown,
    ServerNotTrusted,
    StreamExists,
    SubscriptionLost,
    TLSFailed,
)

from .output import one_line

_HINTS: Final[dict[type[LiftbridgeError], str]] = {
    ServerNotTrusted: (
        "check that this is the right server, that --tls-ca has the authority that signed its "
        "certificate, the dates of both, and --tls-server-name if its name is not that of the "
        "address"
    ),
    ClientNotTrusted: (
        "give --tls-cert and --tls-key of an authority in the server's tls.client.auth.ca, and "
        "check their dates"
    ),
    TLSFailed: "give --tls if the servers have TLS, and leave it out if not; check the files",
    StreamExists: "give --exist-ok if that is fine",
    PartitionReadonly: "`partitions readonly` with --off opens it again",
    PartitionPaused: "publish to it, or resume it: `partitions resume`, or `tail` with --resume",
    PublishOutcomeUnknown: (
        "look for it before you send it again, or make repeats harmless: --expected-offset does, "
        "on streams with optimistic concurrency control"
    ),
}
"""What to do, where errors of the client say it in Python."""


def failure_line(error: Exception) -> str:
    """Say on one line what went wrong, and what to do about it."""
    if isinstance(error, LiftbridgeError):
        error.hint = _hint(error)
    return one_line(" ".join(str(error).split())) or type(error).__name__


def _hint(error: LiftbridgeError) -> str:
    if isinstance(error, SubscriptionLost):
        offset = error.last_offset
        return "" if offset is None else f"go on at offset {offset + 1}"
    for kind, hint in _HINTS.items():
        if isinstance(error, kind):
            return hint
    return error.hint
