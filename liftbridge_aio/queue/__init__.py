"""Queues: what consumers of messages with acks have in common.

- `core/`: Pure parts: how many messages may be in flight, and on which connection.
"""
