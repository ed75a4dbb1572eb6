"""grpcio and no client around it: `python -m benchmarks.peers.grpcio_plain COMMAND …`.

The messages are protobuf's own, by its C runtime: what Python gets from C alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import grpc
from liftbridge_pb2_grpc import APIStub

from benchmarks.peers.grpcio_messages import ACK_TIMEOUT, publish_request, subscribe_request
from benchmarks.peers.measuring import Delivered, Outcome, Settings, main
from benchmarks.peers.threads import (
    consume,
    latency,
    publish_one_by_one,
    publish_window,
)


class Client:
    """The calls that are measured."""

    def __init__(self, settings: Settings) -> None:
        self._stream = settings.stream
        channel = grpc.insecure_channel(settings.servers[0])
        grpc.channel_ready_future(channel).result(timeout=ACK_TIMEOUT)
        self._api: Any = APIStub(channel)

    def request(self, partition: int, value: bytes, policy: str) -> Any:
        """A message to publish."""
        return publish_request(self._stream, partition, value, policy)

    def exchange(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Publish what comes."""
        answers: Iterator[Any] = self._api.PublishAsync(requests)
        return answers

    def publish(self, partition: int, value: bytes, policy: str) -> bool:
        """Publish one message and wait for its answer."""
        answer = self._api.Publish(
            publish_request(self._stream, partition, value, policy), timeout=ACK_TIMEOUT
        )
        return policy == "none" or bool(answer.HasField("ack"))

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
