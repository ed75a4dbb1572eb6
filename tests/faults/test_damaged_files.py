"""Damage to any file of a data directory: a broker loses nothing without saying so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from liftbridge_aio import Client, ServerError, StartAt, StopAt, StreamOptions
from liftbridge_aio.broker import DataDirectoryError, EmbeddedBroker

DATA_PATHS = ["lane"]
RECORDS = 5
VALUES = [b"%d" % number for number in range(RECORDS)]


async def fill_with_everything(folder: Path) -> None:
    """Fill a data directory with files of every kind: several segments, cursors and more."""
    async with EmbeddedBroker(data_dir=folder) as broker, Client(broker.address) as client:
        await client.create_stream("s", options=StreamOptions(segment_max_bytes=1))
        await client.create_stream("t", partitions=2)
        for value in VALUES:
            await client.publish("s", value)
            await client.publish("t", value, partition=1)
        await client.set_cursor("mine", "s", 0, 3)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xff" * (path.stat().st_size or 10))


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


async def acked_is_there_or_said_to_be_lost(folder: Path) -> list[str]:
    """Read back acked messages, and return the errors about the others."""
    said: list[str] = []
    async with EmbeddedBroker(data_dir=folder) as broker, Client(broker.address) as client:
        for stream, partition in (("s", 0), ("t", 1)):
            found: list[bytes] = []
            try:
                messages = client.subscribe(
                    stream, partition=partition, start=StartAt.earliest(), stop=StopAt.latest()
                )
                async for message in messages:
                    found.append(message.value)  # noqa: PERF401 - what came before an error counts
            except ServerError as error:
                said.append(str(error))
            else:
                assert found == VALUES
            assert found == VALUES[: len(found)]
            ack = await client.publish(stream, b"next", partition=partition)
            assert ack is not None
            assert ack.offset == RECORDS
        try:
            assert await client.fetch_cursor("mine", "s", 0) == 3
        except ServerError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("damage", [remove, empty, cut, overwrite, replace_by_folder])
async def test_no_damage_to_a_file_loses_acked_messages_silently(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    whole = tmp_path / "whole"
    await fill_with_everything(whole)
    paths = [path.relative_to(whole) for path in sorted(whole.rglob("*"))]
    if damage is not remove:
        paths = [path for path in paths if (whole / path).is_file()]
    assert {path.name for path in paths} >= {"lock", "format", "journal"}
    assert {path.suffix for path in paths} >= {".log", ".index"}

    for number, path in enumerate(paths):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        damage(folder / path)
        caplog.clear()
        try:
            said = await acked_is_there_or_said_to_be_lost(folder)
        except (DataDirectoryError, OSError) as error:
            assert path.name in str(error)  # noqa: PT017 - some files can be spared
        else:
            spared = path.suffix == ".index" or path.name == "lock" or not said
            assert spared or "are lost" in "".join(said), path
            had_content = (whole / path).is_file() and (whole / path).stat().st_size
            if had_content and damage in (cut, overwrite) and path.suffix in (".log", ".index"):
                assert path.name in caplog.text + "".join(said)
        shutil.rmtree(folder)
