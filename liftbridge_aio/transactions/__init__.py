"""Exactly once: messages that are delivered once, and transactions that are visible whole.

    async for order in client.read("orders", committed=True):
        print(order.value)

    async with client.producer().transaction() as transaction:
        await transaction.publish("invoices", b"...")
        await transaction.publish("orders", b"...")

- `checkpoints`: Keeps the checkpoints of producers in streams: what survives a crash, and fences
  the dead.
- `claimed_log`: A log of records with one writer at a time, who is fenced off by the next one.
- `errors`: The errors of transactions, a tree below `LiftbridgeError`.
- `explain`: Explains why a committed reading shows nothing, and rolls back what a dead producer
  left.
- `log_format`: What transactions write to the log, and how it is read.
- `positions`: Read positions that are committed with the transactions of a producer.
- `producer`: Publishes messages that committed readings show once: alone, or in transactions.
- `producer_checkpoint`: The checkpoint of a producer with a store, and how it is written.
- `reading`: Committed reading: its options, and what it shows of a partition.
- `sender`: Sends messages and acks under producer ids, which are used again where that is safe.
- `single_message`: A message outside of transactions: it is sent again until its outcome is known.
- `transaction`: One transaction: messages of any partitions that become visible together, or never.
- `core/`: The pure part of transactions: no event loop, clock, chance or I/O.
- `journals/`: Exactly once over journals of framed messages: the API of Gazette's published guide.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .claimed_log import ClaimedLog
from .core.open_spans import OpenSpan
from .core.records import LogRecord
from .core.transaction import AckIntent, Phase
from .core.visibility import AckEntry
from .errors import (
    CommitInDoubt,
    CompactedStream,
    MalformedAck,
    NewerFormat,
    ProducerFenced,
    TransactionAborted,
    TransactionActive,
    TransactionError,
    TransactionTruncated,
)

if TYPE_CHECKING:
    from .checkpoints import CheckpointStream
    from .explain import Explanation
    from .producer import Producer
    from .reading import ReadCommitted
    from .transaction import Transaction

__all__ = [
    "AckEntry",
    "AckIntent",
    "CheckpointStream",
    "ClaimedLog",
    "CommitInDoubt",
    "CompactedStream",
    "Explanation",
    "LogRecord",
    "MalformedAck",
    "NewerFormat",
    "OpenSpan",
    "Phase",
    "Producer",
    "ProducerFenced",
    "ReadCommitted",
    "Transaction",
    "TransactionAborted",
    "TransactionActive",
    "TransactionError",
    "TransactionTruncated",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


_LATE = {
    "CheckpointStream": "checkpoints",
    "Explanation": "explain",
    "Producer": "producer",
    "ReadCommitted": "reading",
    "Transaction": "transaction",
}
"""Names whose modules import the network or protobuf; they are imported on first use."""
