"""CRC-32C (Castagnoli), the checksum of envelopes: the standard library only has the other CRC-32.

Computed by google-crc32c (the extra `[crc32c]`) if that is installed with its extension module.
Otherwise by a table lookup per byte, so about 8 MB/s: enough for envelopes, whose checksum is
optional.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # bits reversed, as the register shifts to the right


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(_table_entry(byte) for byte in range(256))


def crc32c_by_table(data: bytes) -> int:
    """Compute the checksum of `data` as an unsigned 32-bit number, in Python."""
    register = 0xFFFFFFFF
    for byte in data:
        register = (register >> 8) ^ _TABLE[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


def _choose() -> Callable[[bytes], int]:
    with warnings.catch_warnings(action="ignore"):  # it warns where it has no extension module
        try:
            package = importlib.import_module("google_crc32c")
        except ImportError:
            return crc32c_by_table
    return package.value if package.implementation == "c" else crc32c_by_table


crc32c: Final = _choose()
"""Computes the checksum of bytes as an unsigned 32-bit number."""
