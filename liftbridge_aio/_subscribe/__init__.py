"""Everything between a Subscribe call and `async for`.

- `committed_decoder`: Shows what is committed of the messages that a `Decoder` decodes.
- `committed_state`: Waits until everything that a partition stores can be read; publishes something
  where it must.
- `cursor_committer`: Stores the positions of readers as cursors in the server.
- `decoder`: Judges and decodes received messages, a batch ahead of the user.
- `durable_reader`: Starts readers at their stored cursors, and stores their positions while they
  read.
- `log_probe`: Finds out where a partition's log begins, and whether retention has emptied it.
- `log_start`: Finds out where a log begins and ends, and reads its last messages.
- `merge`: Takes messages from many readers in turn, in order within each, not between them.
- `merged_subscription`: Subscription to several partitions, read as one.
- `missed_offsets`: Detects messages that were removed from the log before they were read.
- `part_reader`: Reads parts of a log beside a reading: what it shows again, and what stands before
  its start.
- `partition_reader`: Reads one partition: subscribes, buffers what is received, and resubscribes
  after breaks.
- `position_store`: What a subscription asks of whatever stores its positions.
- `receive_buffer`: The bounded buffer of received messages between the connection and the user.
- `recovery`: Decides what follows when the call of a reader ends: the end, an error, or another
  try.
- `reverse_reader`: Reads in reverse what servers skip, and finds out if they support reverse
  reading.
- `seekable_reader`: A reader that can seek: a new one replaces the current one, and the counters
  continue.
- `start`: Turns the start and stop of a subscription into offsets, and makes its requests.
- `subscription`: Subscription to one partition: an async iterator and an async context manager.
- `subscription_base`: Base of subscriptions: lists of messages, entering and leaving.
- `time_lookup`: Finds the first message at or after a time.
- `typed_reader`: Converts messages of any source, one by one, as they are read.
- `core/`: Pure parts of reading: no event loop, clock, chance or I/O.
"""
