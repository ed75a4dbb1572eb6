"""Queues: messages of a stream that are acked one by one, and delivered again until they are.

- `errors`: The errors of queues, a tree below `LiftbridgeError`.
- `core/`: Pure parts: acks of a partition, and how many messages may be in flight on which
  connection.
"""
