"""Records that others may have written: as they were, or refused."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from liftbridge_aio.durable_streams.core.records import decode_record
from liftbridge_aio.durable_streams.core.registry import Entry, Fork
from liftbridge_aio.durable_streams.core.segments import Segment
from liftbridge_aio.durable_streams.core.stream_log import StreamLog
from liftbridge_aio.durable_streams.core.subscriptions import Link, Subscription

ENTRY: Final = Entry(
    log="ds.1",
    content_type="text/plain",
    ttl=60,
    expiry=7.5,
    fork=Fork("/source", 3, 4, 5),
    ancestors=(Segment("ds.0", 1, 2, 3), Segment("ds.9", 4, 5, 6)),
    deleted=True,
)
SUBSCRIPTION: Final = Subscription(
    id="a", kind="wake", named=("/a", "/b"), links={"/a": Link(explicit=True, acked="7")}
)
FRACTIONS: Final = ("expiry", "touched", "lease_until", "not_before")
"""The fields that may have fractions."""


def test_records_come_back_as_they_were() -> None:
    assert decode_record(Entry, ENTRY.to_json()) == ENTRY
    assert Subscription.from_json(SUBSCRIPTION.to_json()) == SUBSCRIPTION


@pytest.mark.parametrize("wrong", [{}, [[]], ["a"], "text", 1.5, True, [["ds.0", 1, 2]]])
@pytest.mark.parametrize("record", [ENTRY, SUBSCRIPTION], ids=["entry", "subscription"])
def test_a_field_of_another_type_is_refused(record: Entry | Subscription, wrong: Any) -> None:
    fields = json.loads(record.to_json())
    for name, value in fields.items():
        if type(value) is type(wrong) or (type(wrong) is float and name.endswith(FRACTIONS)):
            continue
        if wrong == {} and name in {"links", "snapshot"}:
            continue
        if wrong == "text" and value is None:  # text or nothing, most of them
            continue
        with pytest.raises(ValueError):
            decode_record(type(record), json.dumps({**fields, name: wrong}).encode())


@pytest.mark.parametrize(
    "value",
    [b"7", b"[]", b"{}", b'{"log":"a"}', b'{"other":1}', b"[" * 100_000, b"\xff"],
    ids=["number", "list", "empty", "incomplete", "unknown", "nested", "no text"],
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError):
        decode_record(Entry, value)
    with pytest.raises(ValueError):
        StreamLog.from_snapshot(value)
