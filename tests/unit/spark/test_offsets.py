from __future__ import annotations

import json
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.core.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    OffsetRange,
    Offsets,
    offsets_from_option,
)
from liftbridge_aio.spark.errors import CheckpointMismatch, InvalidOption

CREATED = 1_700_000_000_000_000_001
names = st.sampled_from(["orders", "totals", "o\u00f6.x", 'with "quotes"']) | st.text(
    "a0\\\n", min_size=1, max_size=3
)
places = st.builds(StreamPartition, names, st.integers(0, 2**31 - 1))
numbers = st.integers(0, 2**63 - 1)
plain = st.dictionaries(places, numbers, max_size=8)
creations = st.dictionaries(names, st.integers(0, 2**63 - 1), max_size=3)
known = st.builds(Offsets, plain, creations)


@given(known)
def test_what_spark_keeps_is_read_back_as_it_was(offsets: Offsets) -> None:
    kept_by_spark = json.dumps(offsets.to_dict())
    assert Offsets.from_checkpoint(kept_by_spark) == offsets
    assert Offsets.from_checkpoint(json.loads(kept_by_spark)) == offsets
    assert Offsets.from_checkpoint(offsets.to_json()) == offsets


@given(known, st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_text_however_they_were_made(
    offsets: Offsets, chance: random.Random
) -> None:
    items = list(offsets.items())
    chance.shuffle(items)
    again = Offsets(dict(items), offsets.created)
    assert again.to_json() == offsets.to_json()
    assert json.dumps(again.to_dict()) == json.dumps(offsets.to_dict())
    # Whoever sorts the keys on the way gets the same text, too.
    assert json.dumps(again.to_dict(), separators=(",", ":")) == offsets.to_json()


def test_the_text_has_sorted_keys_and_no_blanks() -> None:
    offsets = Offsets({("b", 2): 7, ("b", 10): 0, ("a", 0): 23}, {"b": CREATED, "gone": 5})
    assert offsets.to_json() == f'{{"a":{{"0":23}},"b":{{"10":0,"2":7,"created":{CREATED}}}}}'


@given(known)
def test_offsets_pickle_and_hash_by_what_they_hold(offsets: Offsets) -> None:
    again = pickle.loads(pickle.dumps(offsets))  # noqa: S301 - our own bytes
    assert again == offsets
    assert hash(again) == hash(offsets)


def test_offsets_of_another_creation_are_not_equal() -> None:
    offsets = Offsets({("a", 0): 1}, {"a": 5})
    assert offsets != Offsets({("a", 0): 1}, {"a": 6})
    assert offsets.of({"a": 6}) == Offsets({("a", 0): 1}, {"a": 6})


def test_a_plain_tuple_finds_an_offset() -> None:
    offsets = Offsets({("a", 1): 5, ("a", 0): 3})
    assert offsets["a", 1] == 5
    assert list(offsets) == [("a", 0), ("a", 1)]
    assert offsets.get(StreamPartition("a", 2)) is None
    assert offsets.streams == ("a",)


@pytest.mark.parametrize(
    ("kept", "problem"),
    [
        ("not json", "are no offsets of streams"),
        ("[]", "not a JSON object"),
        ('{"a":5}', "stream 'a' is 5"),
        ('{"":{"0":1}}', "no name"),
        ('{"a":{"x":1}}', "'x' is not the number"),
        ('{"a":{"-1":1}}', "'-1' is not the number"),
        ('{"a":{"4294967296":1}}', "is not the number"),
        ('{"a":{"0":1,"00":1}}', "occurs twice"),
        ('{"a":{"0":-1}}', "offset of a/0 is -1"),
        ('{"a":{"0":"7"}}', "offset of a/0 is '7'"),
        ('{"a":{"0":1.5}}', "offset of a/0 is 1.5"),
        ('{"a":{"0":true}}', "offset of a/0 is True"),
        ('{"a":{"0":9223372036854775808}}', "offset of a/0"),
        ('{"a":{"0":1,"created":"now"}}', "creation time of stream 'a'"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(kept: str, problem: str) -> None:
    with pytest.raises(CheckpointMismatch, match=problem) as refusal:
        Offsets.from_checkpoint(kept)
    assert "checkpointLocation" in str(refusal.value)


def test_an_option_may_name_the_edges() -> None:
    assert offsets_from_option('{"a":{"0":-1,"1":-2,"2":7}}', "startingOffsets") == {
        ("a", 0): LATEST_OFFSET,
        ("a", 1): EARLIEST_OFFSET,
        ("a", 2): 7,
    }


def test_offsets_of_a_querys_progress_can_be_pasted_into_an_option() -> None:
    shown = Offsets({("a", 0): 3}, {"a": CREATED}).to_json()
    assert offsets_from_option(shown, "startingOffsets") == {("a", 0): 3}


@pytest.mark.parametrize("text", ["", "{}", '{"a":{}}', '{"a":{"0":-3}}', '{"a":[0]}', "7"])
def test_an_option_that_holds_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"endingOffsets is .* must be like"):
        offsets_from_option(text, "endingOffsets")


@given(plain, plain)
def test_ranges_have_each_offset_between_two_positions_once(
    start: dict[StreamPartition, int], end: dict[StreamPartition, int]
) -> None:
    ranges = {one.place: one for one in Offsets(start).ranges_to(Offsets(end))}
    for place, until in end.items():
        first = start.get(place, 0)
        if first < until:
            assert (ranges[place].start, ranges[place].end) == (first, until)
        else:
            assert place not in ranges
    assert ranges.keys() <= end.keys()


def test_a_stream_that_was_created_anew_is_read_from_0() -> None:
    start = Offsets({("a", 0): 5, ("b", 0): 5}, {"a": 1, "b": 1})
    end = Offsets({("a", 0): 3, ("b", 0): 6}, {"a": 2, "b": 1})
    assert start.ranges_to(end) == [OffsetRange("a", 0, 0, 3), OffsetRange("b", 0, 5, 6)]


def test_a_creation_that_is_not_known_says_nothing() -> None:
    offsets = Offsets({("a", 0): 5, ("b", 0): 5}, {"a": 1})
    assert offsets.recreated({"a": 0, "b": 7}) == frozenset()
    assert offsets.recreated({}) == frozenset()
    assert offsets.recreated({"a": 2, "b": 7}) == {"a"}


def test_offsets_change_by_partition_and_stay_what_they_were() -> None:
    offsets = Offsets({("a", 0): 5, ("a", 1): 6}, {"a": CREATED})
    changed = offsets.changed({("a", 1): 7, ("b", 0): 1})
    assert dict(changed) == {("a", 0): 5, ("a", 1): 7, ("b", 0): 1}
    assert changed.only([("b", 0), ("c", 0)]) == Offsets({("b", 0): 1})
    assert offsets == Offsets({("a", 0): 5, ("a", 1): 6}, {"a": CREATED})
    assert changed.created == {"a": CREATED}


@given(places, numbers, numbers)
def test_a_range_pickles_and_counts(place: StreamPartition, start: int, more: int) -> None:
    one = OffsetRange(*place, start, start + more)
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - our own bytes
    assert one.count == more
    assert one.last == start + more - 1
    assert one.place == place
