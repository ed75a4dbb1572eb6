"""What both ends of a bridge need of a stream of Liftbridge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from liftbridge_aio import Client, ClientOptions, StreamInfo
from liftbridge_aio.errors import StreamNotFound
from liftbridge_aio.options import seconds

from .systems import Address

TLS_SCHEME: Final = "liftbridge+tls"
_TIMEOUTS: Final = (
    "connect_timeout",
    "call_timeout",
    "ack_timeout",
    "publish_timeout",
    "resubscribe_timeout",
)


def new_client(address: Address, patience: float) -> Client:
    """Return a client, whose other settings are those of the environment.

    Args:
        address: the stream.
        patience: the longest that a call may take.
    """
    query = f"?{address.query}" if address.query else ""
    scheme = address.system.scheme
    options = ClientOptions.from_env(secure=scheme == TLS_SCHEME)
    bounded: dict[str, Any] = {}
    for name in _TIMEOUTS:
        timeout = getattr(options, name)
        bounded[name] = patience if timeout is None else min(seconds(timeout), patience)
    url = f"{scheme}://{','.join(address.servers)}{query}"
    return Client(url, options=replace(options, **bounded))


async def find_stream(client: Client, stream: str) -> StreamInfo:
    """Fetch the metadata of a stream.

    Raises:
        StreamNotFound: no server knows it.
    """
    found = (await client.fetch_metadata([stream], expected=[stream])).streams.get(stream)
    if found is None:
        raise StreamNotFound("no broker knows the stream", stream=stream)
    return found


def log_identity(stream: StreamInfo) -> str:
    """Return what tells a stream from others of its name: in other clusters, or deleted ones.

    No two are created in the same nanosecond.
    """
    return f"liftbridge/{stream.name}@{stream.creation_timestamp}"
