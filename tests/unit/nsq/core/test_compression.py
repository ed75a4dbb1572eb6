"""Compressed connections: what goes in comes out, wherever the network cuts it."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.nsq.core import compression
from liftbridge_aio.nsq.core.compression import Codec
from liftbridge_aio.nsq.errors import ProtocolError


def codec(name: str) -> Codec:
    return compression.snappy() if name == "snappy" else compression.deflate(6)


@pytest.mark.parametrize("name", ["deflate", "snappy"])
@given(st.lists(st.binary(min_size=1, max_size=200), max_size=6), st.integers(1, 40))
def test_what_goes_in_comes_out(name: str, writes: list[bytes], piece: int) -> None:
    sender, receiver = codec(name), codec(name)
    stream = b"".join(sender.compress(write) for write in writes)
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    assert b"".join(receiver.decompress(each) for each in pieces) == b"".join(writes)


@pytest.mark.parametrize("name", ["deflate", "snappy"])
def test_each_write_can_be_read_at_once(name: str) -> None:
    sender, receiver = codec(name), codec(name)
    for write in (b"FIN 1\n", b"a" * 100_000, b"NOP\n"):
        assert receiver.decompress(sender.compress(write)) == write


def test_deflate_has_no_header() -> None:
    data = compression.deflate(6).compress(b"NOP\n")
    assert zlib.decompressobj(wbits=-15).decompress(data) == b"NOP\n"


@pytest.mark.parametrize("name", ["deflate", "snappy"])
def test_damage_is_told(name: str) -> None:
    with pytest.raises(ProtocolError, match="is damaged"):
        codec(name).decompress(b"\xff\x06\x00\x00sNaPpY\x00\x06\x00\x00damage damage")
