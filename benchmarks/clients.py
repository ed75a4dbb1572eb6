"""The clients that are compared: names, and the command that runs the program of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .own_programs import module
from .summary import REFERENCE

OURS: Final = "ours"
_OUR_PROGRAM: Final = "benchmarks.peers.ours"

_VARIANTS: Final = {
    OURS: (),
    "ours-batches": ("--api", "batches"),
    "ours-uvloop": ("--uvloop",),
    "ours-plain": ("--path", "plain"),
}
"""Our client in its variants, with the flags of our program."""

PEERS: Final = (REFERENCE, "python-liftbridge", "gufo-liftbridge", "grpcio")
CLIENTS: Final = (*_VARIANTS, *PEERS)
USUAL: Final = (OURS, *PEERS)


class UnknownClient(ValueError):
    """There is no client of that name; the text says which there are."""


def commands(names: tuple[str, ...]) -> dict[str, Callable[[list[str]], list[str]]]:
    """For each client, what makes a whole command of the words of a case.

    Builds what has to be built, which takes a while the first time.

    Raises:
        UnknownClient: There is no client of that name.
    """
    for name in names:
        if name not in CLIENTS:
            known = ", ".join(CLIENTS)
            message = f"there is no client {name!r}; there are {known}"
            raise UnknownClient(message)
    return {name: _command(name) for name in names}


def _command(name: str) -> Callable[[list[str]], list[str]]:
    flags = _VARIANTS.get(name, ())
    prefix = module(_OUR_PROGRAM) if name in _VARIANTS else _prepare(name)

    def whole(words: list[str]) -> list[str]:
        return [*prefix, *words, *flags]

    return whole


def _prepare(peer: str) -> Sequence[str]:
    from .peers.environments import prepare  # noqa: PLC0415 - ours needs no environment

    return prepare(peer)
