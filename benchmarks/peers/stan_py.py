"""stan.py, made to run: `python -m benchmarks.peers.stan_py consume|publish …`.

It and its NATS client pass `loop=` to functions of asyncio, which take none since Python 3.10. Here
that argument is dropped; nothing else is changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any


def _without_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, loop: Any = None, **named: Any) -> Any:  # noqa: ARG001
        return function(*arguments, **named)

    return call


for _name in ("Queue", "open_connection", "sleep", "wait_for"):
    setattr(asyncio, _name, _without_loop(getattr(asyncio, _name)))

from nats.aio.client import Client as NATS  # noqa: E402, N814 - asyncio comes first
from stan.aio.client import Client as STAN  # noqa: E402, N814

from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch, main  # noqa: E402
from benchmarks.peers.stan_session import CLIENT_ID, CLUSTER, MAX_IN_FLIGHT  # noqa: E402


async def _connect(settings: Settings) -> Any:
    connection: Any = NATS()
    await connection.connect(f"nats://{settings.servers[0]}")
    client: Any = STAN()
    await client.connect(CLUSTER, CLIENT_ID, nats=connection, max_pub_acks_inflight=settings.window)
    return client


async def publish(settings: Settings) -> Outcome:
    """Publish, and wait for every ack; the client keeps the window."""
    client = await _connect(settings)
    await _windowed(client, settings, WARM_UP)
    watch = Watch()
    if settings.window > 1:
        await _windowed(client, settings, settings.messages)
        return watch.stop(settings.messages)
    took = []
    for _ in range(settings.messages):
        began = time.monotonic_ns()
        await client.publish(settings.stream, settings.value)
        took.append(time.monotonic_ns() - began)
    outcome = watch.stop(settings.messages)
    outcome.latencies["latency"] = took
    return outcome


async def _windowed(client: Any, settings: Settings, messages: int) -> None:
    unacked = messages
    done = asyncio.Event()

    async def acked(ack: Any) -> None:
        nonlocal unacked
        if ack.error:
            raise RuntimeError(ack.error)
        unacked -= 1
        if not unacked:
            done.set()

    for _ in range(messages):
        await client.publish(settings.stream, settings.value, ack_handler=acked)
    await done.wait()


async def consume(settings: Settings) -> Outcome:
    """Consume and ack."""
    client = await _connect(settings)
    received = 0
    done = asyncio.Event()

    async def handle(message: Any) -> None:
        nonlocal received
        await client.ack(message)
        received += 1
        if received == settings.expected:
            done.set()

    watch = Watch()
    await client.subscribe(
        settings.stream,
        cb=handle,
        start_at="first",
        manual_acks=True,
        max_inflight=MAX_IN_FLIGHT,
    )
    await done.wait()
    return watch.stop(settings.expected)


if __name__ == "__main__":
    main(
        "stan.py",
        "asyncio-nats-streaming",
        {
            "consume": lambda settings: asyncio.run(consume(settings)),
            "publish": lambda settings: asyncio.run(publish(settings)),
        },
    )
