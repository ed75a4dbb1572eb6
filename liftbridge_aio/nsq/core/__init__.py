"""The protocol of NSQ. Pure.

- `compression`: Compression of a connection: a raw deflate stream, or framed snappy. Pure.
- `negotiation`: What a client and an nsqd agree on at IDENTIFY. Pure.
- `protocol`: The TCP protocol of NSQ, version 2: commands out, frames in. Pure.
"""
