"""The demo holds what it shows, and its checks would notice if it did not."""

from __future__ import annotations

import json
import re

from cli.conftest import Run
from liftbridge_aio.cli.demo_checks import (
    check_acked,
    check_exactly_once,
    check_offsets,
    check_order,
    check_resumed,
    check_unknown,
)
from liftbridge_aio.model import Ack, Message


def message(offset: int, value: bytes) -> Message:
    return Message("s", 0, offset, b"", value, 0, subject="s")


def ack(offset: int) -> Ack:
    return Ack("s", "s", "s", offset)


GOOD = [message(0, b"a"), message(1, b"b"), message(2, b"c")]


def test_the_demo_loses_and_repeats_nothing(run: Run) -> None:
    result = run("demo", "--messages", "900", "--cuts", "3", "--json")
    report = json.loads(result.out)
    assert report["held"]
    assert [check["held"] for check in report["checks"]] == [True] * 6
    assert report["cuts"] == 5
    assert report["resubscriptions"] > 0
    settled = report["acked"] + report["outcome_unknown"]
    assert settled == 900
    assert report["acked"] <= sum(report["delivered"].values()) <= settled
    title, *steps = result.err.splitlines()
    (sent,) = [step for step in steps if "all sent" in step]
    assert f"all sent: {report['acked']:,} acked," in sent  # the same figures all the way
    assert report["checks"][0]["detail"] == f"{sum(report['delivered'].values()):,} messages"
    assert report["checks"][1]["detail"] == f"{report['acked']:,} messages"
    assert title.startswith("liftbridge-aio demo")
    assert [step for step in steps if not re.match(r" *\d+\.\d\d s  \w", step)] == []
    assert sum("cut the connection" in step for step in steps) == 3


def test_the_demo_is_readable_and_says_that_all_held(run: Run) -> None:
    out = run("demo", "--messages", "300", "--cuts", "1").out
    assert out.splitlines()[0].startswith("liftbridge-aio demo")
    assert out.count("✓") == 6
    assert "✗" not in out
    assert "Next: `liftbridge-aio broker --port 9292` starts a broker" in " ".join(out.split())


def test_lost_repeated_and_disordered_offsets_are_noticed() -> None:
    assert check_offsets({0: GOOD, 1: []}).held
    assert not check_offsets({0: GOOD, 1: GOOD[1:]}).held
    assert not check_offsets({0: [*GOOD, GOOD[-1]]}).held
    assert not check_offsets({0: [GOOD[1], GOOD[0], GOOD[2]]}).held


def test_acked_messages_that_are_missing_doubled_or_elsewhere_are_noticed() -> None:
    assert check_acked({b"a": ack(0), b"c": ack(2)}, GOOD).held
    assert not check_acked({b"d": ack(3)}, GOOD).held
    assert not check_acked({b"a": ack(1)}, GOOD).held
    assert not check_acked({b"a": ack(0)}, [*GOOD, message(3, b"a")]).held


def test_doubled_messages_of_unknown_outcome_are_noticed() -> None:
    assert check_unknown({b"a", b"never stored"}, GOOD).held
    assert not check_unknown({b"a"}, [*GOOD, message(3, b"a")]).held


def test_wrong_order_and_strangers_are_noticed() -> None:
    assert check_order([b"a", b"b", b"x", b"c"], {0: GOOD}).held
    assert not check_order([b"b", b"a", b"c"], {0: GOOD}).held
    assert not check_order([b"a", b"b"], {0: GOOD}).held


def test_a_cursor_that_is_wrong_or_resumed_elsewhere_is_noticed() -> None:
    assert check_resumed(4, 4, [5, 6], 7).held
    assert not check_resumed(None, 4, [5, 6], 7).held
    assert not check_resumed(4, 4, [4, 5, 6], 7).held
    assert not check_resumed(4, 4, [5], 7).held


def test_entries_stored_twice_or_never_are_noticed() -> None:
    assert check_exactly_once([b"a", b"b"], [b"a", b"b"]).held
    assert not check_exactly_once([b"a", b"b"], [b"a", b"a", b"b"]).held
    assert not check_exactly_once([b"a", b"b"], [b"a"]).held
