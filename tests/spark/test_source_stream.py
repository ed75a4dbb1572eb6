"""`spark.readStream.format("liftbridge")`: on a real Spark, and called as Spark calls it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from liftbridge_aio.cli.group_positions import fetch_position
from spark.conftest import EVERY_SERVER
from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import wait_for
from support.spark.log_client import LogClient, numbers
from support.spark.micro_batches import MicroBatches, flat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EARLIEST = {"startingOffsets": "earliest"}


pytestmark = pytest.mark.usefixtures("no_connections_left")


class Collected:
    """The rows of each micro-batch of queries that write to it."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []

    def __call__(self, frame: DataFrame, batch: int) -> None:
        values = sorted(int(bytes(row.value)) for row in frame.select("value").collect())
        self.batches.append((batch, values))

    @property
    def values(self) -> list[int]:
        return sorted(value for _, values in self.batches for value in values)


def start(
    spark: SparkSession,
    sink: Collected,
    checkpoint: str,
    trigger: dict[str, Any],
    **options: str,
) -> StreamingQuery:
    frame = spark.readStream.format("liftbridge").options(**options).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


NOW = {"availableNow": True}


def test_a_query_reads_what_is_there_in_limited_batches_and_goes_on_later(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str, checkpoint: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, numbers(0, 30), partition=0)
    log.publish(stream_name, numbers(30, 90), partition=1)
    sink = Collected()
    options = {"servers": spark_broker, "stream": stream_name, "maxOffsetsPerTrigger": "40"}
    query = start(spark, sink, checkpoint, NOW, **options, **EARLIEST)
    query.awaitTermination()
    assert [len(values) for _, values in sink.batches] == [40, 40, 10]
    assert sink.values == list(range(90))
    progress = [one for one in query.recentProgress if one.numInputRows]
    assert [one.numInputRows for one in progress] == [40, 40, 10]
    ends = [json.loads(one.sources[0].endOffset)[stream_name] for one in progress]
    latest = [json.loads(one.sources[0].latestOffset)[stream_name] for one in progress]
    lag = [
        there["0"] + there["1"] - end["0"] - end["1"]
        for there, end in zip(latest, ends, strict=True)
    ]
    assert lag == [50, 10, 0]

    log.publish(stream_name, numbers(90, 95), partition=0)
    start(spark, sink, checkpoint, NOW, **options, **EARLIEST).awaitTermination()
    assert sink.batches[3:] == [(3, list(range(90, 95)))]


@pytest.mark.parametrize("more", [{}, {"maxOffsetsPerTrigger": "6"}])
def test_a_query_waits_until_enough_is_there(
    spark: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    checkpoint: str,
    more: dict[str, str],
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 2))
    sink = Collected()
    options = {"servers": spark_broker, "stream": stream_name, **LEAST, **more, **EARLIEST}
    soon = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(soon, "100ms")
    try:
        query = start(spark, sink, checkpoint, {"processingTime": "0 seconds"}, **options)
    finally:
        spark.conf.unset(soon)
    try:
        wait_for(lambda: sink.values == [0, 1])
        log.publish(stream_name, numbers(2, 6))
        wait_for(lambda: newest(query, stream_name) == 6)  # it has seen them
        assert sink.values == [0, 1]
        log.publish(stream_name, numbers(6, 7))
        wait_for(lambda: sink.values == list(range(7)))
    finally:
        query.stop()
    assert [len(values) for _, values in sink.batches] == [2, 5]


def newest(query: StreamingQuery, stream: str) -> int:
    """The offset after the newest message that the query knows of, as its progress says."""
    progress = query.lastProgress
    latest = progress.sources[0].latestOffset if progress else None
    return int(json.loads(latest)[stream]["0"]) if latest else 0


def test_a_running_query_reads_what_is_published_until_its_stream_is_gone(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str, checkpoint: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(-5, 0))  # before it starts: by default it begins at the end
    sink = Collected()
    soon = {"liftbridge.notFoundTimeout": "0.2"}
    options = {"servers": spark_broker, "stream": stream_name, **soon}
    query = start(spark, sink, checkpoint, {"processingTime": "0 seconds"}, **options)
    try:
        wait_for(lambda: bool(query.recentProgress) or query.exception() is not None)
        for number in range(3):
            log.publish(stream_name, numbers(10 * number, 10 * number + 10))
            expected = list(range(10 * number + 10))
            wait_for(lambda expected=expected: sink.values == expected)  # type: ignore[misc]
        log.delete(stream_name)
        with pytest.raises(Exception, match=r"\[LIFTBRIDGE_STREAM_MISSING\]") as caught:
            query.awaitTermination(60)
    finally:
        query.stop()
    text = str(caught.value)
    assert f"stream='{stream_name}', partition=0, offset=35" in text
    assert "checkpointLocation" in text


def shown(server: str, group: str) -> dict[int, tuple[int | None, int]]:
    """Return position and lag of each partition, as `groups show` has them."""
    command = (sys.executable, "-m", "liftbridge_aio", "groups", "show", group, "--json")
    done = subprocess.run(
        (*command, "--servers", server), capture_output=True, check=True, timeout=60
    )
    [found] = json.loads(done.stdout)
    return {each["partition"]: (each["position"], each["lag"]) for each in found["positions"]}


