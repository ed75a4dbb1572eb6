"""Frames are found wherever the chunks of a stream are cut."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.testing.proxy.frames import PREFACE, FrameScanner, Part, Piece
from support.peers.http2_streams import chunks_of, client_streams, frame, frames, server_streams

SETTINGS: Final = 4

Tag = tuple[Part, int | None, int, int | None]


def tags(scanner: FrameScanner, chunks: list[bytes]) -> list[Tag]:
    """Return the tag that the scanner gives each byte."""
    found: list[Tag] = []
    for chunk in chunks:
        covered = 0
        for piece in scanner.scan(chunk):
            assert piece.start == covered < piece.stop
            covered = piece.stop
            found += [
                (piece.part, piece.frame_type, piece.offset + n, piece.frame_bytes)
                for n in range(piece.stop - piece.start)
            ]
        assert covered == len(chunk)
    return found


def expected(parts: list[bytes], *, preface: bool) -> list[Tag]:
    found: list[Tag] = []
    if preface:
        found += [(Part.PREFACE, None, n, None) for n in range(len(PREFACE))]
    for each in parts:
        size, kind = len(each), each[3]
        found += [(Part.LENGTH, None, n, None) for n in range(4)]
        found += [(Part.FLAGS, kind, n, size) for n in range(4, 9)]
        found += [(Part.PAYLOAD, kind, n, size) for n in range(9, size)]
    return found


@given(frames(), st.booleans(), st.data())
def test_every_byte_is_told_its_place(
    parts: list[bytes], preface: bool, data: st.DataObject
) -> None:
    stream = PREFACE * preface + b"".join(parts)
    chunks = data.draw(chunks_of(stream))
    found = tags(FrameScanner(preface=preface), chunks)
    assert found == expected(parts, preface=preface)


@given(st.one_of(server_streams(), client_streams(), st.binary()), st.booleans(), st.data())
def test_skipping_is_scanning_in_silence(stream: bytes, preface: bool, data: st.DataObject) -> None:
    scanning, skipping = FrameScanner(preface=preface), FrameScanner(preface=preface)
    for chunk in data.draw(chunks_of(stream)):
        list(scanning.scan(chunk))
        skipping.skip(chunk)
        assert vars(skipping) == vars(scanning)


@given(st.binary(max_size=60), st.integers(0, len(PREFACE) - 1), st.data())
def test_what_is_not_http2_has_no_frames(tail: bytes, wrong: int, data: st.DataObject) -> None:
    """A wrong byte of the preface, and a first frame that is not SETTINGS."""
    stream = PREFACE[:wrong] + bytes([PREFACE[wrong] ^ 1]) + tail
    found = tags(FrameScanner(preface=True), data.draw(chunks_of(stream)))
    parts = [part for part, *_ in found]
    assert parts == [Part.PREFACE] * wrong + [Part.UNKNOWN] * (1 + len(tail))

    stream = frame(SETTINGS + 1, b"") + tail
    found = tags(FrameScanner(preface=False), data.draw(chunks_of(stream)))
    assert [part for part, *_ in found] == [Part.LENGTH] * 4 + [Part.UNKNOWN] * (5 + len(tail))
    assert all(kind is None and size is None for _, kind, _, size in found)


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_536, 2**24 - 1])
def test_lengths_have_24_bits(length: int) -> None:
    scanner = FrameScanner(preface=False)
    head = frame(SETTINGS, b"") + length.to_bytes(3, "big") + bytes(6)
    last = list(scanner.scan(head))[-1]
    assert last == Piece(Part.FLAGS, 13, 18, 4, frame_type=0, frame_bytes=9 + length)
