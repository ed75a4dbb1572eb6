"""Bytes only: generated messages, the table of procedures, the codec of hot messages, envelopes.

The only package that imports betterproto2. Nothing here knows asyncio.

- `broker_codec`: The hot messages as a broker reads and writes them, by protobuf's C runtime.
- `call_buffer`: Messages of a call that are not read yet, in place of grpclib's own buffer.
- `codec`: The three hot messages: PublishRequest out, PublishResponse and Message in.
- `column_batch`: Messages as columns: a list for each field, for those who make tables of them.
- `columns`: Many messages read by one parse, a column for each field.
- `convert`: Requests made from our values and our values made from replies, hot messages
  excepted.
- `crc32c`: CRC-32C (Castagnoli), the checksum of envelopes: the standard library only has the
  other CRC-32.
- `envelope`: The envelope around what clients and servers send each other straight over NATS.
- `field_types`: Checks that the fields of a parsed message hold what their types say.
- `framing`: gRPC's framing of a message: five bytes before it, a flag for compression and its
  length.
- `hot_schema`: The hot messages and the metadata as classes of protobuf's own runtime, in a pool
  of their own.
- `marked_batch`: Messages with what transactions have marked them with, decoded no further than
  they must be.
- `message_pool`: Generated: the pool that the generated messages register in.
- `metadata_codec`: FetchMetadataResponse read and written by protobuf's C runtime.
- `raw_message`: Messages for those who want the bytes and no more.
- `rpc`: The table of remote procedures: written once, read by the client and the embedded broker.
- `stan_codec`: The hot messages of NATS Streaming: publishes and their acks, messages and theirs.
- `strict`: Parsing of flat protobuf messages that trusts nothing.
- `transactions_codec`: The acks that transactions write to the log.
- `health/`:
- `proto/`:
- `stan/`:
"""
