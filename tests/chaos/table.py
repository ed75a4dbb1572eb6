"""A verdict as a table for people, and as JSON. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from chaos.verdict import Verdict
from chaos.windows import Row, percentile

COLUMNS: Final = (
    ("fault", "<", lambda row: row.name),
    ("count", ">", lambda row: f"{row.faults or '-'}"),
    ("sent", ">", lambda row: f"{row.sent:,}"),
    ("acked", ">", lambda row: f"{row.acked:,}"),
    ("unknown", ">", lambda row: f"{row.unknown:,}"),
    ("not sent", ">", lambda row: f"{row.refused:,}"),
    ("lost", ">", lambda row: f"{row.lost:,}"),
    ("repeated", ">", lambda row: f"{row.repeated:,}"),
    ("out of order", ">", lambda row: f"{row.reordered:,}"),
    ("longest stall", ">", lambda row: f"{row.stall:.1f} s"),
    ("recovery p50", ">", lambda row: _recovery(row, 0.5)),
    ("p99", ">", lambda row: _recovery(row, 0.99)),
    ("max", ">", lambda row: _recovery(row, 1.0)),
)


def _recovery(row: Row, part: float) -> str:
    return f"{percentile(row.recoveries, part):.2f} s" if row.recoveries else "-"


def markdown(verdict: Verdict) -> str:
    """The table, as it can stand in a README."""
    rows = [[show(row) for _, _, show in COLUMNS] for row in (*verdict.rows, verdict.total)]
    head = [name for name, _, _ in COLUMNS]
    widths = [max(len(line[at]) for line in (head, *rows)) for at in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [
            f"{cell:{side}{width}}"
            for cell, (_, side, _), width in zip(cells, COLUMNS, widths, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * width if side == "<" else "-" * (width - 1) + ":"
        for (_, side, _), width in zip(COLUMNS, widths, strict=True)
    ]
    return "\n".join([line(head), line(rule), *map(line, rows)])


def text(verdict: Verdict) -> str:
    """Everything that is printed at the end of a run."""
    kinds = sum(1 for row in verdict.rows if row.faults)
    leader = f"{verdict.leader_acked:,} acked, {verdict.leader_lost:,} of them lost"
    group = (
        f"{verdict.group_delivered:,} delivered, {verdict.group_repeated:,} of them again, "
        f"{verdict.group_lost:,} lost"
    )
    faults = f"{verdict.total.faults} faults of {kinds} kinds"
    lines = [
        f"Chaos of {verdict.seconds:.0f} s, seed {verdict.seed}: {faults}",
        "",
        markdown(verdict),
        "",
        f"Ack LEADER: {leader} by the servers, counted for each reader.",
        f"Group: {group}.",
        f"Acked with ALL and lost by the servers themselves: {verdict.lost_by_servers:,}.",
    ]
    if verdict.total.spoiled:
        kinds_spoiled = ", ".join(
            f"{row.name} {row.spoiled}" for row in verdict.rows if row.spoiled
        )
        lines.append(f"Faults that the servers spoiled, not counted: {kinds_spoiled}.")
    lines += [f"{name}: {value}" for name, value in verdict.extra.items()]
    if verdict.servers:
        lines += ["", "What the servers did, which does not count:", *verdict.servers]
    if verdict.failures:
        lines += [
            *("", f"BROKEN, seed {verdict.seed}:", *verdict.failures[:40]),
            *("", "Timeline:", *verdict.timeline),
        ]
    else:
        lines += ["", "Everything held."]
    return "\n".join(lines)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The same for programs."""
    found = dataclasses.asdict(verdict)
    for row in (*found["rows"], found["total"]):
        recoveries = row["recoveries"]
        for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            row[f"recovery_{name}"] = percentile(recoveries, part) if recoveries else None
    return {"ok": verdict.ok, **found}
