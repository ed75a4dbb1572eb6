"""Metadata is refreshed now and then, though nothing has failed."""

from __future__ import annotations

import pytest

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.net import metadata
from liftbridge_aio.partitioner import by_key
from support.faults import QUICK, eventually

KEY = b"foo"


async def test_partitions_that_a_stream_made_anew_has_more_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partition that a key had is there still, so no server refuses anything."""
    monkeypatch.setattr(metadata, "_MAX_AGE", 0.01)
    moved = by_key("s", KEY, b"", 3)
    assert moved != by_key("s", KEY, b"", 1)
    async with (
        EmbeddedBroker() as broker,
        Client(broker.address, options=ClientOptions(backoff=QUICK)) as client,
        Client(broker.address) as other,
    ):
        await client.create_stream("s")
        await client.publish("s", b"first", key=KEY)
        unheard = broker.faults.fail("FetchMetadata", times=3)
        await other.delete_stream("s")
        await other.create_stream("s", partitions=3)
        await unheard.wait()
        await eventually(lambda: client.metadata.partition_count("s") == 3)
        assert (await client.publish("s", b"next", key=KEY)).partition == moved
