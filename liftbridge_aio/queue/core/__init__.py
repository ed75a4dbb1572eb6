"""Pure parts of queues: no event loop, clock, chance or I/O.

- `ack_window`: The unsettled messages of one partition: what to hand out, when again, and what is
  committed.
- `ready_flow`: Divides a limit of messages in flight among connections, and backs off when handlers
  fail.
"""
