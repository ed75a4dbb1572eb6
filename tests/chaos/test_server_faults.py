"""The scripts that show the server's own faults can be run, and their bytes are what we send."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

import pytest

from chaos.server_faults.raw import ALL, data_of, decode, encode, number
from liftbridge_aio.wire import proto

FOLDER: Final = Path(__file__).parent / "server_faults"
NOT_SCRIPTS: Final = {"raw", "nodes", "verdict"}
SCRIPTS: Final = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_run_and_is_listed(script: str) -> None:
    module = importlib.import_module(f"chaos.server_faults.{script}")
    assert callable(module.one_try)
    assert module.TRIES > 0
    assert f"`{script}.py`" in (FOLDER / "README.md").read_text()


def test_its_requests_are_the_codecs() -> None:
    assert encode((2, b"value"), (3, "stream"), (7, b"id"), (8, ALL), (9, -1)) == bytes(
        proto.PublishRequest(
            value=b"value",
            stream="stream",
            correlation_id="id",
            ack_policy=proto.AckPolicy.ALL,
            expected_offset=-1,
        )
    )
    limits = proto.NullableInt64(value=300)
    assert encode((1, "s"), (2, "s"), (4, 3), (5, 1)) + encode((7, encode((1, 300)))) == bytes(
        proto.CreateStreamRequest(
            subject="s",
            name="s",
            replication_factor=3,
            partitions=1,
            retention_max_messages=limits,
        )
    )


def test_it_reads_replies_as_the_codec_does() -> None:
    fields = decode(bytes(proto.Message(offset=2**40, value=b"value" * 100)))
    assert (number(fields, 1), data_of(fields, 3)) == (2**40, b"value" * 100)
    assert number(decode(bytes(proto.FetchCursorResponse(offset=-1))), 1) == -1
