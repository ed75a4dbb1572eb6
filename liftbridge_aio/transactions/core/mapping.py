"""Choose the journal of a message by its key, in the ways of Gazette.

A mapping is a function from a message to its journal. It is made of a key function and of one that
returns the journals of now, whose list may change: rendezvous then moves the fewest keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.errors import NoJournals

M = TypeVar("M")

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_KEPT_HASHES: Final = 65_536


class Journal(NamedTuple):
    """A log that messages are appended to, and how they are framed there."""

    name: str
    content_type: str
    """The content type of its framing, see `framing_for`."""


KeyFunction: TypeAlias = Callable[[M], bytes]
"""Returns the key of a message; messages with one key get one journal."""
JournalsFunction: TypeAlias = Callable[[], Sequence[Journal]]
"""Returns the journals to choose from, in a stable order."""
MappingFunction: TypeAlias = Callable[[M], Journal]


def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash, which Gazette maps by."""
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def modulo_mapping(key: KeyFunction[M], journals: JournalsFunction) -> MappingFunction[M]:
    """Return a mapping by the remainder of the key's hash; another number moves most keys.

    The mapping raises `NoJournals` if there are none.
    """

    def mapping(message: M) -> Journal:
        among = _some(journals())
        return among[fnv1a(key(message)) % len(among)]

    return mapping


def rendezvous_mapping(
    key: KeyFunction[M],
    journals: JournalsFunction,
    *,
    compat: Literal["gazette"] | None = None,
) -> MappingFunction[M]:
    """Return a mapping by the highest weight of key and name (rendezvous hashing).

    Only the keys of a journal that goes move, and only to a journal that comes. The mapping raises
    `NoJournals` if there are none.

    Args:
        key: returns the key of a message.
        journals: returns the journals to choose from.
        compat: "gazette" for its weight, the hash of the key XOR that of the name. It agrees with
            writers in Go and spreads keys badly: with ten journals named `part-000` to `part-009`
            one gets half of the keys. By default weights are mixed well.

    Raises:
        InvalidRequest: compat is anything else.
    """
    if compat not in {None, "gazette"}:
        raise InvalidRequest(f"compat is 'gazette' or None, not {compat!r}")
    weigh = _xor_weights if compat else _mixed_weights

    def mapping(message: M) -> Journal:
        among = _some(journals())
        weights = weigh(key(message), among)
        return among[weights.index(max(weights))]  # the first of equals

    return mapping


def random_mapping(
    journals: JournalsFunction, random_below: Callable[[int], int]
) -> Callable[[object], Journal]:
    """Return a mapping to any journal.

    The mapping raises `NoJournals` if there are none.

    Args:
        journals: returns the journals to choose from.
        random_below: returns a random number from 0 to below its argument, such as
            `random.randrange`.
    """

    def mapping(_: object) -> Journal:
        among = _some(journals())
        return among[random_below(len(among))]

    return mapping


def _some(journals: Sequence[Journal]) -> Sequence[Journal]:
    if not journals:
        raise NoJournals("there is no journal to map the message to")
    return journals


def _xor_weights(key: bytes, journals: Sequence[Journal]) -> list[int]:
    hashed = fnv1a(key)
    return [hashed ^ _name_hash(journal.name) for journal in journals]


def _mixed_weights(key: bytes, journals: Sequence[Journal]) -> list[int]:
    weights = []
    begun = hashlib.blake2b(key, digest_size=8)
    for journal in journals:
        hashed = begun.copy()
        hashed.update(journal.name.encode())
        weights.append(int.from_bytes(hashed.digest()))
    return weights


@lru_cache(_KEPT_HASHES)
def _name_hash(name: str) -> int:
    return fnv1a(name.encode())
