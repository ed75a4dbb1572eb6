"""Gazette's stream-sum: chunks of streams are summed up by a worker, exactly once, under faults.

A chunker publishes chunks of many streams, each with a sequence number and the CRC of its stream so
far. A summer reads them, keeps the CRC of each stream itself, and publishes it, with the positions
it has read up to in the same transaction. Both are processes that are killed and stopped, and so
are the servers. In the end the sums must be those of the chunks, one for each, in their order.

- `worker`: The chunker and the summer, as processes.
- `run`: Faults for so many seconds, and what came of them.
- `judge`: Judge what was read in the end.
"""
