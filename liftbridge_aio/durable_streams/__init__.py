"""A client for Durable Streams: append-only streams over HTTP, for asyncio.

    async with DurableStream("http://127.0.0.1:4437/v1/stream/orders") as stream:
        await stream.create(content_type="application/json")
        await stream.append({"n": 1})
        async for item, offset in stream.read(offset=START, live=True):
            print(item)

Needs the extra `durable-streams`, and no Liftbridge server. The guide is
`docs/durable-streams.md`.

- `errors`: The errors of the client, a tree below `LiftbridgeError`.
- `options`: Options of a stream: frozen, and checked when created.
- `producer`: `IdempotentProducer`: appends that are stored once, however often they are sent.
- `reader`: `Reader`: the items of a stream, as an async iterator that follows it.
- `stream`: `DurableStream`: a stream at a URL.
- `transport`: HTTP requests for one stream: retries, and failures as typed errors.
- `core/`: The protocol without I/O, for clients and servers. Pure.
- `gateway/`: The gateway: Durable Streams over HTTP, stored in Liftbridge.
"""

from __future__ import annotations

from .core.protocol import NOW, START
from .errors import (
    BadRequest,
    Closed,
    Conflict,
    DurableStreamError,
    Gone,
    HandshakeFailed,
    InvalidOffset,
    NoStream,
    NotConnected,
    NotStored,
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    Refused,
    SequenceConflict,
    SequenceGap,
    StaleEpoch,
    StreamClosed,
    StreamReset,
    TimedOut,
    TooLarge,
    UnexpectedStatus,
)
from .options import StreamOptions
from .producer import IdempotentProducer, PendingAppend
from .reader import Batch, Reader
from .stream import Appended, DurableStream, StreamInfo

__all__ = [
    "NOW",
    "START",
    "Appended",
    "BadRequest",
    "Batch",
    "Closed",
    "Conflict",
    "DurableStream",
    "DurableStreamError",
    "Gone",
    "HandshakeFailed",
    "IdempotentProducer",
    "InvalidOffset",
    "NoStream",
    "NotConnected",
    "NotStored",
    "NotSupported",
    "OutcomeUnknown",
    "PendingAppend",
    "ProtocolError",
    "Reader",
    "Refused",
    "SequenceConflict",
    "SequenceGap",
    "StaleEpoch",
    "StreamClosed",
    "StreamInfo",
    "StreamOptions",
    "StreamReset",
    "TimedOut",
    "TooLarge",
    "UnexpectedStatus",
]


def __dir__() -> list[str]:
    return __all__
