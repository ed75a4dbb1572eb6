"""Queues on the log.

- `core`: Pure parts of queues: what is in flight, and when to deliver.
"""
