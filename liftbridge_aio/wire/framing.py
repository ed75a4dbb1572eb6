"""gRPC's framing of a message: five bytes before it, a flag for compression and its length."""

from __future__ import annotations

from typing import Final

PREFIX_BYTES: Final = 5
"""A flag, which is 0 for a message that is not compressed, and four bytes of length."""


def framed(message: bytes) -> bytes:
    """Prepend the gRPC prefix to an uncompressed message."""
    return len(message).to_bytes(PREFIX_BYTES, "big") + message


def unframed(frame: bytes) -> bytes:
    """Remove the gRPC prefix from a frame."""
    return frame[PREFIX_BYTES:]
