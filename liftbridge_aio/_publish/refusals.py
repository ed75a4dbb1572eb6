"""Maps a server's refusal of a message, its code and text, to an error. Pure."""

from __future__ import annotations

import enum
from typing import Final

from liftbridge_aio import errors
from liftbridge_aio.errors import LiftbridgeError


class PublishCode(enum.IntEnum):
    """Codes of PublishAsyncError; 0 is an error too."""

    UNKNOWN = 0
    BAD_REQUEST = 1
    NOT_FOUND = 2
    INTERNAL = 3
    READONLY = 4
    INCORRECT_OFFSET = 5
    ENCRYPTION_FAILED = 6
    PERMISSION_DENIED = 7


_TOO_LARGE: Final = ("exceeds max replication size", "maximum payload exceeded")


def stream_unknown(code: int, text: str) -> bool:
    """Return True if the broker does not know the stream, which may change within moments.

    A partition that does not exist is final: partitions are made with their stream. What follows
    the colon is the user's own name, in which anything may stand.
    """
    return code == PublishCode.NOT_FOUND and "partition" not in text.partition(":")[0]


def publish_error(code: int, text: str) -> LiftbridgeError:
    """Turn the refusal of a message into the error that users see."""
    if any(part in text for part in _TOO_LARGE):
        return errors.MessageTooLarge(f"the server refused the message: {text}")
    if stream_unknown(code, text):
        return errors.StreamNotFound(f"the server refused the message: {text}")
    kind = _KINDS.get(code)
    if kind is not None:
        return kind(f"the server refused the message: {text}")
    refused = errors.PublishRefused(f"the server refused the message: {text}")
    known = code in _KNOWN
    refused.code = PublishCode(code).name if known else str(code)
    return refused


_KNOWN: Final = frozenset(int(code) for code in PublishCode)
_KINDS: Final[dict[int, type[LiftbridgeError]]] = {
    PublishCode.NOT_FOUND: errors.PartitionNotFound,
    PublishCode.READONLY: errors.PartitionReadonly,
    PublishCode.INCORRECT_OFFSET: errors.IncorrectOffset,
    PublishCode.ENCRYPTION_FAILED: errors.EncryptionFailed,
    PublishCode.PERMISSION_DENIED: errors.PermissionDenied,
}
