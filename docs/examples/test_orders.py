"""Tests of a program of one's own: the pytest plugin starts a broker for each test."""

from __future__ import annotations

from liftbridge_aio import Client, Retry, StartAt
from liftbridge_aio.broker import EmbeddedBroker


async def place_order(client: Client, customer: str, item: str) -> int:
    """The program under test: publish an order and return its offset."""
    ack = await client.publish(
        "orders", item.encode(), key=customer.encode(), retry=Retry(attempts=5)
    )
    return ack.offset


async def test_an_order_is_stored(liftbridge_client: Client) -> None:
    """The fixture is a client that is connected to a broker of the test's own."""
    await liftbridge_client.create_stream("orders")
    assert await place_order(liftbridge_client, "ann", "bread") == 0


async def test_an_order_survives_a_restart_of_the_broker(
    liftbridge_broker: EmbeddedBroker, liftbridge_client: Client
) -> None:
    """The broker can be restarted, cut off and made to fail."""
    await liftbridge_client.create_stream("orders")
    async with liftbridge_client.subscribe("orders", start=StartAt.earliest()) as orders:
        await liftbridge_broker.restart()
        await place_order(liftbridge_client, "ann", "bread")
        assert (await anext(orders)).value == b"bread"
