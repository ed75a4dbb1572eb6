from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import InvalidRequest, PartitionInfo, PartitionNotFound, StreamInfo, by_key
from liftbridge_aio.nats import partition_subject
from liftbridge_aio.nats.core.destinations import Destination, destination


def stream(count: int, subject: str = "shop.orders") -> StreamInfo:
    return StreamInfo(
        "orders", subject, {number: PartitionInfo(number, "a") for number in range(count)}
    )


def test_partition_0_has_the_subject_itself() -> None:
    assert destination(stream(3)) == Destination("shop.orders", "orders", 0)
    assert partition_subject("shop.orders", 0) == "shop.orders"


def test_every_other_partition_has_one_of_its_own() -> None:
    found = destination(stream(3), partition=2)
    assert found == Destination("shop.orders.2", "orders", 2)
    assert partition_subject("shop.orders", 2) == "shop.orders.2"


@given(st.binary(max_size=20), st.integers(1, 12))
def test_a_key_leads_to_the_partition_that_the_client_takes(key: bytes, count: int) -> None:
    assert destination(stream(count), key=key).partition == by_key("orders", key, b"", count)


def test_a_given_partition_beats_the_key() -> None:
    assert destination(stream(3), partition=1, key=b"k").partition == 1


def test_a_subject_is_taken_as_it_is() -> None:
    assert destination("a.b.7", key=b"k") == Destination("a.b.7", None, None)
    assert destination("a.b", stream="orders") == Destination("a.b", "orders", None)


@pytest.mark.parametrize("subject", ["", "a..b", "a b", ">", "a.>", "a.*", "*", "a\r\nPUB b 1"])
def test_what_nothing_can_be_published_to_is_refused(subject: str) -> None:
    with pytest.raises(InvalidRequest, match="no subject to publish to"):
        destination(subject)
    with pytest.raises(InvalidRequest, match="no subject to publish to"):
        destination(stream(1, subject))


@pytest.mark.parametrize("arguments", [{"partition": -1}, {"partition": "1"}, {"stream": "other"}])
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        destination(stream(3), **arguments)


def test_a_partition_that_there_is_not_is_refused() -> None:
    with pytest.raises(PartitionNotFound, match="has 3 partitions"):
        destination(stream(3), partition=3)


def test_a_partition_of_a_bare_subject_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRequest, match="partition_subject"):
        destination("orders", partition=1)


def test_a_name_is_no_stream_info() -> None:
    wrong: Any = b"orders"
    with pytest.raises(InvalidRequest, match="a subject or a StreamInfo"):
        destination(wrong)
