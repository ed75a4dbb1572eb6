"""Pure parts of the client of NATS Streaming: no event loop, clock, chance or I/O.

- `buffer`: Messages that were received and wait for a reader.
- `names`: Checks names of channels, clients, queue groups and durables.
- `pings`: Counts pings without an answer, and decides that a session is lost.
- `progress`: How far a subscription has got, so that it can go on in another session.
- `start`: Where a subscription starts.
- `states`: States of a client and of a subscription, and what leads from one to the other.
"""
