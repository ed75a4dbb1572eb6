"""Pure parts of publishing over NATS: no event loop, clock, chance or I/O.

- `destinations`: Where a message goes: from a stream, or a subject, to a subject of NATS.
- `stream_acks`: The acks of several streams for one message, which all have its subject.
"""
