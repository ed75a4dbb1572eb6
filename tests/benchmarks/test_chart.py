"""The chart is SVG that shows what was measured."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases import Case, Kind
from benchmarks.chart import WIDTH, Bar, Panel, draw
from benchmarks.outcome import Unsupported
from benchmarks.panels import caption, panels
from benchmarks.summary import Failed, summarize
from support.benchmark_runs import measured

SVG = "{http://www.w3.org/2000/svg}"
TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)
LENGTHS = st.floats(0, 1e9)


@st.composite
def bars(choose: st.DrawFn) -> Bar:
    least, median, most = sorted(choose(st.tuples(LENGTHS, LENGTHS, LENGTHS)))
    return Bar(choose(TEXT), least, median, most, choose(TEXT), choose(st.booleans()))


PANELS = st.lists(st.builds(Panel, TEXT, TEXT, st.lists(bars(), max_size=4)), max_size=4)


def elements(drawn: str, name: str, kind: str) -> list[ET.Element]:
    found = ET.fromstring(drawn).iter(f"{SVG}{name}")  # noqa: S314 - we have drawn it ourselves
    return [each for each in found if kind in each.attrib.get("class", "").split()]


@given(PANELS, st.lists(TEXT, max_size=3))
def test_whatever_is_drawn_is_svg_and_stays_inside(drawn: list[Panel], below: list[str]) -> None:
    text = draw(drawn, below)
    root = ET.fromstring(text)  # noqa: S314 - we have drawn it ourselves
    height = float(root.attrib["height"])
    said = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    for panel in drawn:
        for bar in panel.bars:
            assert bar.label in said
            assert bar.text in said
    for rect in [*elements(text, "rect", "bar"), *elements(text, "rect", "ours")]:
        x, y, width = (float(rect.attrib[key]) for key in ("x", "y", "width"))
        assert 0 < x <= x + width <= WIDTH
        assert 0 < y < height


def test_bars_show_medians_and_whiskers_go_from_least_to_most() -> None:
    text = draw(
        [
            Panel(
                "case",
                "msg/s",
                [Bar("ours", 50, 100, 200, "", ours=True), Bar("peer", 50, 50, 50, "")],
            )
        ],
        [],
    )
    [ours], [peer] = elements(text, "rect", "ours"), elements(text, "rect", "bar")
    assert float(ours.attrib["width"]) == 2 * float(peer.attrib["width"])
    [whisker] = elements(text, "path", "whisker")
    moved = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", whisker.attrib["d"])
    assert moved is not None
    zero, left, right = float(ours.attrib["x"]), float(moved[1]), float(moved[2])
    assert (right - zero) == 4 * (left - zero)


def test_it_can_be_read_in_the_dark() -> None:
    assert "prefers-color-scheme: dark" in draw([], [])


def test_panels_show_the_measured_clients_and_where_figures_come_from() -> None:
    summary = summarize(
        Case(Kind.CONSUME, 1_000),
        {
            "ours": [measured(150_000, 4.2)],
            "go-liftbridge": [measured(100_000, 5.6)],
            "broken": [Failed("gone")],
            "slow": [measured(1), Unsupported("too slow")],
        },
    )
    [panel] = panels([summary])
    assert [(bar.label, bar.median, bar.ours) for bar in panel.bars] == [
        ("liftbridge-aio", 150_000, True),
        ("go-liftbridge", 100_000, False),
    ]
    assert panel.bars[0].text == "150.0 k (1.50 \N{MULTIPLICATION SIGN}), 4.2 µs CPU each"

    origin = {
        "command": "python -m benchmarks consume",
        "date": "2026-11-21",
        "machine": {"cpu": "a processor", "cores": 2},
        "versions": {"server": "v1.9.0", "python": "CPython 3.14", "go": None, "clients": {}},
    }
    below = " ".join(caption(origin, 5))
    for told in ("python -m benchmarks consume", "2 cores of a processor", "v1.9.0", "5 interl"):
        assert told in below


def test_latency_is_drawn_in_microseconds() -> None:
    run = measured(1_000, delivery_latency_p50=364.0, delivery_latency_p99=904.0)
    summary = summarize(Case(Kind.LATENCY, 5_000, rate=1_000, duration=5), {"ours": [run]})
    [panel] = panels([summary])
    assert panel.bars[0].median == 364
    assert panel.bars[0].text == "364 µs, p99 904"
