"""Exactly once: messages that are delivered once, and transactions that are visible whole.

    async for order in client.read("orders", isolation=Isolation.READ_COMMITTED):
        print(order.value)

    async with client.producer().transaction() as transaction:
        await transaction.publish("invoices", b"...")
        await transaction.publish("orders", b"...")

- `claimed_log`: A log of records with one writer at a time, who is fenced off by the next one.
- `errors`: The errors of transactions, a tree below `LiftbridgeError`.
- `log_format`: What transactions write to the log, and how it is read.
- `producer`: Publishes messages that committed readings show once: alone, or in transactions.
- `reading`: Committed reading: its options, and what it shows of a partition.
- `sender`: Sends messages and acks under producer ids, which are used again where that is safe.
- `transaction`: One transaction: messages of any partitions that become visible together, or never.
- `core/`: The pure part of transactions: no event loop, clock, chance or I/O.
- `journals/`: Exactly once over journals of framed messages: the API of Gazette's published guide.
"""

from .claimed_log import ClaimedLog
from .core.records import LogRecord
from .core.transaction import AckIntent, Phase
from .core.visibility import AckEntry
from .errors import (
    CommitInDoubt,
    MalformedAck,
    NewerFormat,
    ProducerFenced,
    TransactionAborted,
    TransactionError,
    TransactionTruncated,
)
from .producer import Producer
from .reading import ReadCommitted
from .transaction import Transaction

__all__ = [
    "AckEntry",
    "AckIntent",
    "ClaimedLog",
    "CommitInDoubt",
    "LogRecord",
    "MalformedAck",
    "NewerFormat",
    "Phase",
    "Producer",
    "ProducerFenced",
    "ReadCommitted",
    "Transaction",
    "TransactionAborted",
    "TransactionError",
    "TransactionTruncated",
]
