"""Tables, goals, result files and what they tell of where they come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.cases import Case, Choice, Kind
from benchmarks.codec import codec_row, timings
from benchmarks.document import document
from benchmarks.goals import GOALS, Verdict, goal_cases, goal_rows, standings
from benchmarks.memory import COLUMNS, SCENARIOS, Held, memory_row
from benchmarks.outcome import Unsupported
from benchmarks.processes import memory_bytes
from benchmarks.provenance import command_line, cpu_model
from benchmarks.summary import REFERENCE, CaseSummary, Failed, Run, Spread, summarize
from benchmarks.table import columns, remarks, rows
from support.benchmark_runs import measured

CONSUME = Case(Kind.CONSUME, 1_000)


def consumed(**runs: list[Run]) -> CaseSummary:
    return summarize(CONSUME, {name.replace("_", "-"): each for name, each in runs.items()})


def test_a_row_has_the_median_and_its_spread_under_each_head() -> None:
    summary = consumed(
        ours=[measured(90_000, 4), measured(120_000, 4), measured(130_000, 4)],
        go_liftbridge=[measured(100_000, 5.5)] * 3,
    )
    ours, reference = (dict(zip(columns(summary), row, strict=True)) for row in rows(summary))
    assert ours["msg/s"] == "120.0 k (90.0 k\N{EN DASH}130.0 k)"
    assert ours[f"against {REFERENCE}"] == (
        "1.20 \N{MULTIPLICATION SIGN} (0.90 \N{MULTIPLICATION SIGN}\N{EN DASH}1.30"
        " \N{MULTIPLICATION SIGN})"
    )
    assert ours["client CPU µs"] == "4.0"
    assert reference["msg/s"] == "100.0 k"
    assert reference["server CPU µs"] == ""


def test_who_was_not_measured_as_asked_is_told_below() -> None:
    summary = consumed(
        ours=[measured(100, messages=1_000)],
        slow=[measured(1, messages=10)],
        lossy=[measured(100, errors=1)],
        unable=[Unsupported("no partitions")],
        broken=[Failed("gone")],
    )
    assert [row[0] for row in rows(summary)] == ["ours", "slow"]
    assert sorted(remarks(summary)) == [
        "broken: 1 of 1 runs failed: gone",
        "lossy: 1 of 1 runs failed: messages were lost",
        "slow: 10 messages a run instead of 1,000, as it is slow",
        "unable: cannot do this: no partitions",
    ]


@pytest.mark.parametrize(
    ("rate", "cpu", "verdicts"),
    [
        (120, 7.0, (Verdict.GOAL, Verdict.GOAL)),
        (105, 9.0, (Verdict.MUST, Verdict.MUST)),
        (95, 11.0, (Verdict.MISSED, Verdict.MISSED)),
    ],
)
def test_goals_are_judged_by_the_ratio_of_one_run(
    rate: float, cpu: float, verdicts: tuple[Verdict, Verdict]
) -> None:
    summary = consumed(ours=[measured(rate, cpu)], go_liftbridge=[measured(100, 10)])
    found = standings([summary])
    assert (found[0].verdict, found[1].verdict) == verdicts
    assert {each.verdict for each in found[2:]} == {Verdict.OPEN}


def test_python_peers_are_judged_by_the_best_of_them() -> None:
    summary = consumed(
        ours=[measured(1_200)],
        go_liftbridge=[measured(1_000)],
        python_liftbridge=[measured(50)],
        gufo_liftbridge=[measured(100)],
        grpcio=[measured(900)],
    )
    [best] = [each for each in standings([summary]) if each.theirs and each.against != REFERENCE]
    assert best.against == "gufo-liftbridge"
    assert best.ratio is not None
    assert best.ratio.median == 12
    assert best.verdict is Verdict.MUST


def test_every_goal_has_its_case_and_its_row() -> None:
    runs = {
        name: [
            measured(
                100, latency_p50=1, latency_p99=2, delivery_latency_p50=3, delivery_latency_p99=4
            )
        ]
        for name in ("ours", "go-liftbridge", "python-liftbridge")
    }
    summaries = [summarize(case, runs) for case in goal_cases(Choice(sizes=(16,)))]
    found = standings(summaries)
    assert len(found) == len(GOALS) == len(goal_rows(found))
    assert Verdict.OPEN not in {each.verdict for each in found}


ORIGIN: dict[str, Any] = {
    "command": "python -m benchmarks consume",
    "date": "2026-11-21",
    "machine": {"cpu": "a processor", "cores": 2, "system": "Linux x86_64"},
    "versions": {"server": "v1.9.0", "python": "CPython 3.14.0", "go": "go1.26"},
}


def test_a_result_file_holds_every_run_and_what_they_come_to() -> None:
    summary = consumed(ours=[measured(80), measured(120)], go_liftbridge=[measured(50)] * 2)
    made = json.loads(json.dumps(document(ORIGIN, 2, [summary], {"memory": []})))
    assert made["schema"] == 1
    assert made["command"] == ORIGIN["command"]
    assert made["machine"] == ORIGIN["machine"]
    assert made["versions"] == ORIGIN["versions"] | {
        "clients": {"ours": "v1", "go-liftbridge": "v1"}
    }
    assert made["memory"] == []
    [case] = made["cases"]
    assert case["title"] == CONSUME.title
    ours = case["clients"][0]
    assert ours["client"] == "ours"
    assert ours["messages_per_second"] == {"min": 80.0, "median": 100.0, "max": 120.0}
    assert ours["ratio"] == {"min": 1.6, "median": 2.0, "max": 2.4}
    assert [run["messages_per_second"] for run in ours["runs"]] == [80.0, 120.0]


def test_the_command_tells_no_paths() -> None:
    words = ["consume", "--server", "/home/me/liftbridge", "--json", "/home/me/out.json"]
    assert command_line([*words, "--chart=/home/me/chart.svg", "--quick"], words[2]) == (
        "python -m benchmarks consume --server liftbridge --quick"
    )
    assert command_line(["all", "--rounds", "7"], "real") == "python -m benchmarks all --rounds 7"


def test_the_processor_is_named() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n\nprocessor\t: 1\n") == (
        "Some CPU @ 3 GHz"
    )


def test_what_pyperf_writes_is_read_in_nanoseconds() -> None:
    run, warm_up = {"values": [2e-9, 1e-9, 4e-9], "warmups": [[1, 9.0]]}, {"warmups": [[1, 9.0]]}
    several = {
        "benchmarks": [
            {"metadata": {"name": "one"}, "runs": [warm_up, run, run]},
            {"metadata": {"name": "two"}, "runs": [run]},
        ],
        "metadata": {"unit": "second"},
    }
    spread = Spread.of([1, 2, 4])
    read = timings(json.dumps(several))
    assert [each.name for each in read] == ["one", "two"]
    assert [each.nanoseconds.median for each in read] == pytest.approx([2, 2])
    assert read[1].nanoseconds.least == pytest.approx(spread.least)
    assert codec_row(read[1]) == ("two", "2", "1", "4")
    alone = {"benchmarks": [{"runs": [run]}], "metadata": {"name": "one"}}
    assert timings(json.dumps(alone))[0].name == "one"


def test_memory_is_read_in_bytes() -> None:
    status = "Name:\tpython\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n"
    assert memory_bytes(status, "VmRSS") == 2**20
    with pytest.raises(KeyError):
        memory_bytes(status, "VmSwap")


MIB = 2**20


@pytest.mark.parametrize(
    ("scenario", "added", "starved", "buffered", "holds"),
    [
        ("reader-behind", 64 * MIB, 0, 0, True),
        ("reader-behind", 64 * MIB + 1, 0, 0, False),
        ("publishes-waiting", 10**9, 0, 0, True),
        ("subscriptions-idle", 1_000 * 64 * 1024, 0, 0, True),
        ("subscriptions-idle", 1_000 * 64 * 1024 + 1, 0, 0, False),
        ("subscriptions-busy", 64 * MIB + 1_000 * 64 * 1024, 0, 64 * MIB, True),
        ("subscriptions-busy", 64 * MIB, 0, 64 * MIB + 1, False),
        ("subscriptions-busy", 1, 1, 0, False),
    ],
)
def test_memory_is_held_against_its_limits(
    scenario: str, added: int, starved: int, buffered: int, *, holds: bool
) -> None:
    [found] = [each for each in SCENARIOS if each.name == scenario]
    items = 1_000 if "subscriptions" in scenario else 1
    held = Held(found, added, items, starved, buffered)
    assert held.within_limits is holds
    assert held.as_json()["within_limits"] is holds
    assert len(memory_row(held)) == len(COLUMNS)
