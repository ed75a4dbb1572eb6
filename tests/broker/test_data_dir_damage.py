"""A broker whose data directory has something wrong in it says so; it never answers wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from liftbridge_aio import Client, ServerError, StartAt, StopAt
from liftbridge_aio.broker import BrokerState, EmbeddedBroker

RECORDS = 5


async def fill(folder: Path) -> None:
    """Fill a data directory with one stream, `s`."""
    async with (
        EmbeddedBroker(data_dir=folder, cursors_partitions=0) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream("s")
        await client.publish_many("s", [b"%d" % number for number in range(RECORDS)])


def the_segment(folder: Path) -> Path:
    [segment] = folder.rglob("*.log")
    return segment


async def test_a_log_that_cannot_be_opened_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    await fill(tmp_path / "data")
    segment = the_segment(tmp_path)
    segment.rename(tmp_path / "aside")
    segment.mkdir()
    broker = EmbeddedBroker(data_dir=tmp_path / "data")

    with pytest.raises(OSError, match=segment.name):
        await broker.start()
    assert broker.state is BrokerState.STOPPED

    segment.rmdir()
    (tmp_path / "aside").rename(segment)
    async with broker, Client(broker.address) as client:
        ack = await client.publish("s", b"next")
    assert ack is not None
    assert ack.offset == RECORDS


async def test_messages_before_and_behind_damage_are_read_and_the_damage_is_told(
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
