"""Pure parts of queues: no event loop, clock, chance or I/O.

- `ack_window`: The unsettled messages of one partition, and when each is delivered.
- `acks_record`: The record that stores the acks of a partition, and its encoding.
- `attempt`: One attempt to process a message: its states as a table, and the error of a late
  answer.
- `committed_window`: The same as `ack_window` for a committed reading, in the order of commits.
- `lease_protocol`: The messages about leases between members, and their encoding.
- `lease_state`: The states of a lease at the member that holds it, as a table.
- `moved_message`: The headers of messages that wait in a retry stream.
- `suspects`: Delivers messages that may have crashed a process one at a time.
- `tier_clock`: The remaining waits of messages in a retry stream, even if clocks are wrong.
"""
