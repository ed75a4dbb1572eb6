from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core.segments import Positions, UnknownOffset

FAMILIES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=5)
"""For each stream: how many messages it appends, and then at which position a fork begins."""


def family(steps: list[tuple[int, int]]) -> list[tuple[Positions, list[str]]]:
    """Return streams, each a fork of the one before, with their messages."""
    positions, messages = Positions((), "log-1", 1), ["log-1 0", "log-1 1"]
    found = [(positions, messages)]
    for number, (appended, at) in enumerate(steps, 2):
        position = min(at, len(messages))
        positions = Positions(positions.until(position), f"log-{number}", number)
        own = [f"log-{number} {n}" for n in range(appended)]
        messages = messages[:position] + own
        found.append((positions, messages))
    return found


@given(FAMILIES)
def test_every_position_leads_to_its_message(steps: list[tuple[int, int]]) -> None:
    for positions, messages in family(steps):
        for position, message in enumerate(messages):
            place = positions.locate(position)
            assert f"{place.log} {place.offset}" == message
            assert place.limit is None or place.offset < place.limit
        assert positions.locate(len(messages)).log == positions.log


@given(FAMILIES)
def test_offsets_increase_and_lead_back(steps: list[tuple[int, int]]) -> None:
    for positions, messages in family(steps):
        offsets = [positions.offset(position) for position in range(len(messages) + 1)]
        assert offsets == sorted(set(offsets))
        assert [positions.position(offset) for offset in offsets] == [*range(len(messages) + 1)]


@given(FAMILIES)
def test_a_fork_shares_the_offsets_up_to_where_it_begins(steps: list[tuple[int, int]]) -> None:
    streams = family(steps)
    for (source, _), (fork, _) in itertools.pairwise(streams):
        for position in range(1, fork.start + 1):
            assert fork.offset(position) == source.offset(position)


def test_offsets_of_other_streams_are_told_apart() -> None:
    positions = Positions((), "log", 7)
    for offset, gone in (("0" * 15 + "6_" + "0" * 16, True), ("9" * 16 + "_" + "9" * 16, False)):
        with pytest.raises(UnknownOffset) as raised:
            positions.position(offset)
        assert raised.value.gone is gone


@pytest.mark.parametrize(
    "offset", ["", "7", "0_0", "-1", "now", "x" * 33, "7" * 16 + "-" + "0" * 16]
)
def test_what_has_not_the_form_of_an_offset_is_none(offset: str) -> None:
    assert Positions((), "log", 7).position(offset) is None


def test_zeros_are_the_beginning() -> None:
    assert Positions((), "log", 7).position(f"{0:016}_{0:016}") == 0
