"""Pure parts of the client of NATS Streaming: no event loop, clock, chance or I/O.

- `names`: Checks names of channels, clients, queue groups and durables.
- `pings`: Counts pings without an answer, and decides that a session is lost.
- `start`: Where a subscription starts.
"""
