"""The messages of the API as protoc makes them; they stand in the environment of the program."""

from __future__ import annotations

from typing import Any, Final

import liftbridge_pb2 as api

UNCHECKED: Final = -1
"""The expected offset of a message that may come to stand anywhere."""

POLICIES: Final = {"leader": api.LEADER, "all": api.ALL, "none": api.NONE}
STARTS: Final = {"earliest": api.EARLIEST, "latest": api.LATEST}


def publish_request(stream: str, partition: int, value: bytes, policy: str) -> Any:
    """A message to publish."""
    return api.PublishRequest(
        value=value,
        stream=stream,
        partition=partition,
        ackPolicy=POLICIES[policy],
        expectedOffset=UNCHECKED,
    )


def subscribe_request(stream: str, partition: int, start: str) -> Any:
    """A request for the messages of a partition."""
    return api.SubscribeRequest(stream=stream, partition=partition, startPosition=STARTS[start])
