"""How large a message is on its way through NATS, which is what servers limit.

Computed instead of encoded: encoding every message once more just to measure it would double the
cost of a publish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_ENVELOPE_HEADER: Final = 8
_TAG: Final = 1  # every field of a Message has a number below 16


def envelope_size(
    blobs: Iterable[bytes],
    texts: Iterable[str],
    numbers: Iterable[int],
    headers: Mapping[str, bytes],
) -> int:
    """Return the bytes of an envelope around a `Message` with these fields.

    Empty fields and zeros are not on the wire and count nothing.
    """
    size = _ENVELOPE_HEADER
    for blob in blobs:
        if blob:
            size += _field_size(len(blob))
    for text in texts:
        if text:
            size += _field_size(len(text.encode()))
    for number in numbers:
        if number:
            size += _TAG + _varint_size(number)
    for name, value in headers.items():
        size += _field_size(_field_size(len(name.encode())) + _field_size(len(value)))
    return size


def _field_size(length: int) -> int:
    return _TAG + _varint_size(length) + length


def _varint_size(number: int) -> int:
    return 10 if number < 0 else max(1, -(-number.bit_length() // 7))
