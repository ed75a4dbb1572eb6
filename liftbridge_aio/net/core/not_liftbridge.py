"""Recognises answers of servers other than Liftbridge: HTTP, or another gRPC service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from grpclib.metadata import decode_grpc_message

from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.errors import NotLiftbridge

_TEMPORARY: Final = frozenset({"429", "502", "503", "504"})
"""HTTP statuses of a proxy whose server may come back."""

_IN_EVERY_VERSION: Final = frozenset(
    {
        "CreateStream",
        "DeleteStream",
        "FetchMetadata",
        "PauseStream",
        "Publish",
        "PublishToSubject",
        "Subscribe",
    }
)
_UNKNOWN_SERVICE: Final = "unknown service"
_UNKNOWN_METHOD: Final = "unknown method"
"""The text of grpc-go, and so of every Liftbridge server, for a method that it does not have."""
_HEALTH_CHECK: Final = "Check"

_MOST_SHOWN: Final = 100


def refine_failure(
    failure: CallFailure, address: str, call: str, headers: Mapping[str, str] | None
) -> CallFailure:
    """Return the failure of a call, or a more specific one if no Liftbridge server has answered.

    Args:
        failure: the gRPC status.
        address: the server that was called.
        call: the procedure, for example "CreateStream".
        headers: of the response; None if none came.
    """
    if headers is not None:
        if not _is_grpc(headers):
            return _http_answer(address, headers)
        failure = _refusal(headers) or failure
    if _lacks_service(call, failure):
        text = f"{address} is a gRPC server, but not a Liftbridge server: {failure.text}"
        return CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT, unusable=NotLiftbridge)
    return failure


def _is_grpc(headers: Mapping[str, str]) -> bool:
    if headers.get(":status") != "200":
        return False
    return "grpc-status" in headers or headers.get("content-type", "").startswith(
        "application/grpc"
    )


def _refusal(headers: Mapping[str, str]) -> CallFailure | None:
    """Return the refusal in an answer without content type, as grpclib's server sends it.

    grpclib's client does not read the status of such an answer.
    """
    status = headers.get("grpc-status", "")
    known = {str(int(code)): code for code in Code if code is not Code.OK}
    if "content-type" in headers or status not in known:
        return None
    return CallFailure(known[status], decode_grpc_message(headers.get("grpc-message", "")))


def _http_answer(address: str, headers: Mapping[str, str]) -> CallFailure:
    status = headers.get(":status", "")
    said = [
        f"{name} {headers[name][:_MOST_SHOWN]!r}"
        for name in ("content-type", "server", "location")
        if name in headers
    ]
    text = f"{address} answered with HTTP status {status} instead of gRPC"
    if said:
        text += f" ({', '.join(said)})"
    # The server behind a failing proxy may have received the call.
    reach = Reach.UNKNOWN if status.startswith("5") else Reach.NOT_SENT
    unusable = None if status in _TEMPORARY else NotLiftbridge
    return CallFailure(Code.UNAVAILABLE, text, reach, unusable=unusable)


def _lacks_service(call: str, failure: CallFailure) -> bool:
    """Return True if a gRPC server has no Liftbridge service, rather than an old version of it.

    Only servers written in Go say if the service or the method is missing. Liftbridge servers have
    no health service, so they give the same answer to a health check.
    """
    if failure.code is not Code.UNIMPLEMENTED or call == _HEALTH_CHECK:
        return False
    return _UNKNOWN_SERVICE in failure.text or (
        call in _IN_EVERY_VERSION and _UNKNOWN_METHOD not in failure.text
    )
