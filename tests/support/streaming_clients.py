"""Clients of NATS Streaming for tests, and what they read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from liftbridge_aio import stan
from support.servers.streaming import CLUSTER, StreamingServer

BOUND: Final = 15.0
"""Seconds after which a wait has failed."""

MakeClient = Callable[..., stan.Client]
StartServer = Callable[..., StreamingServer]


def client_of(url: str, client_id: str, **options: Any) -> stan.Client:
    """A client with these options; `on_event` and `connect` are passed on."""
    further = {name: options.pop(name) for name in ("on_event", "connect") if name in options}
    cluster = options.pop("cluster", CLUSTER)
    return stan.Client(
        url,
        cluster=cluster,
        client_id=client_id,
        options=stan.ClientOptions(**options),
        **further,
    )


async def publish_many(client: stan.Client, channel: str, count: int) -> None:
    """Publish so many messages, numbered from 0, and wait for their acks."""
    for publish in [await client.publish_async(channel, b"%d" % n) for n in range(count)]:
        await publish


async def take(subscription: stan.Subscription, count: int) -> list[stan.Message]:
    """The next messages of a subscription."""
    async with asyncio.timeout(BOUND):
        return [await anext(subscription) for _ in range(count)]


def sequences(messages: list[stan.Message]) -> list[int]:
    """The sequences of messages."""
    return [message.sequence for message in messages]


async def nothing_comes(subscription: stan.Subscription, seconds: float = 0.3) -> None:
    """Check that no message comes for a while."""
    try:
        async with asyncio.timeout(seconds):
            message = await anext(subscription)
    except TimeoutError:
        return
    raise AssertionError(message)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something outside has made a condition hold."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


def state_of(client: stan.Client) -> stan.ClientState:
    """The state now; type checkers believe that a property does not change."""
    return client.state


async def ignore_heartbeats(client: stan.Client) -> None:
    """Have a client answer no heartbeats any more, as if it had crashed."""
    assert client._runtime is not None
    session = client._runtime._session
    assert session is not None
    await client._link.forget(session._inboxes[0])
