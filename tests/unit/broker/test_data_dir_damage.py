"""A broker reports damage to its data directory and never serves wrong data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from liftbridge_aio import Client, ServerError, StartAt, StopAt
from liftbridge_aio.broker import BrokerState, DataDirectoryError, EmbeddedBroker

RECORDS = 5
VALUES = [b"%d" % number for number in range(RECORDS)]


async def fill(folder: Path) -> None:
    """Fill a data directory with one stream, `s`."""
    async with (
        EmbeddedBroker(data_dir=folder, cursors_partitions=0) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream("s")
        await client.publish_many("s", VALUES)


def the_segment(folder: Path) -> Path:
    [segment] = folder.rglob("*.log")
    return segment


async def test_a_broker_does_not_start_if_a_log_cannot_be_opened(tmp_path: Path) -> None:
    await fill(tmp_path / "data")
    segment = the_segment(tmp_path)
    segment.rename(tmp_path / "aside")
    segment.mkdir()
    broker = EmbeddedBroker(data_dir=tmp_path / "data")

    with pytest.raises(DataDirectoryError, match=f"{segment.name} is a directory"):
        await broker.start()
    assert broker.state is BrokerState.STOPPED

    segment.rmdir()
    (tmp_path / "aside").rename(segment)
    async with broker, Client(broker.address) as client:
        ack = await client.publish("s", b"next")
    assert ack is not None
    assert ack.offset == RECORDS


async def test_messages_around_damage_are_read_and_the_damage_is_reported(
    tmp_path: Path,
) -> None:
    await fill(tmp_path / "data")
    segment = the_segment(tmp_path)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1  # in message 2
    segment.write_bytes(data)

    async with (
        EmbeddedBroker(data_dir=tmp_path / "data") as broker,
        Client(broker.address) as client,
        client.subscribe("s", start=StartAt.earliest()) as messages,
    ):
        assert [(await anext(messages)).value for _ in range(2)] == [b"0", b"1"]
        with pytest.raises(ServerError, match="offset 2 to 2 are lost"):
            await anext(messages)

        behind = client.subscribe("s", start=StartAt.offset(3), stop=StopAt.latest())
        assert [message.value async for message in behind] == [b"3", b"4"]


async def test_a_missing_stream_folder_is_reported(tmp_path: Path) -> None:
    await fill(tmp_path)
    shutil.rmtree(tmp_path / "streams" / "1")
    with pytest.raises(DataDirectoryError, match=r"streams/1/0 is missing.*It held s/0"):
        await EmbeddedBroker(data_dir=tmp_path, cursors_partitions=0).start()

    (tmp_path / "streams" / "1" / "0").mkdir(parents=True)  # as the error says
    async with (
        EmbeddedBroker(data_dir=tmp_path, cursors_partitions=0) as broker,
        Client(broker.address) as client,
    ):
        assert "s" in (await client.fetch_metadata()).streams


async def test_a_format_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path)
    (tmp_path / "format").write_bytes(b"\xff\xfe1")
    with pytest.raises(DataDirectoryError, match=r"format is damaged: .* holds '\\\\xff"):
        await EmbeddedBroker(data_dir=tmp_path).start()


async def test_a_directory_in_place_of_an_index_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path)
    index = next((tmp_path / "streams").rglob("*.log")).with_suffix(".index")
    index.unlink(missing_ok=True)
    index.mkdir()
    with pytest.raises(DataDirectoryError, match=f"{index.name} is a directory"):
        await EmbeddedBroker(data_dir=tmp_path, cursors_partitions=0).start()
