"""The record of a producer's checkpoint: what is stored comes back, and others are refused."""

from __future__ import annotations

import pytest

from liftbridge_aio import Checkpoint, MalformedData
from liftbridge_aio.model import StartPosition
from liftbridge_aio.transactions import AckEntry, AckIntent, NewerFormat
from liftbridge_aio.transactions.producer_checkpoint import ProducerCheckpoint, decode
from liftbridge_aio.wire.transactions_codec import (
    WireProducerCheckpoint,
    encode_producer_checkpoint,
)

PRODUCER = b"\x01prodA"


def test_what_is_stored_comes_back() -> None:
    position = Checkpoint(
        *(StartPosition.OFFSET, 7),
        stream="a/b",
        partition=3,
        created=9,
        delivered=2,
        producers=((PRODUCER, 160),),
    )
    intents = (
        AckIntent("out", 0, AckEntry(PRODUCER, 320, 5, 160, final=True)),
        AckIntent("out", 1, AckEntry(PRODUCER, 160, -1, 160, final=True)),
    )
    stored = ProducerCheckpoint(PRODUCER, 480, {("a/b", 3): position}, intents)
    assert decode(stored.encode()) == stored
    assert decode(ProducerCheckpoint().encode()) == ProducerCheckpoint()


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (b"\xff", MalformedData),
        (b"", MalformedData),
        (
            encode_producer_checkpoint(WireProducerCheckpoint(2, PRODUCER, 1, {}, {})),
            NewerFormat,
        ),
        (
            encode_producer_checkpoint(
                WireProducerCheckpoint(1, PRODUCER, 1, {"no partition": (0, b"")}, {})
            ),
            MalformedData,
        ),
    ],
    ids=["bytes", "empty", "newer", "partition"],
)
def test_what_is_no_checkpoint_is_refused(record: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(record)
