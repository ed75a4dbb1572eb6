"""The demo holds what it shows."""

from __future__ import annotations

import json

from cli.conftest import Run


def test_the_demo_loses_and_repeats_nothing(run: Run) -> None:
    result = run("demo", "--messages", "900", "--cuts", "3", "--json")
    report = json.loads(result.out)
    assert (report["held"], report["cuts"]) == (True, 3)
    assert report["resubscriptions"] > 0
    assert report["acked"] + report["unknown"] == 900
    assert report["acked"] <= report["delivered"] <= 900
    assert result.err.startswith("liftbridge-aio demo")


def test_the_demo_is_readable(run: Run) -> None:
    out = run("demo", "--messages", "300", "--cuts", "1").out
    assert out.startswith("liftbridge-aio demo")
    assert "Every acked message was delivered once and in order" in out
