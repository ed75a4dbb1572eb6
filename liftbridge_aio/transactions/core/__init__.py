"""The pure part of transactions: no event loop, clock, chance or I/O.

- `framing`: Cut a stream of bytes into frames, one for each message, in the ways of Gazette.
- `mapping`: Choose the journal of a message by its key, in the ways of Gazette.
- `open_spans`: Find the open transactions of a log: what a committed reading does not show yet.
- `records`: Cut records into the messages of a claimed log, and put them together again.
- `sequencer`: Sequence the messages of a log into those that are committed, in the way of Gazette.
- `transaction`: Keep what a transaction knows of itself: its producer, its phase, its acks.
- `uuid`: Build and read the UUIDs that order the messages of a producer.
- `visibility`: Decide which messages of a partition a committed reading shows, and where in it.
"""
