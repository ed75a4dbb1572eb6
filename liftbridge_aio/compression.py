"""Compressed values: a header of the message names the encoding.

The header is `X-Msg-Encoding`, which gufo_liftbridge uses as well; its value is the name of the
encoding in lower case. Written here: `gzip`, `zlib`, `zstd`. Read: these and `lzma`. Of them
gufo_liftbridge (0.2.0) knows `zlib` and `lzma`. Messages without the header are not compressed.

Whoever may publish can send a small message that decompresses to gigabytes, so decompressing is
bounded; and what follows the end of the compressed data is refused.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from ._core.arguments import INT64_MAX, check_whole_number
from .errors import MalformedData

if TYPE_CHECKING:
    from types import ModuleType

ENCODING_HEADER: Final = "X-Msg-Encoding"
"""The header that names the encoding of a value."""

DEFAULT_MIN_BYTES: Final = 512
"""Shorter values gain little."""

_ZLIB_WINDOW: Final = zlib.MAX_WBITS
_GZIP_WINDOW: Final = zlib.MAX_WBITS + 16  # zlib's way to say that it is gzip
_LZMA_MEMORY: Final = 128 * 2**20  # the highest preset needs 65 MiB
_ZSTD_WINDOW_LOG: Final = 23  # 8 MiB: what RFC 9659 lets a decoder be asked for
_ZSTD_LEVELS: Final = (-(2**17), 22)


class Compression(Protocol):
    """A way to compress values; one of these, or the user's own."""

    @property
    def encoding(self) -> str:
        """Value of the header of a value that is compressed this way."""
        ...

    @property
    def min_bytes(self) -> int:
        """Shorter values are left as they are."""
        ...

    def compress(self, data: bytes, /) -> bytes:
        """Return the compressed data."""
        ...

    def decompress(self, data: bytes, max_bytes: int, /) -> bytes:
        """Return the decompressed data.

        Raises:
            MalformedData: it is damaged, or more than `max_bytes`; any other exception of a user's
                own compression means the same.
        """
        ...


@dataclass(frozen=True, slots=True)
class Gzip:
    """gzip (RFC 1952), which everything can read. A checksum protects the value."""

    level: int = 6
    """From 1, quick, to 9, small."""
    min_bytes: int = DEFAULT_MIN_BYTES
    encoding: ClassVar[str] = "gzip"

    def __post_init__(self) -> None:
        """Check the level.

        Raises:
            InvalidRequest: there is no such level, or `min_bytes` is negative.
        """
        _check(self.level, 1, 9, self.min_bytes)

    def compress(self, data: bytes, /) -> bytes:
        """Return the compressed data; the same data gives the same bytes."""
        return zlib.compress(data, self.level, _GZIP_WINDOW)

    def decompress(self, data: bytes, max_bytes: int, /) -> bytes:
        """Return the decompressed data.

        Raises:
            MalformedData: it is damaged, or more than `max_bytes`.
        """
        return _inflate(data, max_bytes, _GZIP_WINDOW)


@dataclass(frozen=True, slots=True)
class Zlib:
    """zlib (RFC 1950), which gufo_liftbridge reads. A checksum protects the value."""

    level: int = 6
    """From 1, quick, to 9, small."""
    min_bytes: int = DEFAULT_MIN_BYTES
    encoding: ClassVar[str] = "zlib"

    def __post_init__(self) -> None:
        """Check the level.

        Raises:
            InvalidRequest: there is no such level, or `min_bytes` is negative.
        """
        _check(self.level, 1, 9, self.min_bytes)

    def compress(self, data: bytes, /) -> bytes:
        """Return the compressed data."""
        return zlib.compress(data, self.level)

    def decompress(self, data: bytes, max_bytes: int, /) -> bytes:
        """Return the decompressed data.

        Raises:
            MalformedData: it is damaged, or more than `max_bytes`.
        """
        return _inflate(data, max_bytes, _ZLIB_WINDOW)


