"""Exactly once: messages that are delivered once, and transactions that are visible whole.

- `errors`: The errors of transactions, a tree below `LiftbridgeError`.
- `log_format`: What transactions write to the log, and how it is read.
- `core/`: The pure part of transactions: no event loop, clock, chance or I/O.
- `journals/`: Exactly once over journals of framed messages: the API of Gazette's published guide.
"""
