"""grpcio and no client around it: `python -m benchmarks.peers.grpcio_plain COMMAND …`.

The messages are protobuf's own, by its C runtime: what Python gets from C alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final

import grpc
from grpc.experimental import ChannelOptions
from liftbridge_pb2_grpc import APIStub

from benchmarks.peers.grpcio_messages import publish_request, subscribe_request
from benchmarks.peers.measuring import Delivered, Outcome, Settings, main
from benchmarks.peers.threads import (
    consume,
    latency,
    publish_one_by_one,
    publish_window,
)

CONNECT_TIMEOUT: Final = 5.0

OPTIONS: Final = ((ChannelOptions.SingleThreadedUnaryStream, 1),)
"""Messages are read by the thread that asks for them, without which reading costs four times more
than it must."""


class Client:
    """The calls that are measured."""

    def __init__(self, settings: Settings) -> None:
        self._stream = settings.stream
        channel = grpc.insecure_channel(settings.servers[0], options=OPTIONS)
        grpc.channel_ready_future(channel).result(timeout=CONNECT_TIMEOUT)
        self._api: Any = APIStub(channel)
        # One call for all single publishes is faster than one for each.
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers: Iterator[Any] = self.exchange(iter(self._requests.get, None))

    def request(self, partition: int, value: bytes, policy: str) -> Any:
        """A message to publish."""
        return publish_request(self._stream, partition, value, policy)

    def exchange(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Publish what comes."""
        answers: Iterator[Any] = self._api.PublishAsync(requests)
        return answers

    def publish(self, partition: int, value: bytes, policy: str) -> bool:
        """Publish one message and wait for its answer."""
        self._requests.put(self.request(partition, value, policy))
        return not next(self._answers).HasField("asyncError")

    def read(self, partition: int, start: str) -> Iterator[Delivered]:
        """The messages of a partition."""
        subscription = self._api.Subscribe(subscribe_request(self._stream, partition, start))
        # The first is empty and says that the subscription stands.
        return islice(subscription, 1, None)


def publish(settings: Settings) -> Outcome:
    """Publish with a window, or one at a time."""
    if settings.window == 1 and settings.ack_policy != "none":
        return publish_one_by_one(Client(settings), settings)
    return publish_window(Client(settings), settings)


if __name__ == "__main__":
    main(
        "grpcio",
        "grpcio",
        {
            "consume": lambda settings: consume(Client(settings), settings),
            "publish": publish,
            "latency": lambda settings: latency(Client(settings), settings),
        },
    )
