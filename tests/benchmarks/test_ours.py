"""Our client as a program: what it measures is what it did."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest

from benchmarks.peers.measuring import CallEnded, Outcome, Settings
from benchmarks.peers.ours_read import consume, consume_batches
from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker

Reading = Callable[[Client, Settings], Coroutine[None, None, Outcome]]


@pytest.mark.parametrize("read", [consume, consume_batches])
async def test_reading_is_measured_only_if_all_came(read: Reading) -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        for partition in (0, 1, 0, 1):
            await client.publish("s", b"value", partition=partition)
        whole = await read(client, Settings("consume", (), "s", partitions=2, expected=4))
        assert (whole.messages, whole.errors) == (4, 0)
        # A stream that is read-only ends where it ends.
        await client.set_stream_readonly("s")
        with pytest.raises(CallEnded):
            await read(client, Settings("consume", (), "s", partitions=2, expected=5))
