"""gufo-liftbridge: `python -m benchmarks.peers.gufo consume|publish|latency …`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Final

from gufo.liftbridge.client import LiftbridgeClient
from gufo.liftbridge.types import AckPolicy, StartPosition

from benchmarks.peers import loops
from benchmarks.peers.measuring import Delivered, Outcome, Settings, main

ACK_TIMEOUT: Final = 5.0
POLICIES: Final = {
    "leader": AckPolicy.LEADER,
    "all": AckPolicy.ALL,
    "none": AckPolicy.NONE,
}
STARTS: Final = {"earliest": StartPosition.EARLIEST, "latest": StartPosition.LATEST}


class Client:
    """The client as its documentation shows it, with the one thing added that acks need."""

    def __init__(self, client: Any, stream: str) -> None:
        self._client = client
        self._stream = stream

    async def connect(self) -> None:
        """Connect before anything is measured."""
        await self._client.get_metadata(self._stream)
        for channel in self._client.channels.values():
            # A server waits for the ack of a call with a deadline only, and the client sets none.
            channel.stub.Publish = partial(channel.stub.Publish, timeout=ACK_TIMEOUT)

    def request(self, partition: int, value: bytes, policy: str) -> Any:
        """A message to publish."""
        return self._client.get_publish_request(
            value, stream=self._stream, partition=partition, ack_policy=POLICIES[policy]
        )

    def exchange(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Publish what comes.

        The client's own waiting for acks would do without a window and not with `NONE`.
        """
        answers: AsyncGenerator[Any, None] = self._client.publish_bulk(requests, wait=False)
        return answers

    async def publish(self, partition: int, value: bytes, policy: str) -> None:
        """Publish one message and wait for its answer."""
        await self._client.publish(
            value, stream=self._stream, partition=partition, ack_policy=POLICIES[policy]
        )

    def read(self, partition: int, start: str) -> AsyncIterator[Delivered]:
        """The messages of a partition."""
        messages: AsyncIterator[Delivered] = self._client.subscribe(
            self._stream, partition=partition, start_position=STARTS[start]
        )
        return messages


def run(
    measure: Callable[[Client, Settings], Coroutine[Any, Any, Outcome]], settings: Settings
) -> Outcome:
    """Connect, and measure."""

    async def connected() -> Outcome:
        async with LiftbridgeClient(settings.servers) as session:
            client = Client(session, settings.stream)
            await client.connect()
            return await measure(client, settings)

    return asyncio.run(connected())


if __name__ == "__main__":
    main(
        "gufo-liftbridge",
        "gufo-liftbridge",
        {
            "consume": partial(run, loops.consume),
            "publish": partial(run, loops.publish),
            "latency": partial(run, loops.latency),
        },
    )
