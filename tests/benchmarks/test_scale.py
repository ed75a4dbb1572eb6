"""The benchmark of scale, and its picture."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.curves import Curve, draw
from benchmarks.own_programs import environment, module
from benchmarks.scale import (
    AXES,
    COLUMNS,
    HELD_COLUMNS,
    LARGEST,
    SIZES,
    held_row,
    measure_held,
    scale_rows,
)
from benchmarks.scale_picture import curves
from support.virtual_time import IS_POSSIBLE

SVG = "{http://www.w3.org/2000/svg}"
PHASES = ("start", "idle", "death", "join")


def phase(members: int) -> dict[str, Any]:
    return {
        "seconds": 1.5,
        "calls": 10 * members,
        "by_procedure": {"FetchMetadata": members},
        "metadata_bytes": 2_000_000,
        "read_again": 14.0,
    }


def points() -> list[dict[str, Any]]:
    return [{**asdict(size), **{name: phase(size.members) for name in PHASES}} for size in SIZES]


@pytest.mark.skipif(not IS_POSSIBLE, reason="the simulation needs Python 3.12 or later")
def test_a_small_group_is_measured_in_each_phase() -> None:
    words = ("--members", "3", "--partitions", "10", "--brokers", "3")
    done = subprocess.run(
        [*module("benchmarks.scale_point"), *words],
        capture_output=True,
        check=True,
        env=environment(),
        timeout=60,
    )
    figures = json.loads(done.stdout)
    assert {*PHASES, "create"} == figures.keys()
    assert figures["start"]["by_procedure"]["JoinConsumerGroup"] == 3
    assert figures["join"]["by_procedure"]["JoinConsumerGroup"] == 1
    assert 0 < figures["death"]["read_again"] < 20


def test_a_quiet_partition_holds_less_than_24_kib() -> None:
    for found in measure_held([100], lambda _: None):
        assert 0 < found["held_bytes"] / found["partitions"] < 24 * 1024, found
        assert found["held_bytes"] <= found["most_bytes"]
        assert len(held_row(found)) == len(HELD_COLUMNS)


def test_each_axis_changes_one_size_up_to_the_largest() -> None:
    for axis, sizes in AXES.items():
        assert getattr(sizes[-1], axis) == getattr(LARGEST, axis)
        others = [{**asdict(size), axis: None} for size in sizes]
        assert others == [others[0]] * len(sizes)


def test_a_row_has_a_figure_under_each_head() -> None:
    rows = list(scale_rows(points()[0]))
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert dict(zip(COLUMNS, rows[0], strict=True))["MB of metadata"] == "2.0"


def test_curves_have_the_points_of_their_axis() -> None:
    found = curves(points(), [])
    [calls] = [
        each for each in found if (each.title, each.along) == ("Calls at the start", "members")
    ]
    assert calls.points == [(10, 100), (100, 1000), (1000, 10_000)]


def test_a_picture_shows_each_curve_with_its_figures() -> None:
    line = [(10.0, 3.0), (100.0, 30.0), (1000.0, 12_000.0)]
    picture = ET.fromstring(draw([Curve("Calls <at> start", "members", line)], "by a test"))  # noqa: S314
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert {"Calls <at> start", "by members", "12 k", "by a test"} <= set(texts)
    assert len(list(picture.iter(f"{SVG}circle"))) == len(line)
