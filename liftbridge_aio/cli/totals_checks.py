"""Check the totals of the pipeline against the published sales. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from .demo_checks import Check


class Place(NamedTuple):
    """The shop and time window of a total; the window by its start."""

    start: str
    shop: str


class Total(NamedTuple):
    """The number and sum of sales."""

    sales: int
    cents: int


def check_sum(events: int, totals: Sequence[tuple[Place, Total]]) -> Check:
    """Check that the totals contain as many sales as were published."""
    counted = sum(total.sales for _, total in totals)
    return Check(
        "the totals add up to the published events",
        counted == events,
        f"{events:,} events in, {counted:,} in {len(totals):,} totals",
    )


def check_each(expected: Mapping[Place, Total], totals: Sequence[tuple[Place, Total]]) -> Check:
    """Check that each shop and window has the right total, in number and money."""
    found = dict(totals)
    wrong = [place for place in expected.keys() | found if found.get(place) != expected.get(place)]
    return Check(
        "each shop and window has the right total, in number and money",
        not wrong,
        f"{len(expected):,} totals"
        if not wrong
        else f"not so for {len(wrong):,} of {len(expected):,}, such as {min(wrong)}",
    )


def check_once(places: Collection[Place]) -> Check:
    """Check that no total was written twice."""
    repeated = sum(count > 1 for count in Counter(places).values())
    return Check(
        "each total was written once",
        not repeated,
        "" if not repeated else f"{repeated:,} were written more than once",
    )


def check_followed(stored: Sequence[Place], followed: Sequence[Place]) -> Check:
    """Check that the subscriber received what the stream of totals stores, in its order."""
    held = list(stored) == list(followed)
    return Check(
        "the subscriber received every stored total, in order, while the pipeline ran",
        held,
        "" if held else f"{len(stored):,} are stored, {len(followed):,} were received",
    )


def check_read(events: int, rows_read: int, rows_late: int) -> Check:
    """Check that Spark read each event once and dropped none as late."""
    held = rows_read == events and not rows_late
    return Check(
        "Spark read every event once, and dropped none as too late for its window",
        held,
        "" if held else f"{events:,} events, {rows_read:,} rows read, {rows_late:,} late",
    )
