"""The start of the first batch of a query, which Spark does not store."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from liftbridge_aio.spark.core.offsets import (
    Offsets,
    end_of_first_batch,
    offsets_from_option,
    start_of_batch,
)
from liftbridge_aio.spark.errors import DataLoss
from support.spark.log_client import LogClient, numbers
from support.spark.micro_batches import MicroBatches, flat

PLACES = st.tuples(st.sampled_from("ab"), st.integers(0, 11))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 99))
CREATED = {"a": 17, "b": 18}
SPARKS_OWN = {"c": {"0": 5}}
"""The start that Spark passes when it runs the batch again."""


@given(OFFSETS, OFFSETS)
def test_the_end_of_the_first_batch_says_where_it_starts(
    begins: dict[tuple[str, int], int], grows: dict[tuple[str, int], int]
) -> None:
    start = Offsets(begins, CREATED)
    end = Offsets({**begins, **{k: begins.get(k, 0) + more for k, more in grows.items()}}, CREATED)
    kept = end_of_first_batch(start, end)
    assert json.dumps(kept) == json.dumps(kept, sort_keys=True)
    assert Offsets.from_checkpoint(kept) == end
    text = json.loads(json.dumps(kept))
    if start:
        assert start_of_batch(SPARKS_OWN, text).ranges_to(end) == start.ranges_to(end)
    assert start_of_batch(start.to_dict(), end.to_dict()) == start  # of any other batch


def test_a_stream_that_was_created_anew_meanwhile_starts_at_0() -> None:
    start, end = Offsets({("a", 0): 7}, {"a": 1}), Offsets({("a", 0): 9}, {"a": 2})
    kept = end_of_first_batch(start, end)
    assert start_of_batch(SPARKS_OWN, kept).ranges_to(end) == start.ranges_to(end)


def test_the_end_of_a_first_batch_can_be_pasted_into_an_option() -> None:
    kept = end_of_first_batch(Offsets({("a", 0): 7}), Offsets({("a", 0): 9}, {"a": 2}))
    assert offsets_from_option(json.dumps(kept), "startingOffsets") == {("a", 0): 9}


def test_a_first_batch_from_the_end_is_the_same_when_spark_asks_again(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 3))
    query = MicroBatches(spark_broker, stream=stream_name)
    query.offsets.append(json.dumps(query.reader.initialOffset()))
    log.publish(stream_name, numbers(3, 6))
    rows = [(stream_name, 0, n, b"%d" % n) for n in range(3, 6)]
    assert query.run() == [rows]
    log.publish(stream_name, numbers(6, 9))
    assert query.reader.initialOffset()[stream_name]["0"] == 3
    query.restart()  # after a crash before the first batch was done
    assert query.reader.initialOffset()[stream_name]["0"] == 9
    assert query.read_last() == rows
    assert [row[2] for row in flat(query.run())] == [6, 7, 8]


def test_what_aged_out_before_the_first_batch_runs_again_is_a_loss(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, segment_max_bytes=1, retention_max_messages=3, cleaner_interval=0.05)
    log.publish(stream_name, numbers(0, 1))
    query = MicroBatches(spark_broker, stream=stream_name, startingOffsets="earliest")
    assert len(flat(query.run())) == 1
    for number in range(1, 10):
        log.publish(stream_name, numbers(number, number + 1))
    deadline = time.monotonic() + 20
    while log.read(stream_name)[0].offset == 0:
        assert time.monotonic() < deadline, "nothing aged out"
    query.restart()
    assert query.reader.initialOffset()[stream_name]["0"] > 0
    with pytest.raises(DataLoss, match="offsets 0 to 0 were removed"):
        query.read_last()
