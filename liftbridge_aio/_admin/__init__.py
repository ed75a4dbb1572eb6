"""Calls that administer streams and cursors.

- `cursors`: Stores and fetches cursors, at the leader of the partition of `__cursors` that has each
  of them.
- `streams`: Creates, deletes, pauses and resumes streams: checks requests, sends them, retries
  safely.
"""
