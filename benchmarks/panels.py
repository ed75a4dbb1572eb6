"""Panels of the chart: the figure of a case, and the lines below. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .cases import Case, Kind
from .chart import Bar, Panel
from .summary import OURS, CaseSummary, ClientSummary
from .table import TIMES, rate, small

_RATE: Final = ("messages_per_second", "messages per second, more is better")
_ACKED: Final = ("latency_p50", "microseconds to the ack (p50), less is better")
_DELIVERED: Final = ("delivery_latency_p50", "microseconds to delivery (p50), less is better")


def panels(summaries: Iterable[CaseSummary]) -> list[Panel]:
    """A panel for each case, with the clients that could do it.

    One that could not keep up with a rate is left out: its seconds would hide all differences.
    """
    return [_panel(summary) for summary in summaries]


def caption(origin: Mapping[str, Any], rounds: int) -> list[str]:
    """Return the source of the figures, in lines of text.

    Args:
        origin: As the result files have it.
        rounds: How often each client had its turn.
    """
    machine, versions = origin["machine"], origin["versions"]
    clients = versions.get("clients", {})
    named = ", ".join(f"{name} {version}" for name, version in clients.items())
    server = f"server {versions['server']}, {versions['python']}, {versions['go'] or 'no Go'}"
    return [
        f"Median of {rounds} interleaved rounds, whiskers from least to most.",
        origin["command"],
        f"{named}; {server}",
        (
            f"{machine['cores']} cores of {machine['cpu']}, clients and server together;"
            f" {origin['date']}. Compare within a panel only."
        ),
    ]


def _panel(summary: CaseSummary) -> Panel:
    figure, unit = _figure(summary.case)
    bars = [
        _bar(client, figure)
        for client in summary.clients
        if figure in client.figures and not client.remark
    ]
    return Panel(summary.case.title, unit, bars)


def _figure(case: Case) -> tuple[str, str]:
    if case.kind is Kind.LATENCY:
        return _DELIVERED
    return _ACKED if case.one_at_a_time else _RATE


def _bar(client: ClientSummary, figure: str) -> Bar:
    spread = client.figures[figure]
    return Bar(
        client.client.replace(OURS, "liftbridge-aio", 1),
        spread.least,
        spread.median,
        spread.most,
        _said(client, figure),
        ours=client.client.startswith(OURS),
    )


def _said(client: ClientSummary, figure: str) -> str:
    spread = client.figures[figure]
    if figure != _RATE[0]:
        tail = client.figures.get(figure.replace("p50", "p99"))
        p99 = "" if tail is None else f", p99 {small(tail.median)}"
        return f"{small(spread.median)} µs{p99}"
    cpu = client.figures.get("client_cpu_seconds_per_million")
    ratio = "" if client.ratio is None else f" ({client.ratio.median:.2f} {TIMES})"
    each = "" if cpu is None else f", {small(cpu.median)} µs CPU each"
    return f"{rate(spread.median)}{ratio}{each}"
