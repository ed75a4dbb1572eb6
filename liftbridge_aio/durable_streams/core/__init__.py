"""The Durable Streams protocol without I/O, for clients and servers. Pure.

Section numbers are those of the protocol's specification, version 1.0.

- `caching`: Cursors and entity tags, which keep caches correct. Pure; for servers.
- `producer_table`: What a server does with an append of an idempotent producer, as a table. Pure.
- `producer_window`: The batches of an idempotent producer: which to send, and what answers mean for
  them. Pure.
- `protocol`: Names, offsets and content rules of the protocol. Pure.
- `sse`: Server-Sent Events as the protocol uses them: encoder and incremental parser. Pure.
- `status_errors`: What the status and headers of a response mean when they are no success. Pure.
"""
