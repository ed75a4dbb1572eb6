"""What must hold after the pipeline of totals, judged from what went in and what came out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from .demo_checks import Check


class Place(NamedTuple):
    """What a total is of: a shop, and a time window by its start."""

    start: str
    shop: str


class Total(NamedTuple):
    """How many sales there were, and what they came to."""

    sales: int
    cents: int


def check_sum(events: int, totals: Sequence[tuple[Place, Total]]) -> Check:
    """As many sales are in the totals as events were published."""
    counted = sum(total.sales for _, total in totals)
    return Check(
        "the totals add up to what was published",
        counted == events,
        f"{events:,} events in, {counted:,} in {len(totals):,} totals",
    )


def check_each(expected: Mapping[Place, Total], totals: Sequence[tuple[Place, Total]]) -> Check:
    """Each shop and window has the total that its events make, in number and in money."""
    found = dict(totals)
    wrong = [place for place in expected.keys() | found if found.get(place) != expected.get(place)]
    return Check(
        "each shop and window has its own total, in number and in money",
        not wrong,
        f"{len(expected):,} totals"
        if not wrong
        else f"not so for {len(wrong):,} of {len(expected):,}, such as {min(wrong)}",
    )


def check_once(places: Collection[Place]) -> Check:
    """No total came twice."""
    repeated = sum(count > 1 for count in Counter(places).values())
    return Check(
        "each total was written once",
        not repeated,
        "" if not repeated else f"{repeated:,} came more than once",
    )


def check_followed(stored: Sequence[Place], followed: Sequence[Place]) -> Check:
    """The subscriber got what the stream of totals holds, in its order."""
    held = list(stored) == list(followed)
    return Check(
        "the subscriber got every stored total, in order, while it ran",
        held,
        "" if held else f"{len(stored):,} are stored, {len(followed):,} came",
    )


def check_read(events: int, rows_read: int, rows_late: int) -> Check:
    """Spark read each event once and left none out as late."""
    held = rows_read == events and not rows_late
    return Check(
        "Spark read every event once, and none came too late for its window",
        held,
        "" if held else f"{events:,} events, {rows_read:,} rows read, {rows_late:,} late",
    )
