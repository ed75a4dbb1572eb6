"""The errors of bridges, a tree below `LiftbridgeError`; those of clients pass through.

BridgeError
├── TargetUnsuitable (InvalidRequest)  the target cannot be copied to
├── SourceReset                        the source is another log than the one that was copied
└── PositionLost                       nobody knows how far the source was copied
"""

from __future__ import annotations

from liftbridge_aio.errors import InvalidRequest, LiftbridgeError


class BridgeError(LiftbridgeError):
    """Root of the errors of bridges."""


class TargetUnsuitable(BridgeError, InvalidRequest):
    """The target exists, and a bridge cannot keep its promise there."""

    hint = "let the bridge create it, or create it with optimistic_concurrency_control=True"


class SourceReset(BridgeError):
    """The source was deleted and created again, or has lost what it stored: numbers begin anew."""

    hint = "copy it to a target of another name"


class PositionLost(BridgeError):
    """Retention has removed from the target what would tell how far the source was copied."""

    hint = "tell after= which message of the source was copied last, 0 for none"
