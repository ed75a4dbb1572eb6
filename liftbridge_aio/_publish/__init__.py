"""Everything between publish() and an ack.

A message goes one way: `publisher` makes room for it in the window, the queue of its partition
decides when it is sent, `session` writes it and matches its ack, and `in_flight_table` settles it.

- `batches`: Operations on many publishes or acks at once, without a step of the interpreter for
  each.
- `broker_selection`: Ranking of brokers whose publish session may carry a partition.
- `deadlines`: The deadlines of publishes: one task checks all messages in flight.
- `dispatcher`: Carries out what the queues of partitions decide: sends, retries and fails their
  messages.
- `failures`: The errors of publishes that no server has refused, and their texts.
- `flush_marker`: Messages with ack policy NONE, and the marker that shows that the server has
  accepted them.
- `in_flight_table`: The messages in flight: each is settled once, and its part of the window
  released then.
- `message`: A message that is in flight, and the way of the messages to one partition.
- `publisher`: Checks a message, finds its partition and waits for room in the window.
- `refusals`: Maps a server's refusal of a message, its code and text, to an error. What is refused
  before it is sent is in `_core.message_check`.
- `retry`: Publishes again where the outcome is unknown, and finds out if an earlier attempt is
  stored.
- `session`: One PublishAsync session with one broker: one task writes, acks come by callback.
- `session_pool`: The publish sessions of a client, one per broker, and which of them carries a
  partition.
- `subject`: Publishing to a NATS subject, and so to every stream that is attached to it.
- `core/`: Pure parts of publishing: no event loop, clock, chance or I/O.
"""
