"""gRPC messages in and out of grpclib's streams, with limits.

grpclib reads messages of any size that a client announces, and lets malformed requests escape as
exceptions of many kinds. Here both become the statuses of a Go server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError

from liftbridge_aio.wire import proto
from liftbridge_aio.wire.broker_codec import (
    encode_reply,
    parse_publish_request,
    parse_publish_to_subject_request,
)
from liftbridge_aio.wire.field_types import wrong_field
from liftbridge_aio.wire.framing import PREFIX_BYTES
from liftbridge_aio.wire.rpc import SLOWLY_READ_BYTES, ReplyT, RequestT, Rpc
from liftbridge_aio.wire.strict import is_cut_off

from .call import Call

MAX_REQUEST_BYTES: Final = 4 * 2**20
"""Largest publish that is accepted: the default limit of Go's gRPC."""

_PARSERS: Final[Mapping[type, Callable[[bytes], object]]] = {
    proto.PublishRequest: parse_publish_request,
    proto.PublishToSubjectRequest: parse_publish_to_subject_request,
}
"""Parsers of requests that may be large; other requests may have `SLOWLY_READ_BYTES`."""


class MessageCodec(CodecBase):
    """Encodes the generated messages for grpclib."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002 - grpclib's signature
        """Encode a generated message."""
        return encode_reply(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        """Not called: requests are read by `receive`."""
        raise NotImplementedError


async def receive(call: Call, procedure: Rpc[RequestT, ReplyT]) -> RequestT | None:
    """Read one request; return None once the client has sent its last one.

    Cancellation loses a request that was read in part, or is held back by a fault.

    Raises:
        GRPCError: it is too large, compressed, cut off or malformed, or a fault makes the call
            fail.
    """
    if call.repeated_request is not None:
        repeated: RequestT = call.repeated_request
        call.repeated_request = None
        return repeated
    while (request := await _read(call, procedure)) is not None:
        if not procedure.streams_requests:
            call.request = request
        if not call.plan.has_faults or await call.accept(request):
            return request
    return None


async def _read(call: Call, procedure: Rpc[RequestT, ReplyT]) -> RequestT | None:
    # A Go server words some refusals of streaming calls differently from those of unary ones.
    # grpclib has no size limit, so the frame is read below its public methods.
    data = call.data
    cut_off = GRPCError(
        Status.INTERNAL if procedure.streams_replies else Status.UNKNOWN, "unexpected EOF"
    )
    try:
        prefix = await data.recv_data(PREFIX_BYTES)
        if not prefix:
            return None
        size = int.from_bytes(prefix[1:], "big")
        if prefix[0]:
            raise GRPCError(
                Status.UNIMPLEMENTED,
                "grpc: Decompressor is not installed for the request's encoding",
            )
        most = MAX_REQUEST_BYTES if procedure.request in _PARSERS else SLOWLY_READ_BYTES
        if size > most:
            raise GRPCError(
                Status.RESOURCE_EXHAUSTED,
                f"grpc: received message larger than max ({size} vs. {most})",
            )
        body = await data.recv_data(size)
    except AssertionError as error:  # how grpclib says that a stream ended too early
        raise cut_off from error
    if len(body) < size:
        raise cut_off
    parse = _PARSERS.get(procedure.request)
    if parse is not None:
        parsed = parse(body)
        if isinstance(parsed, procedure.request):
            return parsed
    return _parse(procedure, body)


def _parse(procedure: Rpc[RequestT, ReplyT], body: bytes) -> RequestT:
    refusal = (
        "grpc: failed to unmarshal the received message"
        if procedure.streams_replies
        else "grpc: error unmarshalling request:"
    )
    if len(body) > SLOWLY_READ_BYTES:  # its parser refused it
        raise GRPCError(Status.INTERNAL, f"{refusal} proto: cannot parse invalid wire-format data")
    if is_cut_off(body):  # betterproto2 would accept it
        raise GRPCError(Status.INTERNAL, f"{refusal} unexpected EOF")
    try:
        request = procedure.request.parse(body)
        wrong = wrong_field(request)
    except Exception as error:  # hostile bytes raise anything
        raise GRPCError(Status.INTERNAL, f"{refusal} {error}") from error
    if wrong is not None:
        raise GRPCError(Status.INTERNAL, f"{refusal} proto: wrong wireType for field {wrong}")
    return request


async def receive_only(call: Call, procedure: Rpc[RequestT, ReplyT]) -> RequestT:
    """Read the request of a call with one request.

    Raises:
        GRPCError: there is none, or as `receive` says.
    """
    request = await receive(call, procedure)
    if request is None:
        raise GRPCError(Status.UNKNOWN, "EOF")
    return request
