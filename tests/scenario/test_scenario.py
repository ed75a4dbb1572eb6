"""The scenario as a test, with fewer orders: everything adds up, though everything is killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from scenario.judge import KILLS, Found
from scenario.processes import Embedded
from scenario.run import Scenario

ORDERS = 3000
ONCE_FEWER = ("leader", "worker", "driver", "leader", "worker")
"""Each start of a driver takes a third of the time; `nox -s scenario` kills it twice, too."""


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_everything_adds_up_though_everything_is_killed(tmp_path: Path) -> None:
    scenario = Scenario(Embedded(tmp_path), tmp_path, ORDERS, print, ONCE_FEWER)
    found = asyncio.run(scenario.run())
    assert found.held, found.table()


def complete() -> Found:
    ids = Counter(["a", "b"])
    return Found(
        2,
        orders=ids.copy(),
        invoices=ids.copy(),
        plain_invoices=ids + Counter(["a"]),
        archived=ids.copy(),
        totals=Counter(["shop 1"]),
        totalled=2,
        followed_as_stored=True,
        group_got_all=True,
        kills=Counter(KILLS),
    )


def test_what_does_not_add_up_is_noticed() -> None:
    assert complete().held
    for change in (
        lambda found: found.orders.pop("a"),
        lambda found: found.invoices.update(["a"]),
        lambda found: found.archived.update(["c"]),
        lambda found: found.plain_invoices.subtract(["a"]),
        lambda found: found.totals.update(["shop 1"]),
        lambda found: setattr(found, "totalled", 1),
        lambda found: setattr(found, "followed_as_stored", False),
        lambda found: setattr(found, "group_got_all", False),
        lambda found: setattr(found, "cursor_steps_back", 1),
        lambda found: setattr(found, "tasks_left", 1),
        lambda found: setattr(found, "descriptors_left", 1),
        lambda found: found.kills.update(driver=1),
    ):
        found = complete()
        change(found)
        assert [line.held for line in found.lines].count(False) == 1
