"""A server that is killed and started again: it answers before it remembers its streams."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")


from liftbridge_aio.spark.errors import ServersUnreachable
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient
from support.spark.micro_batches import MicroBatches, flat
from support.spark.task_writers import batch_of, task_writer

if TYPE_CHECKING:
    from conftest import StartRealServer


pytestmark = pytest.mark.usefixtures("no_connections_left")


def test_a_query_survives_the_restart_of_a_real_server_without_a_repeat(
    start_real_server: StartRealServer, stream_name: str
) -> None:
    node = start_real_server()
    with LogClient(node.address) as log:
        log.create(stream_name)
        log.publish(stream_name, [b"%d" % number for number in range(10)])
    selected = ({"stream": stream_name}, {"subscribePattern": f"{stream_name}.*"})
    patient = {"startingOffsets": "earliest", "liftbridge.notFoundTimeout": "20"}
    queries = [
        MicroBatches(node.address, failOnDataLoss=strict, **chosen, **patient)
        for chosen in selected
        for strict in ("true", "false")
    ]
    for query in queries:
        assert len(flat(query.run())) == 10
    node.kill()
    node.launch()  # and no waiting until it is itself again
    for query in queries:
        assert query.run() == []
    with LogClient(node.address) as log:
        log.publish(stream_name, [b"new"])
    for query in queries:
        assert flat(query.run()) == [(stream_name, 0, 10, b"new")]


ROWS = [b"%d" % number for number in range(30)]
SMALL = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
AWAY, FORGETFUL = 1.2, 0.4
"""Seconds for which a server is gone, and for which it then knows no streams."""
CALLS = {"liftbridge.callTimeout": "0.5", "liftbridge.notFoundTimeout": "0.8"}
"""Less than the server is away; and more than it is forgetful, but less than both together."""

COMMITTED = "replication-offset-checkpoint"
"""The file in which v1.9.0 stores the high watermark, every five seconds only."""


def first_batch(query: MicroBatches) -> list[bytes]:
    """Begin as a query does that reads what is there, and read one batch."""
    query.reader.prepareForTriggerAvailableNow()
    query.offsets.append(json.dumps(query.reader.initialOffset()))
    limit = query.reader.getDefaultReadLimit()
    query.offsets.append(json.dumps(query.reader.latestOffset(json.loads(query.offsets[0]), limit)))
    return [row[3] for row in query.read_last()]


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_server_that_comes_back_in_the_middle_of_a_query_costs_no_row(
    own_broker: BrokerThread, stream_name: str, strict: str
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        log.publish(stream_name, ROWS)
    query = MicroBatches(own_broker.address, stream=stream_name, failOnDataLoss=strict, **SMALL)
    query.restart(**{"liftbridge.notFoundTimeout": CALLS["liftbridge.notFoundTimeout"]})
    rows = first_batch(query)
    with own_broker.away(AWAY, FORGETFUL):
        rows += [row[3] for row in flat(query.run())]
    assert rows == ROWS
    assert query.where() == {stream_name: {"0": 30}}


def test_a_real_server_away_for_six_seconds_costs_no_row(
    start_real_server: StartRealServer, stream_name: str
) -> None:
    node = start_real_server()
    with LogClient(node.address) as log:
        log.create(stream_name)
        log.publish(stream_name, ROWS)
    query = MicroBatches(node.address, stream=stream_name, failOnDataLoss="false", **SMALL)
    query.restart(**{"liftbridge.notFoundTimeout": "5"})
    rows = first_batch(query)
    committed = node.folder / "data" / "streams" / stream_name / "0" / COMMITTED
    while not committed.exists() or committed.read_text() != "29":
        assert node.running
        time.sleep(0.05)
    node.kill()

    def come_back() -> None:
        time.sleep(6)
        node.launch()

    coming_back = threading.Thread(target=come_back)
    coming_back.start()
    rows += [row[3] for row in flat(query.run())]
    coming_back.join()
    assert rows == ROWS
    assert query.where() == {stream_name: {"0": 30}}


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_task_that_begins_while_its_server_is_away_reads_all_its_rows(
    own_broker: BrokerThread, stream_name: str, strict: str
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        log.publish(stream_name, ROWS)
    query = MicroBatches(
        own_broker.address, stream=stream_name, failOnDataLoss=strict, **SMALL, **CALLS
    )
    assert first_batch(query) == ROWS[:10]
    [planned] = query.reader.partitions(*map(json.loads, query.offsets))
    with own_broker.away(AWAY, FORGETFUL):
        batches = list(query.reader.read(planned))
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == ROWS[:10]


def test_a_task_whose_servers_stay_away_names_the_option_that_helps(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        log.publish(stream_name, ROWS)
    query = MicroBatches(own_broker.address, stream=stream_name, readTimeout="2", **SMALL, **CALLS)
    assert first_batch(query) == ROWS[:10]
    [planned] = query.reader.partitions(*map(json.loads, query.offsets))
    own_broker.stop()
    began = time.monotonic()
    with pytest.raises(ServersUnreachable, match="readTimeout") as caught:
        list(query.reader.read(planned))
    assert time.monotonic() - began >= 1.5
    assert "callTimeout" not in str(caught.value)


def test_a_task_that_writes_waits_for_servers_that_are_away_when_it_begins(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        write = partial(task_writer, own_broker.address, stream_name, **CALLS)
        write().publish_all(iter([batch_of(ROWS[:10])]))
        with own_broker.away(AWAY, FORGETFUL):
            write().publish_all(iter([batch_of(ROWS[10:])]))
        assert [message.value for message in log.read(stream_name)] == ROWS
        own_broker.stop()
        late = write(publishTimeout="2")
        began = time.monotonic()
        with pytest.raises(ServersUnreachable, match="publishTimeout") as caught:
            late.publish_all(iter([batch_of(ROWS)]))
        assert time.monotonic() - began >= 1.5
        assert "callTimeout" not in str(caught.value)
