"""How a consumer group grows with its members, partitions and brokers.

Groups are simulated (`scale_point`), as a thousand members on real sockets need more than one
machine. The memory of one client is measured on real sockets (`scale_memory`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from .own_programs import ProgramFailed, figures_of
from .scale_memory import KINDS
from .serving import EMBEDDED, running

_TIMEOUT: Final = 3600.0
_NEEDED: Final = (3, 12)
_PHASES: Final = ("start", "death", "join")


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster and of the group that reads from it."""

    members: int = 10
    partitions: int = 100
    brokers: int = 10

    def __str__(self) -> str:
        return f"{self.members:,} members, {self.partitions:,} partitions, {self.brokers} brokers"


AXES: Final = {
    "members": tuple(Size(members=count) for count in (10, 100, 1000)),
    "partitions": tuple(Size(partitions=count) for count in (100, 1000, 10_000)),
    "brokers": tuple(Size(brokers=count) for count in (3, 10, 100)),
}
SIZES: Final = tuple(dict.fromkeys(size for sizes in AXES.values() for size in sizes))
LARGEST: Final = Size(1000, 10_000, 100)
USUAL: Final = tuple(size for size in SIZES if size.members < 1000 and size.partitions < 10_000)
"""The sizes that take less than a minute of a processor each; the others take many."""
QUICK: Final = (Size(3, 20, 3),)
HELD: Final[tuple[int, ...]] = (100, 1000, 10_000)
"""Partitions of one client whose memory is measured."""


def measure_scale(sizes: Sequence[Size], tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Simulate each size, in a process of its own.

    Raises:
        ProgramFailed: Python is too old for the simulation, or a size could not be simulated.
    """
    if sys.version_info < _NEEDED:
        raise ProgramFailed("the simulation needs Python 3.12 or later: `nox -s scale` finds one")
    for size in sizes:
        tell(f"scale: {size}")
        words = [word for name, count in asdict(size).items() for word in (f"--{name}", str(count))]
        found = figures_of("benchmarks.scale_point", *words, timeout=_TIMEOUT)
        yield {**asdict(size), **found}


def measure_held(counts: Sequence[int], tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Measure the memory of a client for each number of partitions, on an embedded broker.

    Raises:
        ProgramFailed: a client did not come to its end.
    """
    for count in counts:
        for kind in KINDS:
            tell(f"scale: memory of a {kind} of {count:,} partitions")
            with running(EMBEDDED, 1) as server:
                words = (kind, "--servers", server.addresses[0], "--partitions", str(count))
                found = figures_of("benchmarks.scale_memory", *words, timeout=_TIMEOUT)
            yield {"kind": kind, "partitions": count, **found}


COLUMNS: Final = ("scale", "phase", "simulated s", "calls", "metadata", "MB of metadata")


def scale_rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The rows of a size in the table."""
    size = Size(found["members"], found["partitions"], found["brokers"])
    for phase in (*_PHASES, "idle"):
        figures = found[phase]
        yield (
            str(size),
            phase,
            f"{figures['seconds']:.1f}",
            f"{figures['calls']:,}",
            f"{figures['by_procedure'].get('FetchMetadata', 0):,}",
            f"{figures['metadata_bytes'] / 1e6:.1f}",
        )


HELD_COLUMNS: Final = ("memory of a client", "partitions", "MiB", "KiB each", "at most")


def held_row(found: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table of memory."""
    count, held, most = found["partitions"], found["held_bytes"], found["most_bytes"]
    each = (f"{size / count / 1024:.1f}" for size in (held, most))
    return found["kind"], f"{count:,}", f"{held / 2**20:.1f}", *each