@EVERY_SERVER
def test_a_group_has_the_whole_position_of_a_query_that_stopped_by_itself(
    spark: SparkSession, spark_broker: str, log: LogClient, stream_name: str, checkpoint: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, numbers(0, 7), partition=0)
    log.publish(stream_name, numbers(7, 10), partition=1)
    options = {"servers": spark_broker, "stream": stream_name, "maxOffsetsPerTrigger": "5"}
    query = start(
        spark, Collected(), checkpoint, NOW, **options, **EARLIEST, positionsGroup=stream_name
    )
    query.awaitTermination()
    log.publish(stream_name, numbers(10, 12), partition=1)
    assert shown(spark_broker, stream_name) == {0: (6, 0), 1: (2, 2)}


# Called as Spark calls it


def test_a_position_is_shown_when_its_batch_is_committed(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    """Not when it is planned, and not where the query begins."""
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 5))

    def position(group: str = stream_name) -> int | None:
        return log.run(lambda client: fetch_position(client, group, stream_name, 0))

    query = MicroBatches(spark_broker, stream=stream_name, positionsGroup=stream_name)
    assert query.run() == []
    assert position() is None
    log.publish(stream_name, numbers(5, 9))
    limit = query.reader.getDefaultReadLimit()
    end = query.reader.latestOffset(json.loads(query.offsets[0]), limit)
    assert position() is None
    query.offsets.append(json.dumps(end))
    assert query.run() == []
    assert position() == 8
    log.publish(stream_name, numbers(9, 10))
    query.run()
    assert position() == 9
    query.restart(positionsGroup=f"{stream_name}-2")
    assert query.run() == []
    assert position(f"{stream_name}-2") == 9


def test_a_position_that_cannot_be_shown_is_tried_once_for_each_batch(
    stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(cursors_partitions=0) as broker, LogClient(broker.address) as log:
        log.create(stream_name)
        options = {"stream": stream_name, "positionsGroup": "g", **EARLIEST}
        query = MicroBatches(broker.address, **options)
        for batches in (1, 2):
            log.publish(stream_name, numbers(0, 1))
            assert len(query.run()) == 1
            assert query.run() == []
            assert caplog.text.count("not shown as that of the group g") == batches


@EVERY_SERVER
def test_batches_have_every_row_once_and_in_the_limit(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=3)
    for partition, count in enumerate((50, 5, 0)):
        log.publish(stream_name, numbers(0, count), partition=partition)
    query = MicroBatches(spark_broker, stream=stream_name, maxOffsetsPerTrigger="7", **EARLIEST)
    batches = query.run()
    assert [len(batch) for batch in batches] == [7] * 7 + [6]
    rows = sorted(row for batch in batches for row in batch)
    assert [(partition, offset) for _, partition, offset, _ in rows] == [
        (partition, offset) for partition, count in ((0, 50), (1, 5)) for offset in range(count)
    ]
    assert query.where() == {stream_name: {"0": 50, "1": 5, "2": 0}}
    assert query.run() == []


def test_a_query_that_runs_once_has_no_limit(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 50))
    query = MicroBatches(
        spark_broker,
        stream=stream_name,
        maxOffsetsPerTrigger="7",
        maxBytesPerTrigger="10",
        **EARLIEST,
    )
    assert [len(batch) for batch in query.run(once=True)] == [50]


LEAST = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}


@EVERY_SERVER
def test_batches_wait_until_enough_is_there_but_the_first_after_a_start(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, numbers(0, 2))
    query = MicroBatches(
        spark_broker, stream=stream_name, maxOffsetsPerTrigger="6", **LEAST, **EARLIEST
    )
    assert [len(batch) for batch in query.run()] == [2]  # the first one has what there is
    log.publish(stream_name, numbers(2, 4))
    log.publish(stream_name, numbers(0, 2), partition=1)
    assert query.run() == []
    report = query.reader.reportLatestOffset()
    assert report is not None  # what waits shows in the lag
    assert (report[stream_name]["0"], report[stream_name]["1"]) == (4, 2)
    log.publish(stream_name, numbers(4, 12))
    assert [len(batch) for batch in query.run()] == [6, 6]
    log.publish(stream_name, numbers(12, 13))
    assert query.run() == []
    query.restart()
    assert [len(batch) for batch in query.run()] == [1]
    log.publish(stream_name, numbers(13, 14))
    assert query.run() == []
    assert query.where() == {stream_name: {"0": 13, "1": 2}}


