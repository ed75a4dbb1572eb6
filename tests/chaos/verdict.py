"""Verdict on a run, and the faults that decide it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chaos.evidence import Evidence, FaultRecord
from chaos.floor import Floor, silent_parts
from chaos.journal import Finding
from chaos.log_losses import LogLosses
from chaos.windows import Row, Windows
from liftbridge_aio.testing import (
    Defect,
    DefectKind,
    Guarantee,
    History,
    HistoryReport,
    check_history,
)

RECOVERY_BOUND: Final = 5.0
"""Seconds from the witness's first ack to clients that work in everything."""
EXAMPLES: Final = 2000
"""Defects of each kind in one stream that are judged one by one; more of them break the run."""
ANY: Final = Floor(faults=0, kinds=0)


@dataclass(slots=True)
class Verdict:
    """Figures that are shown, and those that decide."""

    seed: int
    seconds: float
    rows: list[Row]
    total: Row
    leader_acked: int
    leader_lost: int
    group_delivered: int
    group_repeated: int
    group_lost: int
    lost_by_servers: int
    """Acked with ALL, read at its offset by somebody, and gone from the servers' log."""
    failures: list[str]
    servers: list[str]
    timeline: list[str]
    extra: dict[str, Any]

    @property
    def ok(self) -> bool:
        """True if everything held."""
        return not self.failures


@dataclass(slots=True)
class _Judged:
    """Findings, stream by stream."""

    shown: list[Defect]
    failures: list[str]
    by_servers: Counter[str]
    """Losses of the servers in each stream, counted for each reader."""
    group: Counter[str]


def judge(
    evidence: Evidence,
    recovery_bound: float = RECOVERY_BOUND,
    floor: Floor = ANY,
    examples: int = EXAMPLES,
) -> Verdict:
    """Judge a run.

    Args:
        evidence: what it has seen.
        recovery_bound: how many seconds clients get to work again.
        floor: how many faults it must have had.
        examples: how many defects of each kind are judged one by one.
    """
    windows = Windows(evidence)
    losses = LogLosses(evidence)
    judged = _Judged([], [], Counter(), Counter())
    excused = [each for each in evidence.findings if _excuses(windows, losses, each)]
    spoken = Counter(each.text for each in excused)
    leader_acked = 0
    for stream in (*evidence.streams_all, *evidence.streams_leader):
        windows.count_sends(evidence.journal.sends[stream].events)
        plain = _report(evidence, stream, examples, members=False)
        _judge_readers(judged, windows, losses, stream, plain)
        if stream in evidence.streams_leader:
            leader_acked += plain.total.acked
            continue
        members = _report(evidence, stream, examples, members=True)
        _judge_members(judged, losses, stream, members)
    rows = windows.rows()
    return Verdict(
        seed=evidence.seed,
        seconds=evidence.ended - evidence.began,
        rows=rows,
        total=windows.total(),
        leader_acked=leader_acked,
        leader_lost=sum(judged.by_servers[each] for each in evidence.streams_leader),
        group_delivered=judged.group["delivered"],
        group_repeated=judged.group["repeated"],
        group_lost=judged.group["lost"],
        lost_by_servers=sum(judged.by_servers[each] for each in evidence.streams_all),
        failures=[
            *(each.text for each in evidence.findings if each not in excused),
            *judged.failures,
            *(f"in the history: {str(defect).splitlines()[0]}" for defect in judged.shown),
            *losses.untrue_offsets(),
            *windows.bad_recoveries(recovery_bound),
            *silent_parts(evidence),
            *floor.lacking(rows),
        ],
        servers=[
            *evidence.servers,
            *(f"{text} ({count} times)" for text, count in spoken.items()),
            *(f"the log of {stream}/{number} was cut" for stream, number in losses.cut),
        ],
        timeline=[
            *windows.timeline(),
            *_stories(evidence.faults),
            *_described(judged.shown, evidence.began),
        ],
        extra=evidence.extra,
    )


def _excuses(windows: Windows, losses: LogLosses, finding: Finding) -> bool:
    return windows.excuses(finding) or finding.reset in losses.cut


def _judge_readers(
    judged: _Judged, windows: Windows, losses: LogLosses, stream: str, plain: HistoryReport
) -> None:
    """Judge what those were given who read for themselves."""
    for defect in plain.findings:
        if losses.explain(stream, defect):
            judged.by_servers[stream] += 1
            continue
        windows.count_defect(defect)
        judged.shown.append(defect)
    if plain.total.unread:
        judged.failures.append(f"{plain.total.unread} messages of {stream} were never read")
    if plain.total.unsettled:
        judged.failures.append(f"{plain.total.unsettled} publishes to {stream} had no outcome")
    judged.failures += _beyond(stream, plain)


def _judge_members(judged: _Judged, losses: LogLosses, stream: str, members: HistoryReport) -> None:
    """Judge what members of the group were given."""
    total = members.total
    if not any(total.delivered for _, total in members.partitions):
        return
    judged.group.update(delivered=total.delivered, repeated=total.repeated)
    for defect in members.defects:
        if losses.explain(stream, defect):
            continue
        judged.group.update(lost=defect.kind is DefectKind.LOST)
        judged.shown.append(defect)
    if total.unread:
        judged.failures.append(f"{total.unread} messages of {stream} were never read by the group")
    judged.failures += _beyond(stream, members)


def _beyond(stream: str, report: HistoryReport) -> list[str]:
    """Defects that were counted and not judged one by one, as there were too many."""
    described = Counter(defect.kind for defect in report.findings)
    return [
        f"{beyond} more of {stream} {kind.value} than can be judged one by one"
        for kind in set(DefectKind) - report.guarantee.allowed
        if (beyond := report.total.of(kind) - described[kind]) > 0
    ]


def _report(evidence: Evidence, stream: str, examples: int, *, members: bool) -> HistoryReport:
    """Judge what members of groups were given of a stream, or everybody else."""
    history = History()
    history.extend(evidence.journal.sends[stream].events)
    for (of, reader), events in evidence.journal.readings.items():
        if of == stream and (reader in evidence.groups) is members:
            history.extend(events)
    guarantee = Guarantee.AT_LEAST_ONCE if members else Guarantee.EXACTLY_ONCE
    groups = evidence.groups if members else None
    return check_history(history, guarantee, groups=groups, examples=examples)


def _stories(faults: Iterable[FaultRecord]) -> list[str]:
    return [
        line
        for fault in faults
        if fault.story
        for line in (f"What clients told about fault {fault.number}:", *fault.story)
    ]


def _described(defects: Sequence[Defect], began: float, most: int = 5) -> list[str]:
    lines = [f"Times below are seconds of the monotonic clock; the run began at {began:.6f}."]
    for defect in defects[:most]:
        lines += ["", str(defect)]
    return lines if defects else []
