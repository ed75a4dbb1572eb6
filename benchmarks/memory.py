"""The memory of our client where readers or servers are slow: what it holds, beside its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from .cases import Case, Kind
from .own_programs import figures_of
from .programs import fill
from .serving import RunningServer, running
from .streams import create_stream, delete_stream

_PROGRAM: Final = "benchmarks.peers.ours_memory"
_TIMEOUT: Final = 200.0
_MIB: Final = 2**20
_VALUE: Final = 4096
BUDGET: Final = 64 * _MIB
"""Bytes that all subscriptions of a client together may hold, by default."""
_QUICK_DIVISOR: Final = 64


@dataclass(frozen=True, slots=True)
class Scenario:
    """A state in which clients grow where nobody has thought of it.

    Attributes:
        name: As our program knows it.
        title: The same for people.
        stored: Bytes in the stream before it begins.
        limit: Bytes that it may add; None: there is no limit set.
        limit_each: Bytes that each of many may add beside that.
    """

    name: str
    title: str
    stored: int = 0
    limit: int | None = None
    limit_each: int | None = None

    @property
    def most(self) -> str:
        """The limit as the table shows it."""
        parts = []
        if self.limit is not None:
            parts.append(mebibytes(self.limit))
        if self.limit_each is not None:
            parts.append(f"{self.limit_each / 1024:g} KiB each")
        return " + ".join(parts)


SCENARIOS: Final = (
    Scenario("reader-behind", "a reader 1 GiB behind", 1024 * _MIB, limit=64 * _MIB),
    Scenario("publishes-waiting", "100,000 publishes, window 1,000"),
    Scenario("subscriptions-idle", "1,000 subscriptions, idle", limit_each=64 * 1024),
    # The client's budget for what is unread, and what the subscriptions cost when they are idle.
    Scenario(
        *("subscriptions-busy", "1,000 subscriptions, busy and unread", 128 * _MIB),
        limit=64 * _MIB,
        limit_each=64 * 1024,
    ),
)


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that our client held in a scenario.

    Attributes:
        scenario: Which.
        added: Bytes above those of an idle client, at most.
        items: Of how many publishes or subscriptions; 1 where there is one.
        starved: Subscriptions that were not served when they were read at last.
        buffered: Bytes that subscriptions say they hold unread.
    """

    scenario: Scenario
    added: int
    items: int
    starved: int
    buffered: int

    @property
    def within_limits(self) -> bool:
        """True if it stays within its limits."""
        scenario = self.scenario
        if scenario.limit is None and scenario.limit_each is None:
            return not self.starved
        limit = (scenario.limit or 0) + (scenario.limit_each or 0) * self.items
        return not self.starved and self.added <= limit and self.buffered <= BUDGET

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        return {
            "scenario": self.scenario.name,
            "added_bytes": self.added,
            "items": self.items,
            "starved": self.starved,
            "buffered_bytes": self.buffered,
            "limit_bytes": self.scenario.limit,
            "limit_bytes_each": self.scenario.limit_each,
            "within_limits": self.within_limits,
        }


COLUMNS: Final = ("memory of our client", "added", "each", "limit", "")


def memory_row(held: Held) -> tuple[str, ...]:
    """A row of the table."""
    verdict = "" if not held.scenario.most else "holds" if held.within_limits else "missed"
    starved = f", {held.starved} starved" if held.starved else ""
    return (
        held.scenario.title,
        mebibytes(held.added),
        f"{held.added / held.items / 1024:.1f} KiB" if held.items > 1 else "",
        held.scenario.most,
        verdict + starved,
    )


def mebibytes(count: float) -> str:
    """Bytes as people read them."""
    return f"{count / _MIB:.1f} MiB"


def measure_memory(
    server: str, filler: Callable[[list[str]], list[str]], tell: Callable[[str], None], quick: bool
) -> Iterator[Held]:
    """Measure every scenario, each in a process of its own and on a stream of its own.

    Args:
        server: `real`, `embedded`, or the path of a binary.
        filler: The command of a client that publishes, and fast.
        tell: Is told how far it has come.
        quick: With little in the streams.

    Raises:
        ProgramFailed: Our program did not come to its end.
        FillFailed: There is nothing to read.
    """
    with running(server, 1) as found:
        for scenario in SCENARIOS:
            tell(f"memory: {scenario.title}")
            yield _measure(scenario, found, filler, quick)


def _measure(
    scenario: Scenario,
    server: RunningServer,
    filler: Callable[[list[str]], list[str]],
    quick: bool,
) -> Held:
    address = create_stream(server.addresses, scenario.name, 1, 1)
    messages = scenario.stored // _VALUE // (_QUICK_DIVISOR if quick else 1)
    if messages:
        fill(filler, Case(Kind.CONSUME, messages, _VALUE), address, scenario.name)
    figures = figures_of(
        *(_PROGRAM, scenario.name, "--servers", address, "--stream", scenario.name),
        *("--messages", str(messages)),
        timeout=_TIMEOUT,
    )
    delete_stream(server.addresses, scenario.name)
    return Held(
        scenario,
        figures["added"],
        figures.get("items", 1),
        figures.get("starved", 0),
        figures.get("buffered", 0),
    )
