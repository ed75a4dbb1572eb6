"""Calls of the witness: bytes made by hand, sent with grpcio. It uses no code of the client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import grpc

from chaos.server_faults.raw import Fields, decode

CALL_TIMEOUT: Final = 1.0
METADATA_TIMEOUT: Final = 4.5  # a server waits three seconds for a peer that is dead
READ_TIMEOUT: Final = 20.0
OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]


def unary(channel: grpc.Channel, procedure: str, request: bytes, timeout: float | None) -> bytes:
    """One call; `timeout` becomes the deadline that the server sees."""
    reply: bytes = channel.unary_unary(f"/proto.API/{procedure}")(request, timeout=timeout)
    return reply


class Nodes:
    """A channel to each node, made anew after it failed: grpcio waits long before it redials."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = dict(addresses)
        self._channels: dict[str, grpc.Channel] = {}

    def ask(
        self, node: str, procedure: str, request: bytes, timeout: float = CALL_TIMEOUT
    ) -> bytes:
        """Ask a node, with a deadline for it too."""
        try:
            return unary(self._channel(node), procedure, request, timeout)
        except grpc.RpcError:
            self.forget(node)
            raise

    def metadata(self, node: str) -> Fields:
        """Fetch a node's view of the cluster; without a deadline, which it would use up."""
        channel = self._channel(node)
        call = channel.unary_unary("/proto.API/FetchMetadata").future(b"")
        try:
            return decode(call.result(METADATA_TIMEOUT))
        except (grpc.RpcError, grpc.FutureTimeoutError):
            call.cancel()
            self.forget(node)
            raise

    def messages(self, node: str, request: bytes) -> Iterator[bytes]:
        """Subscribe; the first message is the handshake."""
        call = self._channel(node).unary_stream("/proto.API/Subscribe")
        stream = iter(call(request, timeout=READ_TIMEOUT))
        next(stream)
        yield from stream

    def _channel(self, node: str) -> grpc.Channel:
        if node not in self._channels:
            self._channels[node] = grpc.insecure_channel(self.addresses[node], options=OPTIONS)
        return self._channels[node]

    def forget(self, node: str) -> None:
        """Begin anew with a node."""
        channel = self._channels.pop(node, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close all channels."""
        for node in list(self._channels):
            self.forget(node)


FAILURES: Final = (grpc.RpcError, grpc.FutureTimeoutError, StopIteration, ValueError, IndexError)
