"""Compression of a connection: a raw deflate stream, or framed snappy. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from liftbridge_aio.nsq.errors import ProtocolError


class Codec(NamedTuple):
    """The two directions of a compressed connection."""

    compress: Callable[[bytes], bytes]
    """Returns bytes that the server can decompress at once."""
    decompress: Callable[[bytes], bytes]
    """Returns what is complete.

    Raises:
        ProtocolError: the bytes are not compressed, or damaged.
    """


def deflate(level: int) -> Codec:
    """Compress as zlib does without its header, each write flushed."""
    compressor = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    decompressor = zlib.decompressobj(wbits=-zlib.MAX_WBITS)

    def compress(data: bytes) -> bytes:
        return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)

    def decompress(data: bytes) -> bytes:
        try:
            return decompressor.decompress(data)
        except zlib.error as error:
            raise ProtocolError(f"the deflate stream is damaged: {error}") from error

    return Codec(compress, decompress)


def load_snappy() -> Any:
    """Return the module `snappy`.

    Raises:
        ImportError: it is not installed; says how to install it.
    """
    try:
        import snappy  # type: ignore[import-untyped]  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ImportError(
            "snappy=True needs python-snappy: pip install 'liftbridge-aio[nsq]'"
        ) from error
    return snappy


def snappy() -> Codec:
    """Compress in snappy's framing format, each write flushed.

    Raises:
        ImportError: python-snappy is not installed.
    """
    library = load_snappy()
    compressor = library.StreamCompressor()
    decompressor = library.StreamDecompressor()

    def compress(data: bytes) -> bytes:
        return bytes(compressor.compress(data))

    def decompress(data: bytes) -> bytes:
        try:
            return bytes(decompressor.decompress(data))
        except Exception as error:
            raise ProtocolError(f"the snappy stream is damaged: {error}") from error

    return Codec(compress, decompress)
