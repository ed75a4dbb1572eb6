"""Reading a range of offsets: its rows are a function of the log alone."""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from liftbridge_aio import Client, Record
from liftbridge_aio.spark.core.offsets import OffsetRange, split
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.errors import (
    DataLoss,
    ReadFailed,
    ReadStalled,
    ServersUnreachable,
    SparkSourceError,
    StreamMissing,
)
from liftbridge_aio.spark.read.range_reader import ReadTask, read_range
from spark.conftest import EVERY_SERVER
from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import wait_for
from support.spark.log_client import LogClient

pytest.importorskip("pyarrow")


pytestmark = pytest.mark.usefixtures("no_connections_left")


def options(servers: str, stream: str, **more: str) -> ReadOptions:
    return ReadOptions.parse({"servers": servers, "stream": stream, **more}, streaming=True)


def task(log: LogClient, stream: str, start: int, end: int, partition: int = 0) -> ReadTask:
    async def created(client: Client) -> int:
        return (await client.fetch_metadata([stream])).streams[stream].creation_timestamp

    wanted = OffsetRange(stream, partition, start, end)
    return ReadTask(wanted, log.run(created), streaming=True)


def rows(given: ReadTask, how: ReadOptions) -> list[dict[str, Any]]:
    return [row for batch in read_range(given, how) for row in batch.to_pylist()]


def offsets(given: ReadTask, how: ReadOptions) -> list[int]:
    return [row["offset"] for row in rows(given, how)]


@EVERY_SERVER
def test_a_range_is_the_same_in_every_piece_and_at_every_time(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    headers = {"z": b"1", "a": b"2", "m": b""}
    log.publish(stream_name, [Record(b"%d" % number, b"k", headers) for number in range(50)])
    how = options(spark_broker, stream_name, includeHeaders="true", includeTimestampNanos="true")
    whole = task(log, stream_name, 5, 45)
    first = rows(whole, how)
    assert [row["offset"] for row in first] == list(range(5, 45))
    assert [row["value"] for row in first] == [b"%d" % number for number in range(5, 45)]
    log.publish(stream_name, [b"later"] * 20)
    assert rows(whole, how) == first
    pieces = split([whole.wanted], min_partitions=7)
    assert len(pieces) == 7
    assert [row for piece in pieces for row in rows(replace(whole, wanted=piece), how)] == first


def test_batches_are_as_large_as_is_asked_and_the_rest_is_the_last(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"v"] * 1050)
    how = options(spark_broker, stream_name, arrowBatchRows="100")
    batches = list(read_range(task(log, stream_name, 0, 1050), how))
    assert [batch.num_rows for batch in batches] == [100] * 10 + [50]


def test_large_messages_make_small_batches(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [bytes(900_000)] * 12)
    batches = list(read_range(task(log, stream_name, 0, 12), options(spark_broker, stream_name)))
    assert sum(batch.num_rows for batch in batches) == 12
    assert max(batch.nbytes for batch in batches) <= 8 * 2**20
    assert len(batches) == 2


def test_a_reading_that_is_given_up_ends_at_once(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"v"] * 1000)
    batches = read_range(
        task(log, stream_name, 0, 1000), options(spark_broker, stream_name, arrowBatchRows="10")
    )
    assert next(batches).num_rows == 10
    batches.close()  # type: ignore[attr-defined]  # as Spark does where it wants no more


def test_a_task_and_its_options_pickle(spark_broker: str, log: LogClient, stream_name: str) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"v"] * 3)
    given, how = task(log, stream_name, 0, 3), options(spark_broker, stream_name)
    assert offsets(*pickle.loads(pickle.dumps((given, how)))) == [0, 1, 2]  # noqa: S301 - our own


# Gaps


