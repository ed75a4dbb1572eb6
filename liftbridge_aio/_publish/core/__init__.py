"""Pure parts of publishing: no event loop, clock, chance or I/O.

- `partition_queue`: The state machine of the messages to one partition: which is sent, and which
  waits for what.
"""
