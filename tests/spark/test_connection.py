"""The connection of a process: plain threads use one client together."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio import Client, ClientClosed, ConnectionFailed, Metadata, RequestTimeout
from liftbridge_aio.spark.connection import close_connections, connection_to
from liftbridge_aio.spark.core.connection_options import ConnectionOptions
from support.servers.ports import free_ports
from support.spark.broker_thread import BrokerThread

if TYPE_CHECKING:
    from support.spark.log_client import LogClient


@pytest.fixture(autouse=True)
def _no_connections_left() -> Iterator[None]:
    yield
    close_connections()
    assert not [one for one in threading.enumerate() if one.name == "liftbridge-spark"]


def to(address: str, **settings: str) -> ConnectionOptions:
    return ConnectionOptions((address,), tuple(sorted(settings.items())))


async def metadata(client: Client) -> Metadata:
    return await client.fetch_metadata()


def test_threads_share_one_client(spark_broker: str, log: LogClient, stream_name: str) -> None:
    log.create(stream_name)

    async def itself(client: Client) -> tuple[int, bool]:
        return id(client), stream_name in (await client.fetch_metadata()).streams

    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda _: connection_to(to(spark_broker)).run(itself, 10.0), range(40))
        )
    assert found == [found[0]] * 40
    assert found[0][1]


def test_other_options_are_another_client(spark_broker: str) -> None:
    one, other = to(spark_broker), to(spark_broker, call_timeout="3")
    assert connection_to(one) is connection_to(to(spark_broker)) is not connection_to(other)

    async def limit(client: Client) -> object:
        return client.options.call_timeout

    assert connection_to(other).run(limit, 10.0) == 3


def test_a_generator_is_read_and_closed_from_a_thread(spark_broker: str) -> None:
    ended: list[int] = []

    async def count(client: Client) -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                await client.ping()
                yield number
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    connection = connection_to(to(spark_broker))
    assert list(connection.iterate(count, 10.0)) == [0, 1, 2]
    assert ended == [1]
    numbers = connection.iterate(count, 10.0)
    assert next(numbers) == 0
    numbers.close()
    assert ended == [1, 1]


def test_what_takes_too_long_is_ended(spark_broker: str) -> None:
    ended = threading.Event()

    async def never(_: Client) -> AsyncGenerator[int, None]:
        yield 0
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    numbers = connection_to(to(spark_broker)).iterate(never, 0.05)
    assert next(numbers) == 0
    with pytest.raises(RequestTimeout, match=r"did not end within 0\.05 s"):
        next(numbers)
    assert ended.is_set()


def test_errors_come_to_the_caller_as_they_are(spark_broker: str) -> None:
    async def fail(_: Client) -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own") as caught:
        connection_to(to(spark_broker)).run(fail, 10.0)
    assert not isinstance(caught.value, RequestTimeout)


def test_a_server_that_is_away_is_tried_for_as_long_as_is_said() -> None:
    [port] = free_ports(1)
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}"):
        connection_to(to(f"127.0.0.1:{port}")).run(metadata, 5.0, 0.3)


def test_a_server_that_comes_back_in_time_is_found(own_broker: BrokerThread) -> None:
    own_broker.stop()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(connection_to(to(own_broker.address)).run, metadata, 10.0, 20.0)
        with pytest.raises(TimeoutError):
            asked.result(0.3)
        own_broker.start()
        assert asked.result(20.0).brokers


def test_a_closed_connection_says_so_and_the_next_is_new(spark_broker: str) -> None:
    first = connection_to(to(spark_broker))
    first.run(metadata, 10.0)
    close_connections()
    close_connections()
    assert not first.usable
    with pytest.raises(ClientClosed):
        first.run(metadata, 10.0)
    assert connection_to(to(spark_broker)).run(metadata, 10.0).brokers


def test_a_client_that_was_closed_is_replaced(spark_broker: str) -> None:
    connection = connection_to(to(spark_broker))

    async def close(client: Client) -> None:
        await client.aclose()
        await client.ping()

    with pytest.raises(ClientClosed):
        connection.run(close, 10.0)
    assert connection.run(metadata, 10.0).brokers


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_connects_anew_and_leaves_the_parents_alone(spark_broker: str) -> None:
    connection = connection_to(to(spark_broker))
    connection.run(metadata, 10.0)
    child = os.fork()
    if not child:
        status = 1
        try:
            mine = connection_to(to(spark_broker))
            if mine is not connection and mine.run(metadata, 10.0).brokers:
                close_connections()
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connection_to(to(spark_broker)) is connection
    assert connection.run(metadata, 10.0).brokers
