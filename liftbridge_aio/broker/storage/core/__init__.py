"""The pure parts of storage: no event loop, clock, randomness or I/O.

- `cleaning`: The cleaning of a log: retention deletes segments, compaction deletes messages.
- `leader_epochs`: The leader epochs of a log, by which followers truncate their logs.
- `log`: The log of one partition: messages in segments, which it rolls, cleans and truncates.
- `memory_segment`: Segments of a log, in memory.
- `operation_list`: Condenses the operations of a single broker to those that still matter.
- `operations`: The operations on a cluster's metadata, as values.
- `reader`: Reading a partition from a start position to a stop position, forwards or backwards.
- `record`: One stored message as bytes: a record with checksums.
- `record_scan`: Scanning a file of records that may be torn or damaged.
- `segment`: The interfaces of segments and of the stores that hold them.
- `segment_index`: The bounds of a segment, and the positions of some of its records.
- `stream_config`: Settings that a stream was created with, and the limits of its logs that follow
  from them.
- `timestamp_lookup`: Offsets by timestamp, as a v1.9.0 server finds them.
"""