def test_a_batch_that_waited_long_enough_has_what_there_is(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    options = {**LEAST, "maxTriggerDelay": "200ms"}
    query = MicroBatches(spark_broker, stream=stream_name, **options, **EARLIEST)
    assert query.run() == []
    log.publish(stream_name, numbers(0, 2))
    found: list[int] = []

    def came() -> bool:
        found.extend(len(batch) for batch in query.run())
        return bool(found)

    wait_for(came)
    assert found == [2]


def test_a_query_that_stops_by_itself_or_runs_once_waits_for_nothing(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 12))
    query = MicroBatches(
        spark_broker, stream=stream_name, maxOffsetsPerTrigger="5", **LEAST, **EARLIEST
    )
    assert [len(batch) for batch in query.available_now()] == [5, 5, 2]
    log.publish(stream_name, numbers(12, 14))
    query.restart()
    assert [len(batch) for batch in query.available_now()] == [2]
    query.restart()
    assert query.run() == []
    log.publish(stream_name, numbers(14, 15))
    assert query.run() == []
    assert [len(batch) for batch in query.run(once=True)] == [1]


def test_a_limit_in_bytes_goes_by_the_size_of_what_comes_next(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"v" * 1000] * 100 + [b"v" * 10] * 1000)
    query = MicroBatches(spark_broker, stream=stream_name, maxBytesPerTrigger="20000", **EARLIEST)
    batches = query.run()
    assert [len(batch) for batch in batches[:2]] == [20, 20]
    assert sum(len(batch) for batch in batches) == 1100
    assert len(batches[-1]) > 500
    # The limit is a soft one where sizes change.
    assert all(sum(len(row[3]) for row in batch) < 40_000 for batch in batches)
    both = MicroBatches(
        spark_broker,
        stream=stream_name,
        maxBytesPerTrigger="20000",
        maxOffsetsPerTrigger="15",
        **EARLIEST,
    )
    assert len(both.run()[0]) == 15


def test_a_message_above_the_limit_in_bytes_goes_alone(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, [b"v" * 1000] * 3)
    query = MicroBatches(spark_broker, stream=stream_name, maxBytesPerTrigger="10", **EARLIEST)
    assert [len(batch) for batch in query.run()] == [1, 1, 1]


@EVERY_SERVER
def test_what_is_published_after_the_start_is_for_the_next_run(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, numbers(0, 5), partition=0)
    query = MicroBatches(spark_broker, stream=stream_name, maxOffsetsPerTrigger="2", **EARLIEST)
    query.reader.prepareForTriggerAvailableNow()
    log.publish(stream_name, numbers(5, 9), partition=0)
    log.publish(stream_name, numbers(0, 3), partition=1)
    assert flat(query.run()) == [(stream_name, 0, n, b"%d" % n) for n in range(5)]
    query.restart()
    rest = flat(query.available_now())
    assert len(rest) == 4 + 3
    assert query.where() == {stream_name: {"0": 9, "1": 3}}


@EVERY_SERVER
def test_streams_that_match_a_pattern_join_a_query_from_their_beginning(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    first = log.create(f"{stream_name}-1")
    log.publish(first, numbers(0, 2))
    query = MicroBatches(spark_broker, subscribePattern=f"{re.escape(stream_name)}-[0-9]")
    assert query.run() == []  # begins at the end
    second = log.create(f"{stream_name}-2")
    log.publish(second, numbers(0, 3))
    log.create(f"{stream_name}-x")
    assert [row[:3] for row in flat(query.run())] == [(second, 0, n) for n in range(3)]
    assert query.where() == {first: {"0": 2}, second: {"0": 3}}


def test_a_start_is_an_offset_a_time_or_an_edge(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 6))
    by_offset = {"startingOffsets": json.dumps({stream_name: {"0": 4}})}
    by_time = {"startingTimestamp": "0"}
    for options, expected in (({}, 6), (EARLIEST, 0), (by_offset, 4), (by_time, 0)):
        query = MicroBatches(spark_broker, stream=stream_name, **options)
        assert [row[2] for row in flat(query.run())] == list(range(expected, 6))


def test_tasks_are_split_and_the_rows_stay_the_same(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 20))
    query = MicroBatches(spark_broker, stream=stream_name, **EARLIEST)
    [whole] = query.run()
    query.restart(minPartitions="6")
    begin, end = (json.loads(text) for text in query.offsets)
    assert len(query.reader.partitions(begin, end)) == 6
    assert query.read_last() == whole


def test_lag_is_known_once_a_batch_was_planned(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    log.publish(stream_name, numbers(0, 20))
    query = MicroBatches(spark_broker, stream=stream_name, maxOffsetsPerTrigger="5", **EARLIEST)
    assert query.reader.reportLatestOffset() is None
    begin = query.reader.initialOffset()
    end = query.reader.latestOffset(begin, query.reader.getDefaultReadLimit())
    report = query.reader.reportLatestOffset()
    assert (end[stream_name]["0"], report and report[stream_name]["0"]) == (5, 20)


def test_a_batch_that_was_just_planned_is_split_without_another_call(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        log.publish(stream_name, numbers(0, 20))
    query = MicroBatches(own_broker.address, stream=stream_name, minPartitions="4", **EARLIEST)
    begin = query.reader.initialOffset()
    end = query.reader.latestOffset(begin, query.reader.getDefaultReadLimit())
    with own_broker.stalled("FetchMetadata") as is_called:
        assert len(query.reader.partitions(begin, end)) == 4
        assert not is_called()
