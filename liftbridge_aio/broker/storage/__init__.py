"""The storage of logs, in memory or on disk.

- `atomic_files`: Replace files and delete folders atomically: a crash leaves all of the old, or all
  of the new.
- `data_directory`: The folder of everything that a broker stores on disk.
- `disk_segment`: A segment of a log on disk: a file of records, and a file of its index.
- `disk_store`: The segments of one log in a folder.
- `journal`: An append-only file of checksummed entries, which are read at a start.
- `open_files`: Reads and writes files in place, with a limited number of them open.
- `operation_journal`: Operations on disk: JSON in the entries of a journal.
- `segment_recovery`: Recovery of the segment files of an earlier process.
- `storage`: What a broker stores, in memory or in a data directory.
- `core/`: The pure parts of storage: no event loop, clock, randomness or I/O.
"""
