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


class NoJournals(TransactionError):
    """There is no journal that a message could be mapped to."""


class FramingError(TransactionError):
    """A frame of a journal is malformed, or a message cannot be framed."""


class JournalLocked(TransactionError):
    """Another process appends to the file of a journal, and does not end."""

    hint = "find the process that hangs, and end it; nothing was appended"


class UnknownFraming(FramingError):
    """No framing is registered for the content type of a journal."""


class TruncatedFrame(FramingError):
    """A journal ends within a frame."""


class Desynchronised(FramingError):
    """Bytes that are no frame were found, and skipped; reading may go on after them."""

    def __init__(self, skipped: bytes) -> None:
        """Keep the bytes, whose number the offset has advanced by."""
        super().__init__(f"{len(skipped)} bytes that are no frame were skipped: {skipped[:32]!r}")
        self.skipped = skipped


class MustStartReplay(TransactionError):
    """Messages of a committed transaction are no longer in memory, and must be read again."""


class NewerFormat(TransactionError):
    """The log has acks of a later version of the format."""

    hint = "upgrade liftbridge_aio; what these acks show is unknown to this version"


class MalformedAck(TransactionError):
    """A message says that it is an ack, and cannot be read as one."""

    hint = (
        "find out who wrote it; on_malformed='skip' of ReadCommitted, committed_range and explain,"
        " or --on-malformed skip, goes past it"
    )


class TransactionTruncated(TransactionError):
    """The beginning of a committed transaction is no longer in the log."""

    hint = (
        "retain messages for longer than transactions take; ReadCommitted(on_truncated=...) shows"
        " the rest of such a transaction, or nothing of it"
    )


class TransactionAborted(TransactionError):
    """A message of a transaction was not stored, so committed readings show nothing of it."""

    hint = "repeat the whole block of the transaction"


class CommitInDoubt(TransactionError):
    """Not all acks of a commit are known to be stored: partitions may show it, and others not."""

    hint = "call resume() of the transaction until it returns; do not repeat the block"


class TransactionActive(TransactionError):
    """A transaction is not rolled back by others, as its producer may be at work."""

    hint = "wait until it commits or dies; force it if the producer is known to be dead"


class ProducerFenced(TransactionError):
    """Another producer with the same name, and the same store, has taken over."""

    hint = "end this one: it can commit nothing more, and the other has its transactions"


class CompactedStream(TransactionError):
    """A stream is compacted, so transactions in it would not be whole."""

    hint = (
        "use a stream without compaction; ReadCommitted(on_truncated='emit') reads it all the same,"
        " as far as messages are left"
    )
