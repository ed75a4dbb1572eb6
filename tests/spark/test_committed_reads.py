"""Reading a range of offsets committed: as a reader of messages does, and the same each time."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from liftbridge_aio import Record
from liftbridge_aio.model import ACK_HEADER
from liftbridge_aio.spark.errors import DataLoss, ReadFailed
from liftbridge_aio.spark.read import committed_columns
from spark.conftest import EVERY_SERVER
from spark.test_range_reader import offsets, options, rows, task
from support.spark.halting_query import wait_for
from support.spark.log_client import LogClient
from support.transaction_logs import Producers, log_of, range_of, records_of

LOG = "- A1c B1c - A2c A3/1/0 - B2/2/0! -"


pytestmark = pytest.mark.usefixtures("no_connections_left")


@EVERY_SERVER
@pytest.mark.parametrize("seed", range(3))
def test_ranges_of_random_logs_show_what_the_rule_says(
    spark_broker: str, log: LogClient, stream_name: str, seed: int
) -> None:
    chance = random.Random(seed)
    producers = Producers(chance)
    while len(producers.words) < 150:
        producers.write()
    events = log_of(" ".join(producers.words))
    log.create(stream_name)
    log.publish(stream_name, records_of(events))
    how = options(spark_broker, stream_name, arrowBatchRows=str(chance.randrange(1, 40)))
    cuts = sorted({0, len(events), *(chance.randrange(len(events)) for _ in range(6))})
    for start, end in pairwise(cuts):
        found = offsets(task(log, stream_name, start, end), how)
        assert found == [row.offset for row in range_of(events, start, end, look_back=1000)]


@EVERY_SERVER
def test_a_row_has_all_its_columns(spark_broker: str, log: LogClient, stream_name: str) -> None:
    log.create(stream_name)
    log.publish(stream_name, records_of(log_of(LOG)))
    how = options(spark_broker, stream_name, includeHeaders="true", includeSubject="true")
    found = rows(task(log, stream_name, 4, 9), how)
    assert [row["value"].decode() for row in found] == ["A1c", "A2c", "-", "B1c", "-"]
    assert [row["offset"] for row in found] == [1, 4, 6, 2, 8]
    for row in found:
        assert row["headers"] == [{"key": "word", "value": b"yes"}]
        assert row["subject"] == stream_name
    everything = options(spark_broker, stream_name, isolationLevel="read_uncommitted")
    assert offsets(task(log, stream_name, 4, 9), everything) == [4, 5, 6, 7, 8]


def test_a_transaction_that_does_not_fit_is_read_again(
    spark_broker: str, log: LogClient, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_columns, "_MAX_MESSAGES", 10)
    words = [f"{name}{clock}c" for clock in range(1, 61) for name in "AB"]
    log.create(stream_name)
    log.publish(stream_name, records_of(log_of(" ".join([*words, "B61/1/0 A61/0/0 -"]))))
    how = options(spark_broker, stream_name, arrowBatchRows="25")
    found = [row["value"].decode() for row in rows(task(log, stream_name, 0, 123), how)]
    assert found == [*words[1::2], *words[::2], "-"]


@EVERY_SERVER
def test_a_transaction_whose_beginning_is_gone_is_a_loss_of_data(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, segment_max_bytes=1, retention_max_messages=4, cleaner_interval=2.0)
    for record in records_of(log_of("A1c A2c - A3/0/0 -")):
        log.publish(stream_name, [record])
    wait_for(lambda: log.read(stream_name)[0].offset == 1)
    committed = task(log, stream_name, 3, 5)
    with pytest.raises(DataLoss, match=r"began at offset 0, which.*failOnDataLoss=false"):
        offsets(committed, options(spark_broker, stream_name))
    kept = options(spark_broker, stream_name, failOnDataLoss="false")
    assert offsets(committed, kept) == [1, 4]
    assert offsets(task(log, stream_name, 2, 3), kept) == [2]


@EVERY_SERVER
def test_malformed_acks_are_treated_as_the_option_says(
    spark_broker: str, log: LogClient, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a transaction is read again, too; and each counts in the range where it is."""
    garbage = Record(b"garbage", headers={ACK_HEADER: b"garbage"})
    log.create(stream_name)
    before, after = records_of(log_of("- A1c"))[:2], records_of(log_of("- - - A2c A3/1/0 -"))[3:]
    log.publish(stream_name, [*before, garbage, *after])
    whole, second = task(log, stream_name, 0, 6), task(log, stream_name, 3, 6)

    with pytest.raises(ReadFailed, match="malformed") as caught:
        offsets(whole, options(spark_broker, stream_name))
    error = caught.value
    assert (error.stream, error.partition, error.offset) == (stream_name, 0, 2)
    assert "onMalformed=skip" in str(error)
    assert offsets(second, options(spark_broker, stream_name)) == [1, 3, 5]

    skipping = options(spark_broker, stream_name, onMalformed="skip")
    assert offsets(whole, skipping) == [0, 1, 3, 5]
    assert offsets(second, skipping) == [1, 3, 5]
    assert f"{stream_name}/0 has 1 malformed acks (offsets 2)" in caplog.text

    emitting = options(spark_broker, stream_name, onMalformed="emit")
    found = [(row["offset"], row["value"]) for row in rows(whole, emitting)]
    assert found == [(0, b"-"), (2, None), (1, b"A1c"), (3, b"A2c"), (5, b"-")]
    everything = options(spark_broker, stream_name, isolationLevel="read_uncommitted")
    assert offsets(whole, everything) == [0, 1, 2, 3, 4, 5]


def test_acks_of_a_later_format_ask_for_an_upgrade(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [Record(b"", headers={ACK_HEADER: b"\2"})])
    how = options(spark_broker, stream_name, onMalformed="skip")
    with pytest.raises(ReadFailed, match=r"has version 02 of.*upgrade liftbridge_aio"):
        offsets(task(log, stream_name, 0, 1), how)


def test_what_is_shown_does_not_change_when_more_is_committed(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    first = task(log, stream_name, 0, 4)
    log.publish(stream_name, records_of(log_of("A1c - B1c -")))
    how = options(spark_broker, stream_name)
    assert offsets(first, how) == [1, 3]
    log.publish(stream_name, records_of(log_of("- - - - A2/0/0"))[4:])
    assert offsets(first, how) == [1, 3]
    assert offsets(task(log, stream_name, 4, 5), how) == [0]
