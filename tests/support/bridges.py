"""Both ends of a bridge, and bridges in processes of their own, which are killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sized
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from liftbridge_aio import Client, StartAt, nsq, stan
from liftbridge_aio.bridge import MARKER_HEADER
from support.clients import read_out
from support.servers.node import LiftbridgeNode
from support.servers.nsq_daemons import NsqDaemon
from support.servers.streaming import StreamingServer

PROGRAM: Final = Path(__file__).with_name("bridge_forks.py")
MessageT = TypeVar("MessageT")


@dataclass(slots=True)
class Ends:
    """A client of each system, and the name of stream, channel and topic."""

    name: str
    lift: Client
    stan: stan.Client
    producer: nsq.Producer
    node: LiftbridgeNode
    streaming: StreamingServer
    nsqd: NsqDaemon

    @property
    def lift_url(self) -> str:
        return f"liftbridge://{self.node.address}/{self.name}"

    @property
    def stan_url(self) -> str:
        address = self.streaming.url.removeprefix("nats://")
        return f"stan://{address}/{self.streaming.cluster}/{self.name}"

    @property
    def nsq_url(self) -> str:
        return f"nsq://{self.nsqd.address}/{self.name}/moving"

    def in_code(self, text: str) -> str:
        """Return code or a command of a page with these addresses and this name."""
        for shown, real in (
            ("127.0.0.1:4222", self.streaming.url.removeprefix("nats://")),
            ("127.0.0.1:4150", self.nsqd.address),
            ("127.0.0.1:9292", self.node.address),
        ):
            text = text.replace(shown, real)
        return re.sub(r"\borders(?=[\"/ \n])", self.name, text)

    async def to_channel(self, value: bytes) -> None:
        """Publish to the channel."""
        await self.stan.publish(self.name, value)

    async def to_topic(self, value: bytes) -> None:
        """Publish to the topic."""
        await self.producer.publish(self.name, value)

    async def to_stream(self, value: bytes) -> None:
        """Publish to the stream."""
        await self.lift.publish(self.name, value)

    async def in_stream(self) -> list[bytes]:
        """The values in the stream, without what a bridge adds."""
        return [
            each.value
            for each in await read_out(self.lift, self.name)
            if MARKER_HEADER not in each.headers
        ]

    @asynccontextmanager
    async def arriving_in_stream(self) -> AsyncIterator[list[bytes]]:
        """The values in the stream, and those that come."""
        async with (
            self.lift.subscribe(self.name, start=StartAt.earliest()) as messages,
            collected(messages, lambda message: message.value) as values,
        ):
            yield values

    @asynccontextmanager
    async def arriving_in_channel(self) -> AsyncIterator[list[bytes]]:
        """The values in the channel, and those that come."""
        async with (
            self.stan.subscribe(self.name, start=stan.StartAt.earliest()) as messages,
            collected(messages, lambda message: message.data) as values,
        ):
            yield values

    @asynccontextmanager
    async def arriving_in_topic(self) -> AsyncIterator[list[bytes]]:
        """The values in the topic's channel, and those that come."""
        async with (
            nsq.Consumer(
                self.name, "moving", nsqd=[self.nsqd.address], max_in_flight=500
            ) as consumer,
            collected(finished(consumer), lambda message: message.body) as values,
        ):
            yield values


async def finished(consumer: nsq.Consumer) -> AsyncIterator[nsq.Message]:
    """Finish each message of a consumer."""
    async for message in consumer:
        await message.finish()
        yield message


@asynccontextmanager
async def collected(
    messages: AsyncIterable[MessageT], value: Callable[[MessageT], bytes]
) -> AsyncIterator[list[bytes]]:
    """Read messages while the block runs."""
    values: list[bytes] = []

    async def read() -> None:
        async for message in messages:
            values.append(value(message))  # noqa: PERF401 - each as soon as it comes

    reading = asyncio.create_task(read())
    try:
        yield values
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something outside has made a condition hold."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


class Forks:
    """Runs bridges in processes of their own, one at a time."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._child = 0
        """The process id of the bridge that runs; 0 if none does."""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._child:
            with suppress(ProcessLookupError):  # it has ended, and nobody has asked
                os.kill(self._child, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def start(self, *more: str) -> int:
        """Start a bridge and return its process id."""
        line = json.dumps(["bridge", *self._arguments, *more])
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._child = await self._number()
        return self._child

    async def ended(self) -> int:
        """Return the exit code of the bridge, once it has ended."""
        code = await self._number()
        self._child = 0
        return code

    async def _number(self) -> int:
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            return int(await self._process.stdout.readline())

    async def kill_often(self, times: int, arrived: Sized, longest: float) -> None:
        """Kill bridges at random moments after they have begun to copy, and let a last one finish.

        Args:
            times: how many are killed.
            arrived: what has been copied so far.
            longest: seconds that a bridge copies before it is killed, at most.
        """
        for _ in range(times):
            before = len(arrived)
            child = await self.start()
            try:
                async with asyncio.timeout(30):
                    while len(arrived) == before:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.005)
                await asyncio.sleep(random.random() * longest)
            finally:
                os.kill(child, signal.SIGKILL)
            assert await self.ended() == -signal.SIGKILL
