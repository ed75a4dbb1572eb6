"""A client belongs to the event loop in which it connects, not to where it was made."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from liftbridge_aio import Client, UsageError
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.nats import NatsPublisher
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND
from support.servers.ports import free_ports


def test_it_may_be_made_before_there_is_a_loop() -> None:
    """As a value of a module, in many programs."""
    [port] = free_ports(1)
    broker, client = EmbeddedBroker(port=port), Client(f"127.0.0.1:{port}")

    async def program() -> None:
        async with asyncio.timeout(BOUND), broker, client:
            await client.create_stream("s")
            assert (await client.publish("s", b"value")).offset == 0

    asyncio.run(program())


NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    "start",
    [
        lambda: Client(NOWHERE).connect(),
        lambda: Client(NOWHERE).__aenter__(),
        lambda: Client(NOWHERE).wait_ready(),
        lambda: NatsPublisher("nats://127.0.0.1:1").open(),
        lambda: EmbeddedBroker().start(),
        lambda: EmbeddedCluster(3).start(),
        lambda: FaultProxy(NOWHERE).__aenter__(),
    ],
    ids=["connect", "client", "wait_ready", "nats", "broker", "cluster", "proxy"],
)
def test_nothing_is_started_without_an_event_loop_of_asyncio(
    start: Callable[[], Coroutine[Any, Any, Any]],
) -> None:
    """As trio does it, which runs coroutines by itself; what is left unawaited is an error."""
    with pytest.raises(UsageError, match=r"asyncio\.run"):
        start().send(None)
    gc.collect()


def test_a_client_that_was_never_connected_is_closed_without_an_event_loop() -> None:
    """In the `finally` of a program that could not connect."""
    client = Client(NOWHERE)
    with pytest.raises(StopIteration):
        client.aclose().send(None)
    assert "closed" in repr(client)
