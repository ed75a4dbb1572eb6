"""Spoils bytes by chance, as fuzzers do: bits, numbers, pieces. Pure but for the chance given."""

from __future__ import annotations

import random
from typing import Final

_TELLING: Final = (b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff" * 9)
_MOST: Final = 4096


def mutated(chance: random.Random, samples: list[bytes]) -> bytes:
    """Return a sample that was changed in some places, or bytes of no sense at all."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.randrange(200))
    data = bytearray(chance.choice(samples))
    for _ in range(chance.randint(1, 6)):
        _change(chance, data, samples)
    return bytes(data[:_MOST])


def _change(chance: random.Random, data: bytearray, samples: list[bytes]) -> None:
    at = chance.randint(0, len(data))
    kind = chance.randrange(6)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = chance.randrange(256)
    elif kind == 2:
        del data[at : at + chance.randint(1, 8)]
    elif kind == 3:
        data[at:at] = chance.choice(_TELLING)
    elif kind == 4:
        end = chance.randint(at, len(data))
        data[at:at] = data[at:end]
    else:
        other = chance.choice(samples)
        data[at:] = other[chance.randint(0, len(other)) :]
