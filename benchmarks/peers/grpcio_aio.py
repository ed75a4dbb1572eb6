"""grpcio's asyncio and no client around it: `python -m benchmarks.peers.grpcio_aio COMMAND …`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import grpc.aio
from liftbridge_pb2_grpc import APIStub

from benchmarks.peers import loops
from benchmarks.peers.grpcio_messages import publish_request, subscribe_request
from benchmarks.peers.measuring import Delivered, Outcome, Settings, main


class Client:
    """The calls that are measured."""

    def __init__(self, api: Any, stream: str) -> None:
        self._api = api
        self._stream = stream
        # One call for all single publishes is faster than one for each.
        self._session = api.PublishAsync()

    def request(self, partition: int, value: bytes, policy: str) -> Any:
        """A message to publish."""
        return publish_request(self._stream, partition, value, policy)

    def exchange(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Publish what comes."""
        answers: AsyncGenerator[Any, None] = aiter(self._api.PublishAsync(requests))
        return answers

    async def publish(self, partition: int, value: bytes, policy: str) -> None:
        """Publish one message and wait for its answer."""
        await self._session.write(self.request(partition, value, policy))
        answer = await self._session.read()
        if answer.HasField("asyncError"):
            raise RuntimeError(answer.asyncError.message)

    async def read(self, partition: int, start: str) -> AsyncIterator[Delivered]:
        """The messages of a partition."""
        subscription = self._api.Subscribe(subscribe_request(self._stream, partition, start))
        # The first is empty and says that the subscription stands.
        stands = False
        async for message in subscription:
            if stands:
                yield message
            stands = True


def run(
    measure: Callable[[Client, Settings], Coroutine[Any, Any, Outcome]], settings: Settings
) -> Outcome:
    """Connect, and measure."""

    async def connected() -> Outcome:
        async with grpc.aio.insecure_channel(settings.servers[0]) as channel:
            await channel.channel_ready()
            return await measure(Client(APIStub(channel), settings.stream), settings)

    return asyncio.run(connected())


if __name__ == "__main__":
    main(
        "grpcio-aio",
        "grpcio",
        {
            "consume": partial(run, loops.consume),
            "publish": partial(run, loops.publish),
            "latency": partial(run, loops.latency),
        },
    )
