"""Mistakes in options that would read something else than was meant, were they let pass."""

from __future__ import annotations

import pytest

from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.errors import InvalidOption

SERVERS = {"servers": "127.0.0.1:9292"}


def batch_read(**options: str) -> ReadOptions:
    return ReadOptions.parse({**SERVERS, **options}, streaming=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stream": "s", "startingOffsets": '{"s":{"0":1,"0":5}}'}, ["startingOffsets", "'0'"]),
        ({"stream": "s", "endingOffsets": '{"s":{"0":1},"s":{"1":5}}'}, ["endingOffsets", "'s'"]),
        ({"assign": '{"s":[0],"s":[1]}'}, ["assign", "'s'"]),
    ],
)
def test_what_is_named_twice_is_refused(options: dict[str, str], words: list[str]) -> None:
    with pytest.raises(InvalidOption, match="occurs twice") as refusal:
        batch_read(**options)
    for word in words:
        assert word in str(refusal.value)


def test_a_time_to_end_before_the_time_to_start_is_refused() -> None:
    with pytest.raises(InvalidOption, match="startingTimestamp is later than endingTimestamp"):
        batch_read(stream="s", startingTimestamp="2026-01-02T00:00:00Z", endingTimestamp="5")
    same = batch_read(stream="s", startingTimestamp="5", endingTimestamp="5")
    assert same.starting != same.ending  # the option that says so


def test_nearly_the_long_name_of_the_servers_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"did you mean liftbridge\.bootstrap\.servers"):
        batch_read(stream="s", **{"liftbridge.bootstrap.server": "127.0.0.1:9293"})
