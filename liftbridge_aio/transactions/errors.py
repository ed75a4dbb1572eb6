"""The errors of transactions, a tree below `LiftbridgeError`."""

from __future__ import annotations

from liftbridge_aio.errors import LiftbridgeError


class TransactionError(LiftbridgeError):
    """Root of the errors of transactions."""


class SequenceError(TransactionError):
    """Messages came in an order that a strict sequencer refuses."""


class OpenTransaction(SequenceError):
    """A producer published a message of no transaction while it had one open."""

    hint = "use two producers: one for transactions, one for messages outside of them"


class PartialCommit(SequenceError):
    """A producer committed a part of its open transaction, which rolls the rest back."""


class ReplayMismatch(TransactionError):
    """Messages that were read again are not those of the range that was asked for."""
