from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import InvalidRequest, WrongType
from liftbridge_aio.model import Partitioner
from liftbridge_aio.partitioner import by_key, choose_partition, round_robin


@pytest.mark.parametrize(
    ("key", "partitions"),
    [
        (b"foo", (2, 1, 9)),
        (b"bar", (2, 2, 8)),
        (b"key-1", (2, 2, 8)),
        (b"hello", (1, 2, 0)),
        (b"", (0, 0, 0)),
        (None, (0, 0, 0)),
    ],
)
def test_keys_go_where_the_go_client_puts_them(
    key: bytes | None, partitions: tuple[int, int, int]
) -> None:
    assert tuple(by_key("s", key, b"", count) for count in (3, 4, 10)) == partitions


@given(st.none() | st.binary(), st.integers(1, 1000), st.binary())
def test_only_the_key_and_the_count_matter(key: bytes | None, count: int, value: bytes) -> None:
    partition = by_key("one", key, value, count)
    assert partition in range(count)
    assert partition == by_key("two", key, b"", count)


def test_round_robin_counts_each_stream_and_each_instance_by_itself() -> None:
    choose, other = round_robin(), round_robin()
    assert [choose("a", None, b"", 4), choose("b", None, b"", 4), choose("a", None, b"", 4)] == [
        0,
        0,
        1,
    ]
    assert other("a", None, b"", 4) == 0


def test_round_robin_starts_where_it_is_told_and_never_overflows() -> None:
    start = 2**31 - 1
    choose = round_robin(start=start)
    chosen = [choose("s", None, b"", 3) for _ in range(3)]
    assert chosen == [start % 3, (start + 1) % 3, (start + 2) % 3]


@given(st.integers(1, 20), st.integers(1, 10), st.integers(-100, 100))
def test_round_robin_shares_evenly(count: int, rounds: int, start: int) -> None:
    choose = round_robin(start=start)
    shares = Counter(choose("s", None, b"", count) for _ in range(count * rounds))
    assert shares == dict.fromkeys(range(count), rounds)


def test_both_are_partitioners_to_the_type_checker() -> None:
    ready: list[Partitioner] = [by_key, round_robin()]
    assert all(partitioner("s", None, b"", 1) == 0 for partitioner in ready)


async def asynchronous(*_: object) -> int:
    return 0


@pytest.mark.parametrize(
    ("partitioner", "refusal"),
    [
        (asynchronous, WrongType),  # and no warning of a coroutine that was never awaited
        (lambda *_: True, WrongType),
        (lambda *_: "1", WrongType),
        (3, WrongType),
        (int, WrongType),
        (lambda *_: 3, InvalidRequest),
        (lambda *_: -1, InvalidRequest),
    ],
)
def test_what_is_no_partition_is_refused(partitioner: Any, refusal: type[InvalidRequest]) -> None:
    with pytest.raises(refusal, match="partitioner") as caught:
        choose_partition(partitioner, "s", None, b"", 3)
    assert caught.value.stream == "s"


@pytest.mark.parametrize(("key", "value"), [("k", b""), (bytearray(b"k"), b""), (None, "v")])
def test_keys_and_values_that_are_not_bytes_are_refused(key: Any, value: Any) -> None:
    with pytest.raises(WrongType, match="must be bytes, not "):
        choose_partition(by_key, "s", key, value, 3)


def by_region(stream: str, key: bytes) -> int:  # noqa: ARG001 - called with four
    raise AssertionError


def test_a_partitioner_with_other_parameters_is_named() -> None:
    with pytest.raises(WrongType, match=r"by_region.* does not take") as caught:
        choose_partition(by_region, "s", None, b"", 3)  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, TypeError)
