"""The Durable Streams protocol without I/O, for clients and servers. Pure.

Section numbers are those of the protocol's specification, version 1.0.

- `caching`: Cursors and entity tags, which keep caches correct. Pure; for servers.
- `native`: Partitions of Liftbridge's own streams, and what readers see of their messages. Pure.
- `origins`: Hosts and origins in requests of browsers: which of them may use a gateway. Pure.
- `parsing`: Values from outside, each kind parsed by one bounded function. Pure.
- `producer_table`: What a server does with an append of an idempotent producer, as a table. Pure.
- `producer_window`: The batches of an idempotent producer: which to send, and what answers mean for
  them. Pure.
- `protocol`: Names, offsets and content rules of the protocol. Pure.
- `records`: Records of logs: JSON that others may have written, as dataclasses of checked types.
  Pure.
- `registry`: The streams of a gateway, as a fold of the log that registers them. Pure.
- `requests`: What requests ask for: their headers and queries as values, or why they are refused.
  Pure.
- `segments`: Positions in a stream that may begin in others, and the offsets that clients see.
  Pure.
- `sse`: Server-Sent Events as the protocol uses them: encoder and incremental parser. Pure.
- `status_errors`: What the status and headers of a response mean when they are no success. Pure.
- `stream_log`: The state of a stream, as a fold of its log, and what becomes of appends. Pure.
- `subscriptions`: Subscriptions: who is woken for which streams, and how far they have
  acknowledged. Pure.
"""
