"""Connecting and closing, cancelled at each place where they wait: all or nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest

from cancellation.test_await_points import nothing_to_complain_of
from liftbridge_aio import (
    Ack,
    Client,
    ClientClosed,
    ClientOptions,
    LiftbridgeError,
    StartAt,
)
from liftbridge_aio.broker import EmbeddedBroker
from support.faults import BOUND, QUICK, nothing_left_behind, within
from support.suspensions import watched_suspensions

Operation = Callable[[], Coroutine[Any, Any, Any]]

pytestmark = pytest.mark.virtual_time

EARLIEST: Final = StartAt.earliest()
OPTIONS: Final = ClientOptions(backoff=QUICK, max_in_flight=4, close_timeout=0.5)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    with nothing_to_complain_of():
        async with EmbeddedBroker() as running:
            async with Client(running.address) as client:
                await client.create_stream("s")
            yield running


async def connect(client: Client) -> None:
    await client.connect()


async def wait_ready(client: Client) -> None:
    await client.wait_ready()


@pytest.mark.parametrize("begin", [connect, wait_ready])
async def test_connecting(
    broker: EmbeddedBroker, begin: Callable[[Client], Coroutine[Any, Any, None]]
) -> None:
    """A client that was not connected is closed; one that only waited goes on."""
    places: list[list[str]] = []
    with watched_suspensions() as suspensions:
        for strike in suspensions.strikes():
            async with nothing_left_behind():
                client = Client(broker.address, options=OPTIONS)
                await strike(partial(begin, client))
                try:
                    await within(BOUND, client.connect())
                    await within(BOUND, client.ping())
                except ClientClosed:
                    assert begin is connect
                await within(BOUND, client.aclose())
            places.append(strike.place)
    assert len(places) > 6


async def test_closing(broker: EmbeddedBroker) -> None:
    """It is closed all the same, with everything that was in use; a second call finds it so."""
    places: list[list[str]] = []
    with watched_suspensions() as suspensions:
        for strike in suspensions.strikes():
            async with nothing_left_behind():
                client = Client(broker.address, options=OPTIONS)
                await client.connect()
                await closed_in_use(client, f"g{len(places)}", strike)
            places.append(strike.place)
    assert len(places) > 6


async def closed_in_use(
    client: Client, group_id: str, close: Callable[[Operation], Coroutine[Any, Any, None]]
) -> None:
    """Close a client that publishes, reads and is a member of a group; check what became of it."""
    futures = [await client.publish_async("s", b"") for _ in range(4)]
    await client.publish_unacked("s", b"")
    reading = client.subscribe("s", start=EARLIEST, cursor="reader")
    group = client.group(group_id, ["s"], start=EARLIEST)
    await reading.__aenter__()
    await group.__aenter__()
    await anext(group)
    await close(client.aclose)
    await within(BOUND, client.aclose())
    outcomes = [future.exception() or future.result() for future in futures]
    assert all(isinstance(one, Ack | LiftbridgeError) for one in outcomes)
    with pytest.raises(ClientClosed):
        await client.publish("s", b"")
    async with asyncio.timeout(BOUND):
        async for _ in reading:
            pass
        async for _ in group:
            pass
        for used in (reading, group):
            with suppress(ClientClosed):  # its last position could not be stored any more
                await used.aclose()
