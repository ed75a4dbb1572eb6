"""The embedded broker over TLS: where it listens, and that nobody can hold it up."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
from contextlib import suppress
from typing import Any, cast

import pytest

from liftbridge_aio import (
    TLS,
    Client,
    ClientOptions,
    ConnectionFailed,
    RequestTimeout,
    StartAt,
    WrongType,
)
from liftbridge_aio.broker import BrokerTLS, EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.broker.server.tls_connection import TLSConnection
from support.certificates import Certificates


@pytest.fixture
def broker_tls(certificates: Certificates) -> BrokerTLS:
    return BrokerTLS(cert=certificates.server.cert, key=certificates.server.key)


@pytest.fixture
def options(certificates: Certificates) -> ClientOptions:
    return ClientOptions(tls=TLS(ca=certificates.ca))


async def test_it_listens_on_loopback_unless_told_otherwise(broker_tls: BrokerTLS) -> None:
    async with EmbeddedBroker(tls=broker_tls) as broker, EmbeddedCluster(tls=broker_tls) as cluster:
        assert broker.host == "127.0.0.1"
        assert {node.host for node in cluster.nodes.values()} == {"127.0.0.1"}
        for address in (broker.address, *cluster.addresses):
            assert address.startswith("127.0.0.1:")
        other = await asyncio.open_connection("127.0.0.1", broker.port)
        other[1].close()
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.2", broker.port)


def test_another_kind_of_tls_is_refused() -> None:
    for make in (EmbeddedBroker, EmbeddedCluster):
        with pytest.raises(WrongType, match="is a BrokerTLS, not TLS"):
            make(tls=TLS())  # type: ignore[arg-type]
    for values in ({"cert": None}, {"cert": "c", "key_password": 5}):
        with pytest.raises(WrongType):
            BrokerTLS(**cast("Any", values))


async def test_files_that_cannot_be_used_are_named(certificates: Certificates) -> None:
    pair, locked = certificates.server, certificates.locked(certificates.server)
    for tls, text in (
        (BrokerTLS(cert=pair.cert), "give key, if it is in another file"),
        (BrokerTLS(cert=pair.cert, key=locked), "is encrypted; give its key_password"),
        (BrokerTLS(cert=pair.cert, key="none.pem"), "none.pem cannot be used for TLS: No such"),
        (
            BrokerTLS(cert=pair.cert, key=pair.key, client_ca=pair.key),
            "cannot be used for TLS: it is no PEM file of certificates",
        ),
    ):
        with pytest.raises(OSError, match=text):
            await EmbeddedBroker(tls=tls).start()


async def test_a_cluster_speaks_tls(broker_tls: BrokerTLS, options: ClientOptions) -> None:
    async with (
        EmbeddedCluster(tls=broker_tls) as cluster,
        Client(*cluster.addresses, options=options) as client,
    ):
        await client.create_stream("s", partitions=3, replication_factor=3)
        for partition in range(3):
            assert (await client.publish("s", b"v", partition=partition)).offset == 0
        leader = cluster.leader_of("s")
        await cluster.stop_node(leader)
        await cluster.wait_until(lambda: cluster.leader_of("s") not in {leader, ""})
        assert (await client.publish("s", b"v", partition=0)).offset == 1


async def test_handshakes_that_do_not_end_hold_nobody_up(
    broker_tls: BrokerTLS, options: ClientOptions
) -> None:
    async with EmbeddedBroker(tls=broker_tls) as broker:
        silent = [await asyncio.open_connection(broker.host, broker.port) for _ in range(50)]
        for _, writer in silent[:25]:
            writer.write(b"\x16\x03\x01\x02\x00")  # the beginning of a greeting
        async with Client(broker.address, options=options) as client:
            assert await client.ping() < 5
        began = time.monotonic()
        await broker.stop()
        assert time.monotonic() - began < 5
        async with asyncio.timeout(10):
            for reader, writer in silent:
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                writer.close()


async def test_what_is_no_tls_leaves_nothing_behind(
    broker_tls: BrokerTLS, options: ClientOptions
) -> None:
    async with EmbeddedBroker(tls=broker_tls) as broker:
        listener = broker._listener
        assert listener is not None
        for hostile in (b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70_000)) * 10:
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
            writer.write(hostile)
            with suppress(ConnectionResetError):
                await reader.read()
            writer.close()
        async with Client(broker.address, options=options) as client:
            assert await client.ping() < 5
        gc.collect()
        assert not listener._handshaking
        assert len(listener._handlers) <= 1


async def test_a_frozen_broker_agrees_upon_tls_once_it_is_thawed(
    broker_tls: BrokerTLS, options: ClientOptions
) -> None:
    async with (
        EmbeddedBroker(tls=broker_tls) as broker,
        Client(broker.address, options=options) as client,
    ):
        await client.create_stream("s")
        broker.freeze()
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(client.publish("s", b"v"))
            with pytest.raises((ConnectionFailed, RequestTimeout)):
                await Client(broker.address, options=options).connect(timeout=0.3)
            assert not publishing.done()
            broker.thaw()
        assert publishing.result().offset == 0


async def test_large_messages_pass_in_both_directions(
    broker_tls: BrokerTLS, options: ClientOptions
) -> None:
    value = bytes(900_000)
    async with (
        EmbeddedBroker(tls=broker_tls) as broker,
        Client(broker.address, options=options) as client,
    ):
        await client.create_stream("s")
        await client.publish_many("s", [value] * 8)
        async with client.subscribe("s", partition=0, start=StartAt.earliest()) as reading:
            for _ in range(8):
                assert (await anext(reading)).value == value


class Answering:
    """In place of OpenSSL, which answers each request for new keys; no client of Python asks."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **_: bool) -> Any:
        self.incoming, self.outgoing = incoming, outgoing
        return self

    def do_handshake(self) -> None:
        pass

    def read(self, _: int) -> bytes:
        self.outgoing.write(self.incoming.read())
        raise ssl.SSLWantReadError


async def test_a_client_that_takes_no_answers_in_is_given_up() -> None:
    connections: list[TLSConnection] = []
    context = cast("ssl.SSLContext", Answering())

    def accept() -> TLSConnection:
        return TLSConnection(
            context, asyncio.Protocol, on_begin=connections.append, on_end=lambda _: None
        )

    unread: list[int] = []

    async def ask(client: socket.socket) -> None:
        for _ in range(2_000):
            await loop.sock_sendall(client, bytes(2**16))
            unread.extend(each.socket.get_write_buffer_size() for each in connections)

    loop = asyncio.get_running_loop()
    async with await loop.create_server(accept, "127.0.0.1") as server:
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.settimeout(0)
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                await ask(client)
        assert connections[0].socket.is_closing()
        assert max(unread) < 2**20


async def test_a_client_that_takes_answers_in_may_go_on_for_ever() -> None:
    context = cast("ssl.SSLContext", Answering())
    loop = asyncio.get_running_loop()
    async with await loop.create_server(
        lambda: TLSConnection(
            context, asyncio.Protocol, on_begin=lambda _: None, on_end=lambda _: None
        ),
        "127.0.0.1",
    ) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(50):
            writer.write(bytes(2**17))
            await reader.readexactly(2**17)
        writer.close()
        await writer.wait_closed()
