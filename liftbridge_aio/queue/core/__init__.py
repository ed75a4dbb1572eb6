"""Pure parts of queues: no event loop, clock, chance or I/O.

- `ready_flow`: Divides a limit of messages in flight among connections, and backs off when handlers
  fail.
"""
