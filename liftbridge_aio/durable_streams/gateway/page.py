"""The page of the gateway, and the list of streams that it shows."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from liftbridge_aio.errors import LiftbridgeError

from .native_endpoint import native_names
from .options import GatewayOptions
from .responses import NO_STORE, unavailable
from .streams import Streams

_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; script-src 'sha256-{}';"
    " style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)


class Page:
    """The page, which has all its script and style inside, and what it lists.

    Args:
        streams: the streams.
        options: settings of the gateway.
    """

    def __init__(self, streams: Streams, options: GatewayOptions) -> None:
        self._streams = streams
        self._native = options.native
        self._html = files(__package__).joinpath("page.html").read_text("utf-8")
        # No other script runs in the page, whatever a stream or its name holds.
        script = self._html.partition("<script>")[2].partition("</script>")[0]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self._policy = _POLICY.format(digest)

    async def page(self, _: Request) -> Response:
        """Return the page."""
        return HTMLResponse(
            self._html,
            headers={"Content-Security-Policy": self._policy, "Cache-Control": "no-cache"},
        )

    async def names(self, _: Request) -> Response:
        """Return the names of all streams. Cancelling abandons the call."""
        try:
            native = await native_names(self._streams) if self._native else []
        except LiftbridgeError as error:
            return unavailable(error)
        listed = {
            "streams": [
                {"path": path, "content_type": entry.content_type}
                for path, entry in self._streams.registry.names()
            ],
            "liftbridge": [{"name": name, "partitions": count} for name, count in native],
        }
        return JSONResponse(listed, headers=NO_STORE)
