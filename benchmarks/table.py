"""Table of a case for the terminal: columns and rows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .cases import Kind
from .summary import CaseSummary, ClientSummary, Spread

Format = Callable[[float], str]

TIMES: Final = "\N{MULTIPLICATION SIGN}"
TO: Final = "\N{EN DASH}"

_PERCENTILES: Final = ("p50", "p99", "p999")


def rate(value: float) -> str:
    """Messages per second, in thousands where that is precise enough."""
    return f"{value / 1000:.1f} k" if value >= 10_000 else f"{value:,.0f}"


def small(value: float) -> str:
    """A figure of three digits, more or less."""
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.2f} {TIMES}" if value < 10 else f"{value:.1f} {TIMES}"


def columns(summary: CaseSummary) -> tuple[str, ...]:
    """The heads of the columns."""
    case = summary.case
    rates = ("Client", "msg/s", f"against {summary.reference}")
    cpu = ("client CPU µs", "server CPU µs")
    if case.kind is Kind.LATENCY:
        return (
            "Client",
            *(f"ack {name} µs" for name in _PERCENTILES),
            *(f"delivery {name} µs" for name in _PERCENTILES),
            *cpu,
        )
    if case.one_at_a_time:
        return (*rates, *(f"{name} µs" for name in _PERCENTILES), *cpu)
    return (*rates, *cpu)


def rows(summary: CaseSummary) -> list[tuple[str, ...]]:
    """A row for each client that was measured, in their order."""
    return [_row(summary, client) for client in summary.clients if client.figures]


def remarks(summary: CaseSummary) -> list[str]:
    """Return remarks on clients that were not measured as asked."""
    said = [f"{client.client}: {client.remark}" for client in summary.clients if client.remark]
    if summary.case.kind is not Kind.LATENCY:
        said += [
            f"{client.client}: {client.messages:,} messages a run instead of"
            f" {summary.case.messages:,}, as it is slow"
            for client in summary.clients
            if client.figures and client.messages < summary.case.messages
        ]
    return said


def _row(summary: CaseSummary, client: ClientSummary) -> tuple[str, ...]:
    def cell(key: str, form: Format) -> str:
        found = client.figures.get(key)
        return "" if found is None else with_spread(found, form)

    cpu = [
        cell("client_cpu_seconds_per_million", small),
        cell("server_cpu_seconds_per_million", small),
    ]
    if summary.case.kind is Kind.LATENCY:
        latencies = [
            cell(f"{what}_latency_{name}", small)
            for what in ("ack", "delivery")
            for name in _PERCENTILES
        ]
        return (client.client, *latencies, *cpu)
    ratio = "" if client.ratio is None else with_spread(client.ratio, times)
    cells = [client.client, cell("messages_per_second", rate), ratio]
    if summary.case.one_at_a_time:
        cells += [cell(f"latency_{name}", small) for name in _PERCENTILES]
    return (*cells, *cpu)


def with_spread(spread: Spread, form: Format) -> str:
    """A figure: the median, and least and most where they differ from it."""
    least, median, most = (form(value) for value in (spread.least, spread.median, spread.most))
    if least == median == most:
        return median
    return f"{median} ({least}{TO}{most})"