@dataclass(frozen=True, slots=True)
class Zstd:
    """Zstandard (RFC 8878): smaller than gzip, and quicker. A checksum protects the value.

    Python has it from 3.14 on; before, it needs the extra `zstd`.

    Raises:
        ImportError: the extra is not installed.
    """

    level: int = 3
    """From 1, quick, to 22, small; negative levels are quicker still."""
    min_bytes: int = DEFAULT_MIN_BYTES
    encoding: ClassVar[str] = "zstd"

    def __post_init__(self) -> None:
        """Check the level, and that this Python has Zstandard.

        Raises:
            InvalidRequest: there is no such level, or `min_bytes` is negative.
            ImportError: the extra is not installed.
        """
        _check(self.level, *_ZSTD_LEVELS, self.min_bytes)
        _zstd()

    def compress(self, data: bytes, /) -> bytes:
        """Return the compressed data."""
        compressor = _zstd_compressor(self.level)
        compressed: bytes = compressor.compress(data, compressor.FLUSH_FRAME)
        return compressed

    def decompress(self, data: bytes, max_bytes: int, /) -> bytes:
        """Return the decompressed data.

        Raises:
            MalformedData: it is damaged, more than `max_bytes`, or needs a window of more than
                8 MiB and `max_bytes`.
        """
        return _decompress_zstd(data, max_bytes)


def _check(level: int, lowest: int, highest: int, min_bytes: int) -> None:
    check_whole_number(level, "the level of a compression", lowest, highest)
    check_whole_number(min_bytes, "min_bytes", 0, INT64_MAX)


class _Decompressor(Protocol):
    """Interface shared by Python's compression modules."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def _inflate(data: bytes, max_bytes: int, window: int) -> bytes:
    decompressor = zlib.decompressobj(window)
    try:
        value = decompressor.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise MalformedData(str(error)) from error
    return _whole(value, max_bytes, decompressor)


def _decompress_lzma(data: bytes, max_bytes: int) -> bytes:
    import lzma  # noqa: PLC0415 - seldom needed, and not in every Python

    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, _LZMA_MEMORY)
    try:
        value = decompressor.decompress(data, max_bytes + 1)
    except lzma.LZMAError as error:
        raise MalformedData(str(error)) from error
    return _whole(value, max_bytes, decompressor)


def _decompress_zstd(data: bytes, max_bytes: int) -> bytes:
    zstd = _zstd()
    # A value that was compressed in one go has a window of its own size.
    parameter = zstd.DecompressionParameter.window_log_max
    _, highest = parameter.bounds()
    window_log = min(max(_ZSTD_WINDOW_LOG, max_bytes.bit_length()), highest)
    decompressor = zstd.ZstdDecompressor(options={parameter: window_log})
    try:
        value = decompressor.decompress(data, max_bytes + 1)
    except zstd.ZstdError as error:
        raise MalformedData(str(error)) from error
    return _whole(value, max_bytes, decompressor)


def _whole(value: bytes, max_bytes: int, decompressor: _Decompressor) -> bytes:
    """Return a value if it is all that there is."""
    if len(value) > max_bytes:
        raise MalformedData(f"it decompresses to more than max_decompressed_bytes ({max_bytes})")
    if not decompressor.eof:
        raise MalformedData("the compressed data is cut off")
    if decompressor.unused_data:
        raise MalformedData(f"{len(decompressor.unused_data)} bytes follow the compressed data")
    return value


@cache
def _zstd_compressor(level: int) -> Any:
    # Making one takes twice as long as compressing two kilobytes. Threads may share it: a frame is
    # written by one call, and it lets one call in at a time.
    zstd = _zstd()
    parameter = zstd.CompressionParameter
    options = {parameter.compression_level: level, parameter.checksum_flag: 1}
    return zstd.ZstdCompressor(options=options)


def _zstd() -> ModuleType:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415 - imported where it is used
        else:
            from backports import zstd  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            "Zstandard needs Python 3.14, or: pip install 'liftbridge-aio[zstd]'"
        ) from error
    return zstd


DECOMPRESSORS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = MappingProxyType(
    {
        Gzip.encoding: Gzip().decompress,
        Zlib.encoding: Zlib().decompress,
        Zstd.encoding: _decompress_zstd,
        "lzma": _decompress_lzma,
    }
)
"""Decompressor of each encoding: takes the data and the size limit, as `Compression` does."""
