"""A whole broker on a data directory: when it refuses to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from liftbridge_aio import Client, StartAt, StopAt
from liftbridge_aio.broker import BrokerState, EmbeddedBroker
from liftbridge_aio.broker.storage.data_directory import DataDirectoryError


async def test_a_data_directory_of_a_broker_with_another_id_is_refused(tmp_path: Path) -> None:
    async with (
        EmbeddedBroker(data_dir=tmp_path, server_id="a") as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream("s")
    other = EmbeddedBroker(data_dir=tmp_path, server_id="b")

    with pytest.raises(DataDirectoryError, match="belongs to the broker 'a'"):
        await other.start()

    assert other.state is BrokerState.STOPPED
    async with EmbeddedBroker(data_dir=tmp_path, server_id="a") as broker:
        assert broker.statistics().streams == 2


async def test_a_paused_partition_shows_its_end_after_a_restart(
    tmp_path: Path,
) -> None:
    async with EmbeddedBroker(data_dir=tmp_path) as broker, Client(broker.address) as client:
        await client.create_stream("s")
        await client.publish("s", b"kept")
        await client.pause_stream("s")
    async with EmbeddedBroker(data_dir=tmp_path) as broker, Client(broker.address) as client:
        partition = (await client.fetch_metadata()).streams["s"].partitions[0]

        assert (partition.high_watermark, partition.newest_offset) == (0, 0)
        async with client.subscribe(
            "s", start=StartAt.earliest(), stop=StopAt.latest(), unpause=True
        ) as messages:
            assert [message.value async for message in messages] == [b"kept"]


def test_an_empty_folder_name_is_not_the_working_directory() -> None:
    with pytest.raises(ValueError, match="data_dir is empty"):
        EmbeddedBroker(data_dir="")
