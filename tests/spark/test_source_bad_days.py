"""The errors, losses and repeats of a streaming query when servers and streams fail."""

from __future__ import annotations

import json
import threading
import time

import pytest

pytest.importorskip("pyspark")

from liftbridge_aio import StreamOptions
from liftbridge_aio.spark.errors import (
    CheckpointMismatch,
    DataLoss,
    ServersUnreachable,
    SparkSourceError,
    StreamMissing,
)
from spark.conftest import EVERY_SERVER
from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import wait_for
from support.spark.log_client import LogClient, numbers
from support.spark.micro_batches import MicroBatches, flat

EARLIEST = {"startingOffsets": "earliest"}
LENIENT = {"failOnDataLoss": "false"}
QUICK = {"liftbridge.callTimeout": "0.5", "readTimeout": "1"}


pytestmark = pytest.mark.usefixtures("no_connections_left")


def values(batches: list[list[tuple[str, int, int, bytes]]]) -> list[bytes]:
    return [row[3] for row in flat(batches)]


def started(servers: str, log: LogClient, stream: str, partitions: int = 1) -> MicroBatches:
    """A query that has read four messages of partition 0."""
    log.create(stream, partitions=partitions)
    log.publish(stream, numbers(0, 4), partition=0)
    query = MicroBatches(servers, stream=stream, **EARLIEST)
    assert values(query.run()) == numbers(0, 4)
    return query


def told(error: SparkSourceError, stream: str, offset: int | None, *options: str) -> None:
    """Check that a text has the place and the options to change."""
    text = str(error)
    assert text.startswith(f"[{error.code}]")
    assert f"stream={stream!r}, partition=0" in text
    if offset is not None:
        assert f"offset={offset}" in text
    for option in options:
        assert option in text


# Streams


@EVERY_SERVER
def test_a_stream_that_was_deleted(spark_broker: str, log: LogClient, stream_name: str) -> None:
    query = started(spark_broker, log, stream_name)
    log.delete(stream_name)
    with pytest.raises(StreamMissing, match="no longer exists") as caught:
        query.run()
    told(caught.value, stream_name, 4, "checkpointLocation", "failOnDataLoss=false")


