"""Combination and verdict of measurements with Spark."""

from __future__ import annotations

import pytest

from benchmarks.spark.memory import COLUMNS as MEMORY_COLUMNS
from benchmarks.spark.memory import MOST_GROWTH, growth_row, judge
from benchmarks.spark.microbatch import FLOOR_COLUMNS, Floors, floor_rows
from benchmarks.spark.samples import (
    CLIENT,
    COLUMNS,
    KAFKA,
    NOTHING,
    OURS,
    Comparison,
    Sample,
    comparison_rows,
    verdict,
)
from benchmarks.spark.usage import Usage, below, parse_stat, usage
from benchmarks.summary import Spread


def compared(**rates: list[float]) -> Comparison:
    names = {"client": CLIENT, "ours": OURS, "nothing": NOTHING, "kafka": KAFKA}
    rounds = {
        names[name]: [Sample(round(rate * 10), 10.0, 0.5, 0.25, 1.0) for rate in each]
        for name, each in rates.items()
    }
    return Comparison("rows", rounds)


@pytest.mark.parametrize(
    ("client", "nothing", "ours", "share", "reached"),
    [
        ([100, 100, 100], [300, 300, 300], [70, 80, 90], 0.8, True),
        ([100, 100, 100], [300, 300, 300], [70, 79, 90], 0.79, False),
        ([900, 900, 900], [300, 300, 300], [270, 270, 270], 0.9, True),
        # Round by round: what slowed both down in the last one says nothing of ours.
        ([100, 100, 50], [300, 300, 300], [90, 90, 45], 0.9, True),
    ],
)
def test_ours_is_held_against_the_slower_of_the_two(
    client: list[float], nothing: list[float], ours: list[float], share: float, *, reached: bool
) -> None:
    found = compared(client=client, ours=ours, nothing=nothing, kafka=[1, 1, 1])
    assert found.share is not None
    assert found.share.median == pytest.approx(share)
    assert found.reached is reached
    assert ("reached" in verdict(found)) is reached
    assert found.as_json()["reached"] is reached


def test_every_contender_has_a_row_with_what_a_million_rows_cost() -> None:
    found = compared(client=[100], ours=[80], nothing=[400])
    rows = {row[0]: row for row in comparison_rows(found)}
    assert list(rows) == [CLIENT, OURS, NOTHING]
    assert {len(row) for row in rows.values()} == {len(COLUMNS)}
    assert rows[OURS][1:3] == ("80", "")
    assert rows[CLIENT][2] == "0.80 \N{MULTIPLICATION SIGN}"
    [contender] = [each for each in found.as_json()["contenders"] if each["name"] == OURS]
    assert contender["runs"] == [
        {
            "rows_per_second": 80.0,
            "python_cpu_seconds_per_million": 625.0,
            "java_cpu_seconds_per_million": 312.5,
            "server_cpu_seconds_per_million": 1250.0,
        }
    ]


def test_without_anything_to_hold_it_against_there_is_no_verdict() -> None:
    found = compared(ours=[80])
    assert found.share is None
    assert found.reached is None
    assert verdict(found) == ""


def test_a_tiny_batch_is_shown_above_that_of_nothing() -> None:
    floors = Floors("tiny", {OURS: Spread(200, 250, 300), NOTHING: Spread(150, 180, 200)})
    ours, nothing = floor_rows(floors)
    assert ours[2] == "70.0"
    assert nothing[2] == ""
    assert len(ours) == len(FLOOR_COLUMNS)


def test_memory_is_flat_unless_one_worker_grows() -> None:
    steady = [{1: 100 * 2**20, 2: 50 * 2**20 + number % 3} for number in range(40)]
    flat = judge(steady, 10, 1000)
    assert (flat.flat, flat.workers, flat.most) == (True, 2, 0)
    assert len(growth_row(flat)) == len(MEMORY_COLUMNS)
    one_grows = [each | {2: 50 * 2**20 + n * MOST_GROWTH // 10} for n, each in enumerate(steady)]
    assert not judge(one_grows, 10, 1000).flat


def test_workers_that_start_and_end_in_between_are_not_judged() -> None:
    samples = [{1: 100} if number < 20 else {1: 100, 7: number * 10**9} for number in range(40)]
    assert judge(samples, 10, 1000).workers == 1


def test_processor_time_is_split_between_java_and_python() -> None:
    stats = [
        "1 (python) S 0 1 1 0 -1 4 9 0 0 0 900 100 0 0 20 0",
        "2 (java) S 1 1 1 0 -1 4 9 0 0 0 300 100 40 10 20 0",
        "3 (python3 (x)) S 2 1 1 0 -1 4 9 0 0 0 100 50 0 0 20 0",
        "4 (python3) S 3 1 1 0 -1 4 9 0 0 0 10 0 0 0 20 0",
        "5 (other) S 9 1 1 0 -1 4 9 0 0 0 999 0 0 0 20 0",
    ]
    found = below(1, [parse_stat(stat) for stat in stats])
    assert [each.pid for each in found] == [2, 3, 4]
    used = usage(found)
    assert used.java * 100 == pytest.approx(400 * used.python * 100 / 210)


def test_a_worker_that_has_ended_takes_no_time_back() -> None:
    assert Usage(5.0, 1.0).since(Usage(2.0, 4.0)) == Usage(3.0, 0.0)
