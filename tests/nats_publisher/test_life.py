"""Opening and closing: whose connection it is, and what is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient

from liftbridge_aio import (
    ClientClosed,
    ConnectionFailed,
    ConnectTimeout,
    InvalidRequest,
    UsageError,
    WrongType,
)
from liftbridge_aio.nats import NatsPublisher
from support.nats_streams import BOUND, Streams
from support.raw import eventually
from support.servers.ports import free_ports


async def test_a_connection_that_was_given_stays_open_and_as_it_was(
    connection: NatsClient, streams: Streams, stream_name: str
) -> None:
    await streams.make("orders", stream_name)
    before = connection._subs.copy()
    async with NatsPublisher(connection) as publisher:
        await publisher.publish(stream_name, b"")
        assert len(connection._subs) == len(before) + 1
    assert connection.is_connected
    assert connection._subs == before
    await connection.flush()


async def test_a_connection_of_its_own_ends_with_it_and_no_task_is_left(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    await streams.make("orders", stream_name)
    tasks = asyncio.all_tasks()
    publisher = NatsPublisher(nats_url)
    async with publisher:
        await publisher.publish(stream_name, b"")
        own = publisher._link.connection
    assert own.is_closed
    assert asyncio.all_tasks() == tasks
    await publisher.aclose()
    for late in (publisher.publish(stream_name, b""), publisher.flush(), publisher.open()):
        with pytest.raises(ClientClosed):
            await late


async def test_a_publisher_may_be_closed_in_another_task_than_it_was_opened_in(
    nats_url: str,
) -> None:
    publisher = NatsPublisher(nats_url)
    await asyncio.create_task(publisher.open())
    await publisher.open()
    await asyncio.gather(*(asyncio.create_task(publisher.aclose()) for _ in range(3)))
    assert "closed" in repr(publisher)


async def test_before_it_is_open_nothing_can_be_published(nats_url: str) -> None:
    publisher = NatsPublisher(nats_url)
    with pytest.raises(ClientClosed, match="not open"):
        await publisher.publish("subject", b"")
    await publisher.aclose()
    with pytest.raises(ClientClosed):
        await publisher.open()


async def test_cancelling_the_opening_closes_it() -> None:
    connected = asyncio.Event()

    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await _reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    tasks = asyncio.all_tasks()
    try:
        publisher = NatsPublisher(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        opening = asyncio.create_task(publisher.open())
        async with asyncio.timeout(BOUND):
            await connected.wait()
        with pytest.raises(UsageError, match="another task"):
            await publisher.open()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert "closed" in repr(publisher)
    finally:
        server.close()
    await eventually(
        lambda: asyncio.all_tasks() == tasks
    )  # the server's own see the connection end


async def test_nobody_at_the_address_is_said_at_once() -> None:
    ports = free_ports(2)
    publisher = NatsPublisher([f"127.0.0.1:{port}" for port in ports])
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionFailed, match="no connection to NATS at") as raised:
            await publisher.open()
    assert isinstance(raised.value.__cause__, OSError)


async def test_somebody_who_says_nothing_is_given_up_in_time() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        publisher = NatsPublisher(address, connect_timeout=0.1)
        with pytest.raises(ConnectTimeout, match=r"within 0\.1 s"):
            await publisher.open()


async def test_a_wrong_password_is_said(nats_url: str) -> None:
    """The server of the tests wants none, so a scripted one says what NATS says."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.9.0","auth_required":true}\r\n')
        await reader.readline()
        writer.write(b"-ERR 'Authorization Violation'\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        publisher = NatsPublisher(address, connect={"user": "me", "password": "wrong"})
        with pytest.raises(ConnectionFailed, match="Authorization Violation"):
            await publisher.open()
    async with NatsPublisher(nats_url, connect={"name": "with arguments"}) as good:
        assert good._link.connection.options["name"] == "with arguments"


async def test_a_connection_that_is_not_open_is_refused(nats_url: str) -> None:
    closed = await nats.connect(nats_url)
    await closed.close()
    with pytest.raises(ConnectionFailed, match="is closed"):
        await NatsPublisher(closed).open()
    with pytest.raises(ConnectionFailed, match="is not connected"):
        await NatsPublisher(NatsClient()).open()


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ((), {}),
        ((7,), {}),
        (("nats://127.0.0.1:1",), {"ack_timeout": "soon"}),
    ],
)
def test_what_leads_nowhere_is_refused(arguments: tuple[Any, ...], fields: dict[str, Any]) -> None:
    with pytest.raises((InvalidRequest, TypeError)):
        NatsPublisher(list(arguments), **fields)


@pytest.mark.parametrize("connection", [3, None, b"nats://127.0.0.1:1", [7]])
def test_what_is_neither_address_nor_connection_is_refused(connection: Any) -> None:
    with pytest.raises(WrongType, match="NATS server"):
        NatsPublisher(connection)


async def test_arguments_for_connecting_are_for_addresses(connection: NatsClient) -> None:
    with pytest.raises(InvalidRequest, match="connect="):
        NatsPublisher(connection, connect={"name": "too late"})


@pytest.mark.parametrize("timeouts", [{"ack_timeout": 0}, {"connect_timeout": -1}])
def test_timeouts_that_make_no_sense_are_refused(timeouts: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        NatsPublisher("nats://127.0.0.1:1", **timeouts)


def test_without_nats_py_the_way_out_is_said() -> None:
    code = (
        "import sys; sys.modules['nats'] = None; import liftbridge_aio; import liftbridge_aio.nats"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert "ImportError: liftbridge_aio.nats needs nats-py: pip install nats-py" in done.stderr


async def test_a_publisher_that_nobody_closed_warns(nats_url: str) -> None:
    async with NatsPublisher(nats_url) as publisher:
        with pytest.warns(ResourceWarning, match="was not closed"):
            publisher.__del__()


async def test_one_that_is_closed_while_it_opens_does_not_open(nats_url: str) -> None:
    before = asyncio.all_tasks()
    publisher = NatsPublisher(nats_url)
    opening = asyncio.create_task(publisher.open())
    await asyncio.sleep(0)
    await publisher.aclose()
    async with asyncio.timeout(BOUND):
        with pytest.raises(ClientClosed):
            await opening
    await eventually(lambda: asyncio.all_tasks() <= {*before, opening})


async def test_errors_show_no_secret_of_an_address() -> None:
    (port,) = free_ports(1)
    publisher = NatsPublisher(f"nats://user:secret@127.0.0.1:{port}")
    with pytest.raises(ConnectionFailed) as raised:
        await publisher.open()
    assert f"nats://127.0.0.1:{port}" in str(raised.value)
    assert "secret" not in str(raised.value)
