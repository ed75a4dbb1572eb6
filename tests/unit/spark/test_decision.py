"""The decision of a batch, as bytes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.spark.core.decision import Decision
from liftbridge_aio.spark.core.one_shot_producer import UncommittedRows

clocks = st.integers(1, 2**64 - 1)
begins = st.tuples(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
rows = st.builds(
    UncommittedRows,
    st.binary(min_size=6, max_size=6),
    clocks,
    clocks,
    st.lists(begins, max_size=4).map(tuple),
)
decisions = st.builds(
    Decision,
    st.uuids(),
    st.integers(0, 2**63 - 1),
    st.lists(rows, max_size=4).map(tuple),
    st.none() | st.integers(0, 2**64 - 1),
)


@given(decisions)
def test_a_decision_is_decoded_as_it_was(decision: Decision) -> None:
    assert Decision.decode(decision.encode()) == decision


@given(decisions, st.data())
def test_anything_else_is_refused(decision: Decision, data: st.DataObject) -> None:
    encoded = decision.encode()
    with pytest.raises(MalformedData):
        Decision.decode(b"\x03" + encoded[1:])
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    try:
        shorter = Decision.decode(cut)
    except MalformedData:
        return
    assert shorter.rows == decision.rows[: len(shorter.rows)]  # cut between two producers


def test_a_decision_without_a_digest_is_as_it_was_before_there_were_any() -> None:
    before = bytes.fromhex(
        "01000000000000000000000000000000050000000000000007000000010001730102030405060000000000000010"
        "0000000000000030000000010000000000000002000000000000000b"
    )
    rows = (UncommittedRows(bytes(range(1, 7)), 16, 48, (("s", 2, 11),)),)
    decision = Decision(UUID(int=5), 7, rows)
    assert decision.encode() == before
    assert Decision.decode(before) == decision


def test_a_large_batch_is_encoded_compactly() -> None:
    places = tuple(("a-stream-of-many-partitions", number, 2**40) for number in range(50))
    winners = tuple(UncommittedRows(b"%06d" % task, 2**62, 2**62, places) for task in range(200))
    assert len(Decision(UUID(int=5), 7, winners).encode()) < 200_000
