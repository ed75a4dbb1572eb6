"""The endpoint of Liftbridge's own streams, which can only be read."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from liftbridge_aio._core.arguments import INT32_MAX
from liftbridge_aio.durable_streams.core.native import NativeLog
from liftbridge_aio.durable_streams.core.parsing import parse_integer
from liftbridge_aio.durable_streams.core.protocol import JSON_CONTENT_TYPE
from liftbridge_aio.durable_streams.core.registry import Entry
from liftbridge_aio.durable_streams.core.requests import Read, RequestRefused
from liftbridge_aio.model import RESERVED_STREAMS

from .access import Access
from .bodies import Bodies
from .options import GatewayOptions
from .stream_endpoint import StreamEndpoint
from .streams import Streams

_ON_MALFORMED: Final = ("error", "skip")
_ISOLATIONS: Final = {"uncommitted": False, "committed": True}


class NativeEndpoint(StreamEndpoint):
    """An ASGI application for partitions of Liftbridge's own streams.

    Their messages are JSON objects; offsets of Liftbridge are taken as offsets, too. With
    `isolation=committed` they are what a committed reading shows, at its positions.

    Args:
        streams: the streams.
        access: which pages may read responses.
        options: settings of the gateway.
        bodies: what reads bodies; these requests have none.
    """

    def __init__(
        self, streams: Streams, access: Access, options: GatewayOptions, bodies: Bodies
    ) -> None:
        super().__init__(streams, access, options, bodies)
        self._handlers = {"GET": self._get, "HEAD": self._head}

    async def _find(self, request: Request, *, touch: bool) -> Entry:
        """Return a partition as if it were registered. Cancelling abandons the call."""
        del touch  # their lives are Liftbridge's matter
        name, number = request.path_params["name"], request.path_params["partition"]
        partition = parse_integer(number, INT32_MAX)
        committed = _ISOLATIONS.get(request.query_params.get("isolation", "uncommitted"))
        if committed is None:
            raise RequestRefused(400, f"isolation is {' or '.join(_ISOLATIONS)}")
        on_malformed = request.query_params.get("on_malformed", "error")
        if on_malformed not in _ON_MALFORMED:
            raise RequestRefused(400, f"on_malformed is {' or '.join(_ON_MALFORMED)}")
        stream = None
        if _is_shown(name, self._streams):
            stream = (await self._streams.client.fetch_metadata([name])).streams.get(name)
        if stream is None or partition is None or partition not in stream.partitions:
            raise RequestRefused(404, f"Liftbridge has no partition {number[:64]} of {name}")
        skip = on_malformed == "skip"
        log = NativeLog(name, partition, stream.creation_timestamp, committed, skip)
        return Entry(log=log.name, content_type=JSON_CONTENT_TYPE, incarnation=log.incarnation)

    def _check(self, request: Request) -> None:
        """Do nothing: following a stream that is deleted fails."""

    async def _position(self, read: Read, entry: Entry) -> int:
        if (offset := parse_integer(read.offset)) is not None:
            return await self._streams.logs.reached(entry, offset)
        return await super()._position(read, entry)


async def native_names(streams: Streams) -> list[tuple[str, int]]:
    """Return the names of Liftbridge's own streams, with their numbers of partitions.

    Cancelling abandons the call.

    Raises:
        LiftbridgeError: no server answered.
    """
    metadata = await streams.client.fetch_metadata()
    return [
        (name, len(stream.partitions))
        for name, stream in sorted(metadata.streams.items())
        if _is_shown(name, streams)
    ]


def _is_shown(name: str, streams: Streams) -> bool:
    """Return False for Liftbridge's internal streams, and for the gateway's logs and registry."""
    own = streams.options.registry
    return name not in RESERVED_STREAMS and name != own and not name.startswith(f"{own}.")
