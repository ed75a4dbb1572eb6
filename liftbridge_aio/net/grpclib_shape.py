"""Checks that grpclib and h2 have the internals that the data lane depends on.

The lane replaces parts that are not public. With a release that changes one of them the client
uses the plain path, which is slower and depends on less.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from grpclib import client, protocol
from h2.connection import H2Connection
from h2.stream import H2Stream

logger = logging.getLogger("liftbridge_aio.net")

_ATTRIBUTES: Final = (
    (protocol.Connection, ("feed", "flush", "is_closing", "create_stream")),
    (protocol.EventsProcessor, ("register", "close", "process", "process_data_received")),
    (protocol.Stream, ("send_request", "reset_nowait", "__ended__", "__terminated__")),
    (
        client.Stream,
        (
            "send_request",
            "recv_initial_metadata",
            "_raise_for_status",
            "_raise_for_content_type",
            "_maybe_raise",
            "__aexit__",
        ),
    ),
    (H2Connection, ("data_to_send", "local_flow_control_window")),
)
_NAMES_USED: Final = (
    (protocol.Stream.__ended__, {"buffer", "eof"}),
    (protocol.Stream.__terminated__, {"wrapper", "cancel"}),
    (protocol.H2Protocol.connection_made, {"connection", "processor"}),
    (protocol.H2Protocol.data_received, {"connection", "feed", "process", "processor"}),
    (protocol.EventsProcessor.process_response_received, {"headers", "headers_received"}),
    (protocol.Connection.__init__, {"_connection", "_transport", "write_ready"}),
    (protocol.Stream.__init__, {"_h2_connection", "_transport", "window_updated", "trailers"}),
    (H2Connection.__init__, {"max_outbound_frame_size", "outbound_flow_control_window", "streams"}),
    (H2Connection.send_data, {"streams", "outbound_flow_control_window"}),
    (H2Stream.send_data, {"state_machine", "process_input", "outbound_flow_control_window"}),
    (client.Stream.send_request, {"_stream", "_release_stream"}),
    (client.Stream.__aexit__, {"_release_stream", "closable", "reset_nowait"}),
)
"""Functions that use what the lane replaces, and the names that must occur in them."""


@functools.cache
def data_lane_available() -> bool:
    """Return True if the lane can be used; if not, log the reason once."""
    problem = _problem()
    if problem is not None:
        logger.warning("the data lane is not used: %s", problem)
    return problem is None


def _problem() -> str | None:
    for owner, attributes in _ATTRIBUTES:
        for name in attributes:
            if not hasattr(owner, name):
                return f"{owner.__module__}.{owner.__name__} has no {name}"
    for function, names in _NAMES_USED:
        missing = names - _names_in(function)
        if missing:
            return f"{function.__module__}.{function.__qualname__} does not use {min(missing)}"
    return None


def _names_in(function: Callable[..., Any]) -> set[str]:
    code = inspect.unwrap(function).__code__
    return {*code.co_names, *code.co_varnames}
