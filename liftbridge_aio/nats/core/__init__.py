"""Pure parts of publishing over NATS: no event loop, clock, chance or I/O.

- `destinations`: Maps a stream and partition, or a subject, to the NATS subject to publish to.
"""
