"""A server's decisions on appends of producers, row by row."""

from __future__ import annotations

import pytest

from liftbridge_aio.durable_streams.core.producer_table import (
    Decision,
    ProducerState,
    Verdict,
    judge,
)

STATE = ProducerState(5, 3)


@pytest.mark.parametrize(
    ("state", "epoch", "seq", "expected"),
    [
        (None, 0, 0, Decision(Verdict.ACCEPTED, ProducerState(0, 0))),
        (None, 7, 0, Decision(Verdict.ACCEPTED, ProducerState(7, 0))),
        (None, 0, 2, Decision(Verdict.SEQUENCE_GAP, None, 0)),
        (STATE, 4, 0, Decision(Verdict.STALE_EPOCH, STATE)),
        (STATE, 4, 9, Decision(Verdict.STALE_EPOCH, STATE)),
        (STATE, 6, 0, Decision(Verdict.ACCEPTED, ProducerState(6, 0))),
        (STATE, 6, 1, Decision(Verdict.BAD_START, STATE)),
        (STATE, 5, 0, Decision(Verdict.DUPLICATE, STATE)),
        (STATE, 5, 3, Decision(Verdict.DUPLICATE, STATE)),
        (STATE, 5, 4, Decision(Verdict.ACCEPTED, ProducerState(5, 4))),
        (STATE, 5, 5, Decision(Verdict.SEQUENCE_GAP, STATE, 4)),
    ],
)
def test_each_row_of_the_table(
    state: ProducerState | None, epoch: int, seq: int, expected: Decision
) -> None:
    assert judge(state, epoch, seq) == expected
