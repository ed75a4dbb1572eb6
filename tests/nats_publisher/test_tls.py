"""TLS of a publisher over NATS: where it is asked for, nothing crosses the wire without it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import nats
import pytest

from liftbridge_aio import (
    TLS,
    AckTimeout,
    Client,
    ConnectionFailed,
    InvalidRequest,
    NotLiftbridge,
    ServerNotTrusted,
    TLSFailed,
    WrongType,
)
from liftbridge_aio._runtime.nats_transport import CheckedTransport
from liftbridge_aio.nats import NatsPublisher
from support.certificates import Certificates
from support.nats_streams import BOUND, Stream
from support.raw import eventually
from support.servers.build import nats_path
from support.servers.nats import NatsServer

SECRET: Final = "pa55word"  # noqa: S105 - of nobody
QUICK: Final = {"reconnect_time_wait": 0.02}
USER: Final = {"user": "me", "password": SECRET}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def context(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificates.ca)


@pytest.fixture
def nats_with_tls(
    server_binary: Path,  # noqa: ARG001 - builds NATS too, or says why it cannot
    certificates: Certificates,
    tmp_path: Path,
) -> Iterator[NatsServer]:
    """A NATS server that wants TLS and a password."""
    pair = certificates.server
    files = ("--tls", "--tlscert", pair.cert, "--tlskey", pair.key)
    server = NatsServer(nats_path(), tmp_path, arguments=(*files, "--user", "me", "--pass", SECRET))
    server.start()
    yield server
    server.stop()


@dataclass(slots=True)
class ScriptedNats:
    """Plays a NATS server, and keeps every byte that it is sent before any TLS."""

    info: dict[str, object] | None
    context: ssl.SSLContext | None = None
    plain: bytearray = field(default_factory=bytearray)
    """Bytes that came in plaintext."""
    encrypted: bytearray = field(default_factory=bytearray)
    connections: int = 0
    links: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.links.append(writer)
        kept = self.plain
        try:
            if self.info is not None:
                writer.write(b"INFO " + _json(self.info) + b"\r\n")
                await writer.drain()
            if self.context is not None:
                await writer.start_tls(self.context)
                kept = self.encrypted
            while received := await reader.read(4096):
                kept += received
                writer.write(b"PONG\r\n" * received.count(b"PING\r\n"))
        except OSError:
            pass
        finally:
            writer.close()

    def hang_up(self) -> None:
        """Cut all connections."""
        for writer in self.links:
            writer.transport.abort()
        self.links.clear()


def _json(info: dict[str, object]) -> bytes:
    return repr(info).replace("'", '"').replace("True", "true").replace("False", "false").encode()


@asynccontextmanager
async def running(
    server: ScriptedNats, port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", port, ssl=context)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        server.hang_up()


def plaintext_server() -> ScriptedNats:
    return ScriptedNats({"server_id": "x", "version": "2.9.0", "auth_required": True})


@pytest.mark.parametrize(
    ("scheme", "arguments"),
    [
        ("tls", lambda _: {}),
        ("TLS", lambda _: {}),
        ("tls", lambda context: {"tls": context}),
        ("nats", lambda context: {"tls": context}),
        ("nats", lambda _: {"tls_hostname": "localhost"}),
        ("nats", lambda context: {"tls": context, "tls_handshake_first": True}),
        ("nats", lambda _: {"tls_handshake_first": True}),
    ],
)
@pytest.mark.parametrize("credentials", ["in the address", "as arguments"])
async def test_a_server_without_tls_is_sent_nothing_where_tls_is_asked_for(
    context: ssl.SSLContext,
    scheme: str,
    arguments: Callable[[ssl.SSLContext], dict[str, Any]],
    credentials: str,
) -> None:
    server = plaintext_server()
    connect = {"connect_timeout": 0.3, **arguments(context)}
    async with running(server) as address:
        user = ""
        if credentials == "in the address":
            user = f"me:{SECRET}@"
        else:
            connect |= USER
        publisher = NatsPublisher(f"{scheme}://{user}{address}", connect=connect)
        async with asyncio.timeout(BOUND):
            with pytest.raises(ConnectionFailed) as raised:
                await publisher.open()
    assert SECRET not in str(raised.value)
    if "tls_handshake_first" not in connect:  # else there is a handshake, which nobody answers
        if scheme.islower():
            assert isinstance(raised.value, TLSFailed)
            assert f"{address} does not offer TLS" in str(raised.value)
        assert server.plain == b""
    assert b"CONNECT" not in server.plain
    assert SECRET.encode() not in server.plain


async def test_one_address_with_tls_asks_for_it_of_all() -> None:
    server, other = plaintext_server(), plaintext_server()
    async with running(server) as address, running(other) as further:
        publisher = NatsPublisher([f"nats://{address}", f"tls://{further}"], connect=USER)
        with pytest.raises(TLSFailed, match="does not offer TLS") as raised:
            await publisher.open()
        assert address in str(raised.value)
        assert further in str(raised.value)
    assert server.connections == other.connections == 1
    assert server.plain == other.plain == b""


async def test_a_server_with_tls_beside_one_without_is_used(
    context: ssl.SSLContext, certificates: Certificates
) -> None:
    server = plaintext_server()
    with_tls = ScriptedNats(
        {"server_id": "y", "version": "2.9.0", "tls_required": True}, _of_server(certificates)
    )
    async with running(server) as address, running(with_tls) as further:
        connect = {"tls": context, "dont_randomize": True, **USER}
        async with NatsPublisher([address, further], connect=connect):
            assert server.connections == 1
    assert server.plain == with_tls.plain == b""
    assert SECRET.encode() in with_tls.encrypted


@pytest.mark.parametrize("tls_required", [True, False])
async def test_a_server_that_begins_with_tls_is_used(
    context: ssl.SSLContext, certificates: Certificates, *, tls_required: bool
) -> None:
    server = ScriptedNats({"server_id": "y", "version": "2.10.0", "tls_required": tls_required})
    async with running(server, context=_of_server(certificates)) as address:
        connect = {"tls": context, "tls_handshake_first": True, **USER}
        async with NatsPublisher(f"tls://{address}", connect=connect):
            assert SECRET.encode() in server.plain  # of what came through TLS


def _of_server(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.cert, certificates.server.key)
    return context


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_messages_wait_while_a_server_without_tls_is_in_the_place(
    nats_with_tls: NatsServer, context: ssl.SSLContext, scheme: str
) -> None:
    address = f"{nats_with_tls.host}:{nats_with_tls.port}"
    own = {**QUICK, **USER, "tls": context}
    listener = await nats.connect(
        f"tls://{address}", tls=context, max_reconnect_attempts=-1, **USER
    )
    stream = Stream(listener, "orders")
    await stream.listen("orders")
    publisher = NatsPublisher(f"{scheme}://{address}", connect=own, ack_timeout=0.3)
    impostor = plaintext_server()
    async with publisher:
        await publisher.publish("orders", b"before")
        await asyncio.to_thread(nats_with_tls.stop)
        async with running(impostor, nats_with_tls.port):

            async def tried() -> bool:
                return impostor.connections > 1

            await eventually(tried)
            with pytest.raises(AckTimeout, match="does not offer TLS"):
                await publisher.publish("orders", b"not for the impostor")
            assert b"CONNECT" not in impostor.plain
        await listener.close()
        await asyncio.to_thread(nats_with_tls.start)

        async def back() -> bool:
            return publisher._link.connection.is_connected

        await eventually(back)
        await publisher.publish_plain("orders", b"after")
        await publisher.flush()
    assert stream.messages[0].value == b"before"
    assert SECRET.encode() not in impostor.plain
    assert b"not for" not in impostor.plain


async def test_tls_first_with_a_server_that_has_none_is_a_failure_of_tls(
    context: ssl.SSLContext, nats_url: str
) -> None:
    connect = {"tls": context, "tls_handshake_first": True, "tls_hostname": "localhost"}
    with pytest.raises(TLSFailed) as caught:
        await NatsPublisher(nats_url, connect=connect).open()
    assert "switch TLS on in the NATS server" in caught.value.hint


async def test_a_nats_server_that_is_not_trusted_is_named_as_such(
    nats_with_tls: NatsServer,
) -> None:
    address = f"tls://{nats_with_tls.host}:{nats_with_tls.port}"
    connect = {"tls": ssl.create_default_context(), **USER}  # it trusts what the system does
    with pytest.raises(ServerNotTrusted, match="certificate verify failed") as caught:
        await NatsPublisher(address, connect=connect).open()
    assert "connect=" in caught.value.hint


async def test_servers_that_nats_tells_of_must_have_tls_too(
    context: ssl.SSLContext, certificates: Certificates
) -> None:
    told = plaintext_server()
    async with running(told) as further:
        info = {"server_id": "y", "version": "2.9.0", "tls_required": True}
        first = ScriptedNats({**info, "connect_urls": [further]}, _of_server(certificates))
        async with running(first) as address:
            connect = {"tls": context, **QUICK, **USER}
            async with NatsPublisher(f"nats://{address}", connect=connect) as publisher:
                servers = publisher._link.connection.discovered_servers
                assert [uri.scheme for uri in servers] == ["nats"]
                await publisher.publish_plain("orders", b"secret")
                await publisher.flush()

                async def tried() -> bool:
                    if publisher._link.connection.is_connected and not told.connections:
                        first.hang_up()
                    return told.connections > 0 and publisher._link.connection.is_connected

                await eventually(tried)
    assert told.plain == b""
    assert b"secret" in first.encrypted


async def test_what_nats_py_has_buffered_is_not_flushed_without_tls() -> None:
    """Its `close` writes its buffer on a connection that is only half made."""
    server = plaintext_server()
    async with running(server) as address:
        transport: Any = CheckedTransport(tls_required=True)  # nats-py's part is not typed
        await transport.connect(urlparse(f"nats://{address}"), 4096, 10)
        transport.writelines([b"PUB orders 6\r\nsecret\r\n"])
        await transport.drain()
        transport.close()
        await transport.wait_closed()

        async def over() -> bool:
            return server.links[0].is_closing()

        await eventually(over)
    assert server.plain == b""


async def test_a_connection_that_is_given_without_its_tls_is_refused(
    context: ssl.SSLContext,
) -> None:
    server = plaintext_server()
    async with running(server) as address:
        given = await nats.connect(f"nats://{address}", tls=context)
        try:
            seen = len(server.plain)
            publisher = NatsPublisher(given)
            with pytest.raises(TLSFailed, match="that was given asks for TLS and is without"):
                await publisher.open()
            await given.flush()
            assert b"SUB" not in server.plain[seen:]
        finally:
            await given.close()


async def test_a_connection_that_was_given_and_loses_its_tls_is_sent_no_message(
    nats_with_tls: NatsServer, context: ssl.SSLContext
) -> None:
    address = f"{nats_with_tls.host}:{nats_with_tls.port}"

    async def keep_quiet(_error: Exception) -> None:
        pass

    given = await nats.connect(
        f"tls://{address}",
        tls=context,
        error_cb=keep_quiet,
        max_reconnect_attempts=-1,
        **QUICK,
        **USER,
    )
    stream = Stream(given, "orders")
    await stream.listen("orders")
    impostor = plaintext_server()
    async with NatsPublisher(given) as publisher:
        await publisher.publish("orders", b"before")
        await asyncio.to_thread(nats_with_tls.stop)
        await eventually(lambda: not given.is_connected)
        async with running(impostor, nats_with_tls.port):

            async def back() -> bool:
                return given.is_connected

            await eventually(back)
            with pytest.raises(TLSFailed, match="nothing is sent over it"):
                await publisher.publish("orders", b"secret")
    await given.close()
    assert b"PUB orders" not in impostor.plain
    assert b"secret" not in impostor.plain


@pytest.mark.parametrize(
    ("address", "connect", "kind", "text"),
    [
        ("tls://127.0.0.1:1", {"tls": TLS()}, WrongType, "tls in connect= is an ssl.SSLContext"),
        ("tls://127.0.0.1:1", {"tls": True}, WrongType, "tls in connect= is an ssl.SSLContext"),
        ("tls://127.0.0.1:1", {"ssl": None}, InvalidRequest, "takes no 'ssl'"),
        ("tls://127.0.0.1:1", {"servers": []}, InvalidRequest, "takes no 'servers'"),
        ("tls://127.0.0.1:1", "tls", WrongType, "is a mapping"),
        ("ws://127.0.0.1:1", {"tls_hostname": "x"}, InvalidRequest, "write wss://"),
    ],
)
def test_arguments_that_could_not_be_kept_are_refused(
    address: str, connect: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        NatsPublisher(address, connect=connect)


# What answers


@pytest.mark.parametrize(
    ("says", "text"),
    [
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "speaks HTTP/2, as the Liftbridge API does"),
        (b"SSH-2.0-OpenSSH\r\n", "begins with b'SSH-'"),
        (b"", "closed the connection without a greeting"),
        (b"IN", "closed the connection after b'IN'"),
    ],
)
async def test_what_answers_instead_of_nats_is_said_at_once(says: bytes, text: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        if len(says) > len(b"INFO"):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        publisher = NatsPublisher(f"127.0.0.1:{port}", connect={"connect_timeout": 60})
        async with asyncio.timeout(BOUND):
            with pytest.raises(ConnectionFailed, match=text):
                await publisher.open()


async def test_a_client_at_the_port_of_nats_is_told_what_answers(nats_server: NatsServer) -> None:
    address = f"{nats_server.host}:{nats_server.port}"
    async with asyncio.timeout(BOUND):
        with pytest.raises(NotLiftbridge, match="it sent b'INFO', as a NATS server does"):
            await Client(address).connect()


async def test_a_server_that_says_nothing_is_called_so() -> None:
    silent = ScriptedNats(None)
    async with running(silent) as address:
        # nats-py's limit, and then that of the publisher.
        for connect, limit in (({"connect_timeout": 0.1}, 60.0), ({"connect_timeout": 60}, 0.1)):
            publisher = NatsPublisher(address, connect=connect, connect_timeout=limit)
            async with asyncio.timeout(BOUND):
                with pytest.raises(ConnectionFailed, match=f"{address} accepted .* said nothing"):
                    await publisher.open()
