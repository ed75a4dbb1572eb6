"""Async tests as users of the plugin write them; test_modes.py runs them in every mode."""

from __future__ import annotations

import pytest

from liftbridge_aio import Client, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedBroker


async def test_an_order_is_stored_and_read(liftbridge_client: Client) -> None:
    await liftbridge_client.create_stream("orders")
    ack = await liftbridge_client.publish("orders", b"bread")
    assert ack is not None
    assert ack.offset == 0
    orders = liftbridge_client.subscribe(
        "orders", partition=0, start=StartAt.earliest(), stop=StopAt.latest()
    )
    assert [order.value async for order in orders] == [b"bread"]


async def test_every_test_has_a_broker_of_its_own(liftbridge_broker: EmbeddedBroker) -> None:
    assert liftbridge_broker.statistics().messages_stored == 0


@pytest.mark.liftbridge_broker(cursors_partitions=0)
async def test_the_marker_sets_up_the_broker(liftbridge_broker: EmbeddedBroker) -> None:
    assert liftbridge_broker.statistics().streams == 0


class TestRestarts:
    @pytest.mark.liftbridge_client(call_timeout=7)
    async def test_the_client_survives_a_restart(
        self, liftbridge_broker: EmbeddedBroker, liftbridge_client: Client
    ) -> None:
        await liftbridge_client.create_stream("orders")
        async with liftbridge_client.subscribe("orders", partition=0) as orders:
            await liftbridge_broker.restart()
            await liftbridge_client.publish("orders", b"milk")
            assert (await anext(orders)).value == b"milk"
        assert liftbridge_client.options.call_timeout == 7

    @pytest.mark.parametrize("partitions", [1, 3])
    async def test_partitions(self, liftbridge_client: Client, partitions: int) -> None:
        await liftbridge_client.create_stream("orders", partitions=partitions)
        metadata = await liftbridge_client.fetch_metadata()
        assert metadata.partition_count("orders") == partitions
