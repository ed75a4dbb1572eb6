"""The errors of bridges, a tree below `LiftbridgeError`; those of clients pass through.

BridgeError
├── TargetUnsuitable   the target cannot be copied to
├── SourceReset        the source is another log than the one that was copied
├── PositionLost       nobody knows how far the source was copied
└── MessageRefused     the target can never take a message
"""

from __future__ import annotations

from liftbridge_aio.errors import LiftbridgeError


class BridgeError(LiftbridgeError):
    """Root of the errors of bridges."""


class TargetUnsuitable(BridgeError):
    """The target exists, and a bridge cannot keep its promise there."""

    hint = (
        "let the bridge create it, or create it with optimistic_concurrency_control=True and as"
        " many partitions as the source has"
    )


class SourceReset(BridgeError):
    """The source was deleted and created again, or has lost what it stored: numbers begin anew."""

    hint = "copy it to a target of another name"


class PositionLost(BridgeError):
    """Retention has removed from the target what would tell how far the source was copied."""

    hint = "tell after= (--after) which message of the source was copied last, 0 for none"


class MessageRefused(BridgeError):
    """The target can never take a message, which is too large for it, or empty.

    It has the stream, partition and offset of a message of Liftbridge; the text has the sequence
    or id of one of another system.
    """

    hint = "raise the limit of the target, or skip such messages: skip_refused=True, --skip-refused"
