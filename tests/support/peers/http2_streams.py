"""Streams of HTTP/2 frames for tests, and ways to cut them into chunks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from liftbridge_aio.testing.proxy.frames import PREFACE

SETTINGS = 4


def frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def frames() -> st.SearchStrategy[list[bytes]]:
    """SETTINGS and more."""
    any_frame = st.builds(frame, st.integers(0, 10), st.binary(max_size=40))
    return st.lists(any_frame, max_size=8).map(lambda more: [frame(SETTINGS, b""), *more])


def server_streams() -> st.SearchStrategy[bytes]:
    return frames().map(b"".join)


def client_streams() -> st.SearchStrategy[bytes]:
    return server_streams().map(lambda stream: PREFACE + stream)


@st.composite
def chunks_of(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """The stream, cut anywhere; some chunks may be empty."""
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=8))
    edges = [0, *sorted(cuts), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]
