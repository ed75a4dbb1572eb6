"""The calls of the driver to servers: retries, and errors that name their subject."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.cli.group_positions import fetch_position
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.core.data_loss import LogState
from liftbridge_aio.spark.core.offsets import Offsets
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.core.selection import Assigned, Pattern, Selection, Streams
from liftbridge_aio.spark.errors import DataLoss, ServersUnreachable, StreamMissing
from liftbridge_aio.spark.read.driver import run_with_retry
from liftbridge_aio.spark.read.group_positions import GroupPositions
from liftbridge_aio.spark.read.log_ends import SelectedStreams, fetch_selected, log_states
from liftbridge_aio.spark.read.stream_planning import resume_position
from support.servers.ports import free_ports
from support.spark.log_client import LogClient

pytestmark = pytest.mark.usefixtures("no_connections_left")


def options(servers: str, **given: str) -> ReadOptions:
    return ReadOptions.parse({"servers": servers, **given}, streaming=True)


# Streams that a server does not know yet, as after its start


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(cursors_partitions=0) as one:  # no stream of its own
        yield one


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    async with Client(broker.address, options=ClientOptions(not_found_timeout=20)) as one:
        yield one


@pytest.mark.parametrize("kind", ["stream", "pattern", "partition", "known"])
async def test_a_stream_that_the_server_does_not_know_yet_is_waited_for(
    broker: EmbeddedBroker, client: Client, stream_name: str, kind: str
) -> None:
    selections: dict[str, Selection] = {
        "stream": Streams((stream_name,)),
        "pattern": Pattern(".*"),
        "partition": Assigned((StreamPartition(stream_name, 0),)),
        "known": Pattern("another"),
    }
    known = [stream_name] if kind == "known" else None
    looks = broker.faults.delay("FetchMetadata", 0, times=None)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(fetch_selected(client, selections[kind], known))
        await looks.wait(2)
        await client.create_stream(stream_name)
    assert looking.result().counts[stream_name] == 1


async def test_a_partition_that_its_leader_does_not_know_yet_is_waited_for(
    broker: EmbeddedBroker, client: Client, stream_name: str
) -> None:
    place = StreamPartition(stream_name, 0)
    await client.create_stream(stream_name)
    await fetch_selected(client, Streams((stream_name,)))
    looks = broker.faults.delay("FetchMetadata", 0, times=None)
    broker.faults.forget_streams()
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(log_states(client, [place]))
        await looks.wait(2)
        broker.faults.remember_streams()
    assert looking.result() == {place: LogState(0, 0, 0)}


async def test_a_stream_that_nobody_misses_is_not_waited_for(
    client: Client, stream_name: str
) -> None:
    async with asyncio.timeout(10):
        assert (await fetch_selected(client, Streams((stream_name,)), ())).counts == {}


def test_a_partition_that_stays_unknown_is_told_with_the_place(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    place = StreamPartition(stream_name, 4)
    how = options(spark_broker, stream=stream_name, **{"liftbridge.notFoundTimeout": "0.1"})
    with pytest.raises(StreamMissing) as caught:
        run_with_retry(how, lambda client: log_states(client, [place]), Offsets({place: 7}))
    assert f"stream={stream_name!r}, partition=4, offset=7" in str(caught.value)


# Servers that are away


def test_a_server_that_is_away_is_told_with_what_it_was_asked_about() -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    quick = {"liftbridge.callTimeout": "0.2", "readTimeout": "0.2"}

    def text(position: Offsets | None, **selected: str) -> str:
        with pytest.raises(ServersUnreachable) as caught:
            run_with_retry(
                options(servers, **quick, **selected),
                lambda client: client.fetch_metadata(),
                position,
            )
        return str(caught.value)

    assert "what to read of orders, totals)" in text(None, subscribe="orders,totals")
    assert "what to read of streams like 'or.*')" in text(None, subscribePattern="or.*")
    assert "what to read of orders/2)" in text(None, assign='{"orders":[2]}')
    position = Offsets({("orders", number): 10 * number for number in range(5)})
    told = text(position, stream="orders")
    assert (
        "orders/0 from offset 0, orders/1 from offset 10, orders/2 from offset 20 and 2 more"
        in (told)
    )
    assert servers in told
    assert "readTimeout" in told


# Logs that became shorter


def test_a_query_goes_on_behind_what_a_shorter_log_has_stored() -> None:
    """Messages that are stored and not committed may have been read: a new leader does not know."""
    place = StreamPartition("orders", 0)
    start, found = Offsets({place: 10}), SelectedStreams({"orders": 1}, {})
    strict = options("h:1", stream="orders")
    lenient = options("h:1", stream="orders", failOnDataLoss="false")
    shorter = {place: LogState(0, 5, 7)}
    with pytest.raises(DataLoss, match="continues at offset 7"):
        resume_position(strict, start, found, shorter)
    assert resume_position(lenient, start, found, shorter) == Offsets({place: 7})
    for lagging in (LogState(0, 5, 10), LogState(0, 5, 12)):
        assert resume_position(strict, start, found, {place: lagging}) == start


def test_the_position_of_a_query_is_that_of_a_group(
    log: LogClient, stream_name: str, spark_broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And if it cannot be stored the query goes on; the next batch stores it."""
    log.create(stream_name, 2)
    group = f"{stream_name}-group"

    def options(servers: str) -> ReadOptions:
        more = {"subscribe": stream_name, "liftbridge.callTimeout": "300ms"}
        return ReadOptions.parse({"servers": servers, **more}, streaming=True)

    def position(partition: int) -> int | None:
        return log.run(lambda client: fetch_position(client, group, stream_name, partition))

    [port] = free_ports(1)
    GroupPositions(options(f"127.0.0.1:{port}"), group).show(Offsets({(stream_name, 0): 3}))
    assert f"not shown as that of the group {group}" in caplog.text

    async def created(client: Client) -> dict[str, int]:
        found = (await client.fetch_metadata([stream_name])).streams[stream_name]
        return {stream_name: found.creation_timestamp}

    shown = GroupPositions(options(spark_broker), group)
    first = Offsets({(stream_name, 0): 3, (stream_name, 1): 0}, log.run(created))
    shown.show(first)
    assert [position(0), position(1)] == [2, None]
    log.delete(stream_name)
    log.create(stream_name, 2)
    shown.show(first.changed({(stream_name, 0): 5}))  # of the former log
    assert [position(0), position(1)] == [None, None]
    again = Offsets({(stream_name, 0): 2}, log.run(created))
    shown.show(again)
    assert [position(0), position(1)] == [1, None]
