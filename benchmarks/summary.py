"""Runs put together: least, median and most of each figure, and ratios between clients. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from .cases import Case
from .outcome import Outcome, Unsupported

OURS: Final = "ours"
"""Our client."""
REFERENCE: Final = "go-liftbridge"
"""The client of Liftbridge that the others are compared with."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that came to nothing; the text says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A run: what the client said, and what the server used meanwhile.

    Attributes:
        outcome: What the program said.
        server_cpu_seconds: Processor time of all processes of the server; None if unknown.
        server_messages: The messages that passed through the server for that.
    """

    outcome: Outcome
    server_cpu_seconds: float | None
    server_messages: int


Run = Measured | Unsupported | Failed


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, median and most of a figure over the rounds."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(min(values), statistics.median(values), max(values))

    def as_json(self) -> dict[str, float]:
        """With the keys of the result files."""
        return {
            "min": significant(self.least),
            "median": significant(self.median),
            "max": significant(self.most),
        }


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """Summary of a client in all rounds of a case, without rounds that failed or lost messages.

    Attributes:
        client: Its name.
        runs: Every round, in order.
        version: Of the client; empty if no round came to its end.
        messages: Of a run.
        figures: By the keys of the result files; empty if no round came to its end.
        ratio: Of messages per second to those of the reference: the ratio of the medians, between
            the least and the most of the ratios within one round. None without the reference.
    """

    client: str
    runs: tuple[Run, ...]
    version: str
    messages: int
    figures: Mapping[str, Spread]
    ratio: Spread | None

    @property
    def remark(self) -> str:
        """Why there is nothing to see, or less than expected; empty if all went well."""
        unsupported = [run.reason for run in self.runs if isinstance(run, Unsupported)]
        failed = [reason for reason in map(failure, self.runs) if reason]
        if unsupported and len(unsupported) == len(self.runs):
            return f"cannot do this: {unsupported[0]}"
        if unsupported:
            return f"could not do {len(unsupported)} of {len(self.runs)} runs: {unsupported[0]}"
        if failed:
            return f"{len(failed)} of {len(self.runs)} runs failed: {failed[0]}"
        return ""

    @property
    def failed(self) -> bool:
        """True if a run failed, or lost messages."""
        return any(map(failure, self.runs))


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """A case with all its clients, and the name of the one that ratios are against."""

    case: Case
    clients: tuple[ClientSummary, ...]
    reference: str = REFERENCE

    def of(self, client: str) -> ClientSummary | None:
        """Return the summary of a client; None if it took no part."""
        return next((each for each in self.clients if each.client == client), None)


def summarize(
    case: Case, runs: Mapping[str, Sequence[Run]], reference: str = REFERENCE
) -> CaseSummary:
    """Put the rounds of a case together, the clients in the order given."""
    theirs = runs.get(reference, ())
    clients = tuple(_client(name, tuple(each), theirs) for name, each in runs.items())
    return CaseSummary(case, clients, reference)


def failure(run: Run) -> str:
    """Why a run does not count; empty if it does, and where a client cannot do it at all."""
    if isinstance(run, Failed):
        return run.reason
    if isinstance(run, Measured) and run.outcome.errors:
        return "messages were lost"
    return ""


def ratio_of(
    runs: Sequence[Run], reference: Sequence[Run], figure: str = "messages_per_second"
) -> Spread | None:
    """The ratio of the medians of a figure, between least and most of those within one round.

    None where one of the two was never measured.
    """
    ours, theirs = _values(runs, figure), _values(reference, figure)
    pairs = [
        _figures(run)[figure] / _figures(other)[figure]
        for run, other in zip(runs, reference, strict=False)
        if _counts(run)
        and _counts(other)
        and figure in _figures(run)
        and _figures(other).get(figure)
    ]
    if not pairs or not statistics.median(theirs):
        return None
    middle = statistics.median(ours) / statistics.median(theirs)
    return Spread(min(*pairs, middle), middle, max(*pairs, middle))


def significant(value: float, digits: int = 4) -> float:
    """Rounded to so many digits: more would pretend to a precision that is not there."""
    return float(f"{value:.{digits}g}")


def _client(name: str, runs: tuple[Run, ...], reference: Sequence[Run]) -> ClientSummary:
    measured = [run for run in runs if _counts(run)]
    keys = list(dict.fromkeys(key for run in measured for key in _figures(run)))
    return ClientSummary(
        client=name,
        runs=runs,
        version=measured[0].outcome.version if measured else "",
        messages=measured[0].outcome.messages if measured else 0,
        figures={key: Spread.of(_values(measured, key)) for key in keys},
        ratio=ratio_of(runs, reference),
    )


def _counts(run: Run) -> TypeGuard[Measured]:
    return isinstance(run, Measured) and not failure(run)


def _values(runs: Sequence[Run], figure: str) -> list[float]:
    return [
        figures[figure]
        for figures in (_figures(run) for run in runs if _counts(run))
        if figure in figures
    ]


def _figures(run: Measured) -> dict[str, float]:
    outcome = run.outcome
    figures = {
        "messages_per_second": outcome.messages_per_second,
        "client_cpu_seconds_per_million": outcome.client_cpu_seconds / outcome.messages * 1e6,
    }
    if run.server_cpu_seconds is not None:
        passed = outcome.messages + run.server_messages
        figures["server_cpu_seconds_per_million"] = run.server_cpu_seconds / passed * 1e6
    return figures | outcome.latencies


def run_as_json(run: Run) -> dict[str, Any]:
    """A single run as the result files have it."""
    if isinstance(run, Unsupported):
        return {"unsupported": run.reason}
    if isinstance(run, Failed):
        return {"failed": run.reason}
    return {
        "messages": run.outcome.messages,
        "seconds": significant(run.outcome.seconds),
        "errors": run.outcome.errors,
        **{key: significant(value) for key, value in _figures(run).items()},
    }
