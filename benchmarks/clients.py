"""The clients that are compared: names, and the command that runs the program of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .peers.environments import PEERS, prepare
from .programs import Command
from .summary import OURS, REFERENCE

USUAL: Final = (
    OURS,
    "ours-uvloop",
    REFERENCE,
    "python-liftbridge",
    "gufo-liftbridge",
    "grpcio",
)

_VARIANTS: Final[dict[str, tuple[str, ...]]] = {
    OURS: (),
    "ours-batches": ("--api", "batches"),
    "ours-uvloop": ("--uvloop",),
    "ours-plain": ("--path", "plain"),
}
"""Our client in its variants, with the flags of our program."""

CLIENTS: Final = (*_VARIANTS, *PEERS)


class UnknownClient(ValueError):
    """There is no client of that name; the text says which there are."""


def commands(names: Sequence[str]) -> dict[str, Command]:
    """For each client, what makes a whole command of the words of a case.

    Builds and installs what has to be, which takes a while the first time.

    Raises:
        UnknownClient: There is no client of that name.
        EnvironmentUnavailable: A client cannot be had here.
    """
    for name in names:
        if name not in CLIENTS:
            known = ", ".join(CLIENTS)
            raise UnknownClient(f"there is no client {name!r}; there are {known}")
    return {name: _command(name) for name in names}


def _command(name: str) -> Command:
    flags = _VARIANTS.get(name, ())
    prefix = prepare(OURS if name in _VARIANTS else name)

    def whole(words: list[str]) -> list[str]:
        return [*prefix, *words, *flags]

    return whole
