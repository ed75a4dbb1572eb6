"""The parts that are timed do what they are timed for."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.codec_parts import AT_A_TIME, FIRST, VALUE, Splitting, alone, message, together


def test_each_part_runs_as_often_as_is_wanted() -> None:
    for name, function in {**alone(), **together()}.items():
        for _ in range(3):
            function()
        assert name


def test_what_is_decoded_is_whole() -> None:
    results: dict[str, Any] = {name: function() for name, function in alone().items()}
    assert results["decode a message"].value == VALUE
    assert results["decode a message"].offset == FIRST
    [ack] = results["decode an ack"]
    assert ack.offset == FIRST
    assert VALUE in results["encode a publish request"]
    many: dict[str, Any] = {name: function() for name, function in together().items()}
    decoded = many[f"decode messages, {AT_A_TIME} at a time"]
    assert [each.offset - FIRST for each in decoded] == list(range(AT_A_TIME))


def test_a_lane_that_takes_nothing_is_noticed() -> None:
    # A message longer than the lane allows is none.
    with pytest.raises(AssertionError, match="did not take"):
        Splitting([message(0), bytes(2**20 + 1)]).run()
