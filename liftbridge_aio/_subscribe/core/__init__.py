"""Pure parts of reading: no event loop, clock, chance or I/O.

- `checkpoint`: Where a reading stands, exactly: a start that goes on behind the last delivered
  message.
- `memory_budget`: Divides the memory for unread messages among the subscriptions.
- `plan`: Requests to read one partition or several, checked before anything is sent.
- `position`: The position in one partition: decides what to deliver, what to drop, and when to
  stop.
- `resubscribe_deadline`: Decides how long to retry a first subscribe, and a resubscribe after a
  break.
- `visibility`: The interface by which committed readings ask what is shown of a partition.
"""
