"""Compressed data comes back whole or not at all, and never larger than allowed."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liftbridge_aio import InvalidRequest, MalformedData, WrongType
from liftbridge_aio.compression import DECOMPRESSORS, Compression, Gzip, Zlib, Zstd, _zstd

KINDS: list[Compression] = [Gzip(), Zlib(), Zstd(), Gzip(1), Gzip(9), Zlib(9), Zstd(-7), Zstd(19)]
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": Gzip().compress,
    "zlib": Zlib().compress,
    "zstd": Zstd().compress,
    "lzma": lambda data: lzma.compress(data, preset=0),  # others take long
}
DATA = b"some data" * 50
WHOLE = {encoding: compress(DATA) for encoding, compress in COMPRESSORS.items()}
MANY = 2**40
each_encoding = pytest.mark.parametrize("encoding", COMPRESSORS)


def test_every_encoding_that_is_read_is_tested() -> None:
    assert set(COMPRESSORS) == set(DECOMPRESSORS)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@given(data=st.binary() | st.binary(min_size=1, max_size=9).map(lambda part: part * 1000))
def test_data_comes_back(kind: Compression, data: bytes) -> None:
    compressed = kind.compress(data)
    assert kind.decompress(compressed, len(data)) == data
    assert DECOMPRESSORS[kind.encoding](compressed, len(data)) == data


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_the_same_data_gives_the_same_bytes(kind: Compression) -> None:
    assert kind.compress(b"abc" * 99) == kind.compress(b"abc" * 99)


def test_others_read_what_is_written_and_the_other_way_round() -> None:
    data = b"to and fro " * 99
    assert gzip.decompress(Gzip().compress(data)) == data
    assert zlib.decompress(Zlib().compress(data)) == data
    assert Gzip().decompress(gzip.compress(data), 2**20) == data
    assert Zlib().decompress(zlib.compress(data), 2**20) == data


@each_encoding
@given(size=st.integers(1, 5000))
def test_one_byte_more_than_allowed_is_refused(encoding: str, size: int) -> None:
    compressed = COMPRESSORS[encoding](bytes(size))
    assert DECOMPRESSORS[encoding](compressed, size) == bytes(size)
    with pytest.raises(MalformedData, match=f"more than max_decompressed_bytes .{size - 1}"):
        DECOMPRESSORS[encoding](compressed, size - 1)


@each_encoding
def test_a_bomb_is_refused_without_being_unpacked(encoding: str) -> None:
    bomb = COMPRESSORS[encoding](bytes(12 * 2**20))
    assert len(bomb) < 2**17
    tracemalloc.start()
    try:
        with pytest.raises(MalformedData, match="more than"):
            DECOMPRESSORS[encoding](bomb, 2**18)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


def test_a_window_of_zstandard_is_bounded_too() -> None:
    # A frame whose header asks for a window of 2 GiB before anything comes (RFC 8878, 3.1.1.1).
    greedy = bytes.fromhex("28b52ffd") + bytes([0b0000_0000, 21 << 3]) + bytes(16)
    with pytest.raises(MalformedData, match=r"too much memory"):
        DECOMPRESSORS["zstd"](greedy, 2**20)


def test_zstandard_says_how_long_a_value_is_and_is_shared_by_threads() -> None:
    values = [bytes([number % 256]) * (number * 97) for number in range(400)]
    with ThreadPoolExecutor(4) as threads:
        compressed = list(threads.map(Zstd().compress, values))
    for value, data in zip(values, compressed, strict=True):
        assert _zstd().get_frame_info(data).decompressed_size == len(value)
        assert Zstd().decompress(data, len(value)) == value


def test_a_dictionary_of_lzma_is_bounded_too() -> None:
    # Byte 16 of an .xz file is the size of the dictionary, here 4 GiB; a checksum follows.
    greedy = bytearray(WHOLE["lzma"])
    end = 12 + 4 * greedy[12]
    greedy[16] = 40
    greedy[end : end + 4] = zlib.crc32(greedy[12:end]).to_bytes(4, "little")
    with pytest.raises(MalformedData, match=r"[Mm]emory"):
        DECOMPRESSORS["lzma"](bytes(greedy), 2**20)


def test_a_window_may_be_as_large_as_what_is_allowed() -> None:
    zstd = _zstd()
    parameter = zstd.CompressionParameter
    data = random.Random(7).randbytes(2**20) * 9
    options = {parameter.compression_level: 1, parameter.window_log: 24}
    compressed = zstd.compress(data, options=options)
    assert Zstd().decompress(compressed, len(data)) == data
    with pytest.raises(MalformedData, match="too much memory"):
        Zstd().decompress(compressed, 2**20)


@each_encoding
@given(cut=st.integers(1, 10**6))
@example(cut=1)
def test_what_is_cut_off_is_refused(encoding: str, cut: int) -> None:
    whole = WHOLE[encoding]
    with pytest.raises(MalformedData):
        DECOMPRESSORS[encoding](whole[: len(whole) - 1 - cut % len(whole)], MANY)


@each_encoding
@pytest.mark.parametrize("more", [b"\0", b"more", COMPRESSORS["gzip"](b"more")])
def test_what_follows_is_refused(encoding: str, more: bytes) -> None:
    whole = WHOLE[encoding]
    with pytest.raises(MalformedData, match=f"{len(more)} bytes follow"):
        DECOMPRESSORS[encoding](whole + more, MANY)


@each_encoding
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_never_gives_other_data(encoding: str, place: int, bit: int) -> None:
    damaged = bytearray(WHOLE[encoding])
    damaged[place % len(damaged)] ^= 1 << bit
    with contextlib.suppress(MalformedData):
        # Some bits say nothing of the data: a time, a system, a flag for text.
        assert DECOMPRESSORS[encoding](bytes(damaged), MANY) == DATA


@each_encoding
@given(noise=st.binary(max_size=200))
def test_noise_is_refused(encoding: str, noise: bytes) -> None:
    with pytest.raises(MalformedData):
        DECOMPRESSORS[encoding](noise, MANY)


@pytest.mark.parametrize("make", [Gzip, Zlib, Zstd])
def test_levels_that_there_are_not_are_refused(make: Callable[..., Compression]) -> None:
    with pytest.raises(InvalidRequest, match="level"):
        make(23)
    with pytest.raises(WrongType):
        make(1.5)
    with pytest.raises(InvalidRequest, match="min_bytes"):
        make(1, min_bytes=-1)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python has Zstandard itself")
def test_a_missing_zstandard_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = Zstd().compress(b"data")
    monkeypatch.setitem(sys.modules, "backports", None)
    with pytest.raises(ImportError, match=r"liftbridge-aio\[zstd\]"):
        Zstd()
    with pytest.raises(ImportError, match=r"liftbridge-aio\[zstd\]"):
        DECOMPRESSORS["zstd"](compressed, 2**20)
