"""Pure parts of queues: no event loop, clock, chance or I/O.

- `ack_window`: The unsettled messages of one partition: what to hand out, when again, and what is
  committed.
- `acks_record`: The record in which the acks of a partition are stored, and its text.
- `attempt`: One attempt to process a message: its states as a table, and the error of a late
  answer.
- `committed_window`: The unsettled messages of a partition that is read committed, in the order of
  their acks.
- `lease_protocol`: What members say to each other about leases, and its bytes.
- `lease_state`: The states of a lease at the member that holds it, as a table.
- `moved_message`: Messages that wait in a stream for their next attempt: what their headers say.
- `suspects`: Lets messages that may have ended a process be in flight alone, over all partitions.
- `tier_clock`: How long messages of a retry stream have yet to wait, though clocks are wrong.
"""