@pytest.fixture
def compacted(log: LogClient, stream_name: str) -> str:
    """Offsets 2, 5, 8, 11 … 29 and 30 are left of 0 to 30."""
    # Servers refuse readers while they clean, so not all the time.
    log.create(stream_name, segment_max_bytes=1, compact_enabled=True, cleaner_interval=2.0)

    async def fill(client: Client) -> None:
        for number in range(31):
            await client.publish(stream_name, b"%d" % number, key=b"%d" % (number // 3))

    log.run(fill)
    wait_for(lambda: len(log.read(stream_name)) == 11)
    return stream_name


@EVERY_SERVER
def test_gaps_of_compaction_are_no_loss(spark_broker: str, log: LogClient, compacted: str) -> None:
    kept = [*range(2, 30, 3), 30]
    how = options(spark_broker, compacted, readTimeout="20")
    assert offsets(task(log, compacted, 2, 31), how) == kept
    assert offsets(task(log, compacted, 3, 31), how) == kept[1:]
    assert offsets(task(log, compacted, 4, 16), how) == [5, 8, 11, 14]
    assert offsets(task(log, compacted, 9, 11), how) == []
    whole = task(log, compacted, 2, 31)
    pieces = split([whole.wanted], max_records=2)
    found = [one for piece in pieces for one in offsets(replace(whole, wanted=piece), how)]
    assert found == kept


@pytest.fixture
def aged(log: LogClient, stream_name: str) -> str:
    """Offsets 7, 8 and 9 are left of 0 to 9."""
    # v1.9.0 can end as a process where it cleans while it is published to.
    log.create(stream_name, segment_max_bytes=1, retention_max_messages=3, cleaner_interval=2.0)
    for number in range(10):
        log.publish(stream_name, [b"%d" % number])
    wait_for(lambda: [message.offset for message in log.read(stream_name)] == [7, 8, 9])
    return stream_name


@EVERY_SERVER
def test_what_retention_removed_is_loss_or_left_out_where_that_is_accepted(
    spark_broker: str, log: LogClient, aged: str, caplog: pytest.LogCaptureFixture
) -> None:
    how = options(spark_broker, aged, readTimeout="20")
    with pytest.raises(DataLoss) as caught:
        offsets(task(log, aged, 4, 10), how)
    text = str(caught.value)
    assert text.startswith("[LIFTBRIDGE_DATA_LOSS] offsets 4 to 6 were removed")
    assert f"stream={aged!r}, partition=0, offset=4" in text
    assert "failOnDataLoss=false" in text
    with pytest.raises(DataLoss, match="offsets 2 to 5 were removed"):
        offsets(task(log, aged, 2, 6), how)
    assert offsets(task(log, aged, 7, 10), how) == [7, 8, 9]
    how = options(spark_broker, aged, failOnDataLoss="false", readTimeout="20")
    assert offsets(task(log, aged, 4, 9), how) == [7, 8]
    assert "offsets 4 to 6 were removed" in caplog.text
    assert offsets(task(log, aged, 2, 6), how) == []


# A log that is not what it was


def test_a_log_that_ends_before_the_range_is_told_soon(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"v"] * 5)
    given = task(log, stream_name, 2, 9)
    began = time.monotonic()
    with pytest.raises(DataLoss, match="the log ends before offset 5") as caught:
        offsets(given, options(spark_broker, stream_name, readTimeout="30"))
    assert time.monotonic() - began < 15
    assert caught.value.offset == 5
    accepting = options(spark_broker, stream_name, failOnDataLoss="false")
    assert offsets(given, accepting) == [2, 3, 4]


@EVERY_SERVER
def test_a_stream_that_was_created_again_is_not_read_as_the_first(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"first"] * 5)
    given = task(log, stream_name, 0, 5)
    log.delete(stream_name)
    log.create(stream_name)
    log.publish(stream_name, [b"second"] * 5)
    with pytest.raises(DataLoss, match="deleted and created again") as caught:
        rows(given, options(spark_broker, stream_name))
    assert (caught.value.stream, caught.value.partition) == (stream_name, 0)
    assert rows(given, options(spark_broker, stream_name, failOnDataLoss="false")) == []


@EVERY_SERVER
def test_a_stream_that_is_gone_is_told(spark_broker: str, log: LogClient, stream_name: str) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"v"] * 5)
    given = task(log, stream_name, 0, 5)
    log.delete(stream_name)
    how = {"liftbridge.notFoundTimeout": "0.2", "readTimeout": "5"}
    with pytest.raises(StreamMissing, match="does not exist") as caught:
        rows(given, options(spark_broker, stream_name, **how))
    assert caught.value.stream == stream_name
    assert rows(given, options(spark_broker, stream_name, failOnDataLoss="false", **how)) == []


# Servers that are away


def broken(servers: str, stream: str, read_timeout: float) -> ReadOptions:
    return options(
        servers,
        stream,
        arrowBatchRows="10",
        readTimeout=str(read_timeout),
        **{"liftbridge.callTimeout": "1", "liftbridge.maxBufferedBytes": "1000000"},
    )


def large(log: LogClient, stream: str, count: int) -> None:
    """Fill a stream with more than travels ahead of a reader."""
    log.create(stream)
    log.publish(stream, [b"%d" % number + bytes(200_000) for number in range(count)])


def test_a_server_that_is_away_for_a_while_costs_no_row(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        large(log, stream_name, 60)
        given = task(log, stream_name, 0, 60)
    batches = read_range(given, broken(own_broker.address, stream_name, 30))
    found = next(batches).column("offset").to_pylist()
    own_broker.stop()
    back = threading.Timer(1.0, own_broker.start)
    back.start()
    for batch in batches:
        found += batch.column("offset").to_pylist()
    back.join()
    assert found == list(range(60))


def test_a_server_that_is_away_for_too_long_is_told_with_the_place(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        large(log, stream_name, 60)
        given = task(log, stream_name, 0, 60)
    batches = read_range(given, broken(own_broker.address, stream_name, 1.5))
    read = next(batches).column("offset").to_pylist()
    own_broker.stop()
    with pytest.raises(SparkSourceError) as caught:  # noqa: PT012 - what came before counts
        for batch in batches:
            read += batch.column("offset").to_pylist()
    assert isinstance(caught.value, ReadFailed | ServersUnreachable | ReadStalled)
    assert "readTimeout" in str(caught.value)
    assert own_broker.address in str(caught.value)
    assert (caught.value.stream, caught.value.partition) == (stream_name, 0)
    assert read == list(range(len(read)))
    assert caught.value.offset is not None
    assert 0 < len(read) <= caught.value.offset + 1 < 60
    own_broker.start()
    assert offsets(given, broken(own_broker.address, stream_name, 10)) == list(range(60))


def test_silence_of_a_log_that_has_the_messages_is_a_failure_and_no_loss(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        log.publish(stream_name, [b"v"] * 5)
        given = task(log, stream_name, 1, 5)
    how = options(own_broker.address, stream_name, readTimeout="0.3")
    stalled = own_broker._broker.faults.stall(
        "Subscribe", when=lambda request: request.start_offset == 1, times=1
    )
    with pytest.raises(ReadStalled, match="readTimeout") as caught:
        rows(given, how)
    assert stalled.applied == 1
    assert (caught.value.stream, caught.value.partition, caught.value.offset) == (stream_name, 0, 1)
    assert offsets(given, how) == [1, 2, 3, 4]