@EVERY_SERVER
@pytest.mark.parametrize("count", [2, 9], ids=["shorter", "longer"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_a_stream_that_was_created_again(
    spark_broker: str, log: LogClient, stream_name: str, count: int, running: bool
) -> None:
    query = started(spark_broker, log, stream_name)
    log.delete(stream_name)
    log.create(stream_name)
    log.publish(stream_name, numbers(100, 100 + count))
    if not running:
        query.restart()
    for _ in range(2):  # it stays so
        with pytest.raises(DataLoss, match="deleted and created again") as caught:
            query.run()
        told(caught.value, stream_name, 4, "checkpointLocation", "failOnDataLoss=false")
    query.restart(**LENIENT)
    assert values(query.run()) == numbers(100, 100 + count)
    log.publish(stream_name, numbers(200, 202))
    assert values(query.run()) == numbers(200, 202)


def test_a_batch_that_was_cut_short_by_the_end_of_its_stream(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    query = started(spark_broker, log, stream_name)
    log.delete(stream_name)
    with pytest.raises(StreamMissing):
        query.read_last()
    log.create(stream_name)
    log.publish(stream_name, numbers(100, 110))
    query.restart()
    with pytest.raises(DataLoss, match="before its offsets 0 to 3 were read") as caught:
        query.read_last()
    told(caught.value, stream_name, 0, "checkpointLocation")
    query.restart(**LENIENT)
    assert query.read_last() == []
    assert values(query.run()) == numbers(100, 110)


@EVERY_SERVER
def test_a_stream_that_was_created_again_with_other_partitions(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    query = started(spark_broker, log, stream_name, partitions=3)
    log.delete(stream_name)
    log.create(stream_name, partitions=2)
    log.publish(stream_name, numbers(100, 106), partition=1)
    with pytest.raises(CheckpointMismatch, match="the stream now ends at partition 1") as caught:
        query.run()
    assert "checkpointLocation" in str(caught.value)
    query.restart(**LENIENT)
    assert values(query.run()) == numbers(100, 106)


def test_more_partitions_than_before_are_another_stream_too(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    query = started(spark_broker, log, stream_name)
    log.delete(stream_name)
    log.create(stream_name, partitions=2)
    log.publish(stream_name, numbers(100, 106), partition=1)
    with pytest.raises(DataLoss, match="created again") as caught:
        query.run()
    told(caught.value, stream_name, 4)


def test_a_checkpoint_of_another_stream(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    query = started(spark_broker, log, stream_name)
    other = log.create(f"{stream_name}-other")
    log.publish(other, numbers(100, 103))
    query.restart(stream=other)
    with pytest.raises(CheckpointMismatch, match="do not name") as caught:
        query.run()
    told(caught.value, stream_name, 4, "checkpointLocation")


def test_a_checkpoint_of_another_source(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    query = started(spark_broker, log, stream_name)
    query.offsets[-1] = json.dumps({"logOffset": 3})
    with pytest.raises(CheckpointMismatch, match="logOffset") as caught:
        query.run()
    assert "checkpointLocation" in str(caught.value)


def test_a_checkpoint_of_kafkas_source_is_refused(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 4), partition=0)
    query = MicroBatches(spark_broker, stream=stream_name, **EARLIEST, **LENIENT)
    query.offsets += [json.dumps({stream_name: {"0": offset}}) for offset in (1, 2)]
    for go_on in (query.run, query.read_last):  # also where its last batch was cut short
        with pytest.raises(CheckpointMismatch, match="such as Kafka's") as caught:
            go_on()
        told(caught.value, stream_name, 2, "checkpointLocation", "startingOffsets")


def test_a_stream_that_is_not_there_at_the_start(spark_broker: str, stream_name: str) -> None:
    query = MicroBatches(spark_broker, stream=stream_name)
    with pytest.raises(StreamMissing, match=stream_name):
        query.run()


def test_one_of_two_streams_is_deleted_and_the_other_goes_on_if_allowed(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    one, other = (log.create(f"{stream_name}-{letter}") for letter in "ab")
    for stream in (one, other):
        log.publish(stream, numbers(0, 3))
    query = MicroBatches(spark_broker, subscribe=f"{one},{other}", **EARLIEST)
    assert len(flat(query.run())) == 6
    log.delete(one)
    log.publish(other, numbers(3, 5))
    with pytest.raises(StreamMissing) as caught:
        query.run()
    told(caught.value, one, 3)
    query.restart(**LENIENT)
    assert values(query.run()) == numbers(3, 5)
    assert query.where() == {other: {"0": 5}}


# Retention


@EVERY_SERVER
def test_messages_that_retention_took_before_they_were_read(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    # v1.9.0 can end as a process where it cleans while it is published to.
    options = StreamOptions(segment_max_bytes=1, retention_max_messages=3, cleaner_interval=2.0)
    log.run(lambda client: client.create_stream(stream_name, options=options))
    query = MicroBatches(spark_broker, stream=stream_name)
    assert query.run() == []
    for number in range(10):
        log.publish(stream_name, numbers(number, number + 1))
    wait_for(lambda: [message.offset for message in log.read(stream_name)] == [7, 8, 9])
    with pytest.raises(DataLoss, match="offsets 0 to 6 were removed") as caught:
        query.run()
    told(caught.value, stream_name, 0, "retention", "failOnDataLoss=false")
    query.restart(**LENIENT)
    assert [row[2] for row in query.read_last()] == [7, 8, 9]
    assert query.run() == []


# Servers


def test_no_server_at_the_start(own_broker: BrokerThread, stream_name: str) -> None:
    own_broker.stop()
    query = MicroBatches(own_broker.address, stream=stream_name, **QUICK)
    began = time.monotonic()
    with pytest.raises(ServersUnreachable, match=own_broker.address) as caught:
        query.run()
    assert 0.5 < time.monotonic() - began < 5
    assert str(caught.value).startswith("[LIFTBRIDGE_UNREACHABLE]")
    assert "servers" in str(caught.value)
    assert "readTimeout" in str(caught.value)


def test_a_server_that_comes_late_is_waited_for(own_broker: BrokerThread, stream_name: str) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        log.publish(stream_name, numbers(0, 5))
    own_broker.stop()
    late = threading.Timer(0.7, own_broker.start)
    late.start()
    query = MicroBatches(
        own_broker.address, stream=stream_name, **EARLIEST, **QUICK | {"readTimeout": "20"}
    )
    assert values(query.run()) == numbers(0, 5)
    late.join()


def test_a_server_that_is_away_between_batches_is_waited_for(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        query = started(own_broker.address, log, stream_name)
        log.publish(stream_name, numbers(4, 6))
        query.restart(**{"liftbridge.callTimeout": "0.2", "readTimeout": "20"})
        assert values(query.run()) == numbers(4, 6)
        log.publish(stream_name, numbers(6, 9))
    own_broker.stop()
    back = threading.Timer(1.5, own_broker.start)  # a call alone would not wait for so long
    back.start()
    assert values(query.run()) == numbers(6, 9)
    back.join()


def test_a_server_that_is_away_for_longer_costs_and_repeats_no_row(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        query = started(own_broker.address, log, stream_name)
        query.restart(maxOffsetsPerTrigger="2", **QUICK)
        log.publish(stream_name, numbers(4, 9))
    own_broker.stop()
    position = query.offsets[-1]
    with pytest.raises(SparkSourceError, match="readTimeout"):
        query.run()
    assert query.offsets[-1] == position
    own_broker.start()
    query.restart(readTimeout="20")
    assert values(query.run()) == numbers(4, 9)
