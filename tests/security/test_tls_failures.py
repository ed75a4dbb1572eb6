"""Failures of TLS: each time one typed error, soon, that says what to check."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from liftbridge_aio import (
    TLS,
    Client,
    ClientNotTrusted,
    ClientOptions,
    ConnectionFailed,
    ConnectTimeout,
    NotLiftbridge,
    PublishNotSent,
    ServerNotTrusted,
    StartAt,
    SubscriptionLost,
    TLSFailed,
)
from liftbridge_aio._core.status import CallFailure, Reach
from liftbridge_aio._subscribe.core import resubscribe_deadline
from liftbridge_aio.broker import BrokerTLS, EmbeddedBroker
from liftbridge_aio.net.broker_connection import Purpose
from liftbridge_aio.net.tls_context import ClientTLS, speaks_tls
from liftbridge_aio.telemetry import ConnectFailed, Hook
from support.certificates import PASSWORD, Certificates, Pair
from support.servers.node import Server

SOON = 3.0  # seconds, of the ten that a call may take


async def refusal_of(address: str, tls: TLS | None) -> TLSFailed:
    """Connect patiently, which has to fail all the same, and soon."""
    client = Client(address, options=ClientOptions(tls=tls))
    began = time.monotonic()
    with pytest.raises(TLSFailed) as caught:
        await client.wait_ready()
    assert time.monotonic() - began < SOON
    await client.aclose()
    assert not caught.value.reached_server
    return caught.value


async def test_an_authority_that_is_not_trusted(
    tls_server: Server, certificates: Certificates, admin: Pair
) -> None:
    tls = TLS(ca=certificates.other_ca, cert=admin.cert, key=admin.key)
    error = await refusal_of(tls_server.address, tls)
    assert type(error) is ServerNotTrusted
    assert "an authority that is not trusted" in str(error)
    assert str(error).count(tls_server.address) == 1
    assert "check that this is the right server, that ca has the authority" in str(error)


async def test_a_certificate_for_another_name(
    tls_server: Server, certificates: Certificates, admin: Pair
) -> None:
    files: dict[str, Any] = {"ca": certificates.ca, "cert": admin.cert, "key": admin.key}
    error = await refusal_of(tls_server.address, TLS(server_name="other.example", **files))
    assert type(error) is ServerNotTrusted
    assert "a certificate for another name" in str(error)
    assert "'other.example'" in str(error)
    options = ClientOptions(tls=TLS(server_name="brokers.example", **files))
    async with Client(tls_server.address, options=options) as client:
        assert await client.ping() < SOON


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_certificate_where_the_server_wants_one(
    tls_server: Server, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    if version is ssl.TLSVersion.TLSv1_3:
        error = await refusal_of(tls_server.address, TLS(ca=certificates.ca))
        assert type(error) is ClientNotTrusted
        assert "requires a certificate of the client, which presents none" in str(error)
    else:  # which has no words for it
        context = ssl.create_default_context(cafile=str(certificates.ca))
        context.maximum_version = version
        error = await refusal_of(tls_server.address, TLS(context=context))
        assert "HANDSHAKE_FAILURE" in str(error)


async def test_a_certificate_of_the_client_that_is_not_accepted(
    tls_server: Server, certificates: Certificates
) -> None:
    stranger = certificates.signed("stranger", by_stranger=True)
    error = await refusal_of(
        tls_server.address, TLS(ca=certificates.ca, cert=stranger.cert, key=stranger.key)
    )
    assert type(error) is ClientNotTrusted
    assert "does not know the authority" in str(error)
    old = certificates.signed("old", expired=True)
    error = await refusal_of(
        tls_server.address, TLS(ca=certificates.ca, cert=old.cert, key=old.key)
    )
    assert type(error) is ClientNotTrusted
    assert "not valid at this time" in str(error)


async def test_plain_connections_to_a_server_that_wants_tls(tls_server: Server) -> None:
    error = await refusal_of(tls_server.address, None)
    assert type(error) is TLSFailed
    assert "requires TLS, but this client was configured without it" in str(error)


async def test_tls_to_a_server_that_does_not_speak_it(server: Server, admin_tls: TLS) -> None:
    error = await refusal_of(server.address, admin_tls)
    assert type(error) is TLSFailed
    assert "does not speak TLS" in str(error)


async def test_a_server_whose_certificate_has_expired(certificates: Certificates) -> None:
    pair = certificates.signed("server-of-old", "127.0.0.1", expired=True)
    async with EmbeddedBroker(tls=BrokerTLS(cert=pair.cert, key=pair.key)) as broker:
        error = await refusal_of(broker.address, TLS(ca=certificates.ca))
    assert type(error) is ServerNotTrusted
    assert "has expired" in str(error)


async def test_a_server_that_never_answers_the_greeting_is_given_up(admin_tls: TLS) -> None:
    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client has gone
        writer.close()

    async with await asyncio.start_server(be_silent, "127.0.0.1") as silent:
        host, port = silent.sockets[0].getsockname()
        client = Client(f"{host}:{port}", options=ClientOptions(tls=admin_tls, connect_timeout=0.2))
        with pytest.raises(ConnectionFailed, match="did not accept a TLS connection"):
            await client.connect()


async def test_a_server_that_hangs_up_may_just_be_ending(admin_tls: TLS) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        client = Client(f"{host}:{port}", options=ClientOptions(tls=admin_tls))
        with pytest.raises(ConnectTimeout):  # so it was tried again
            await client.wait_ready(timeout=0.5)
        await client.aclose()
        assert not await speaks_tls(f"{host}:{port}")


# Files


async def test_files_that_cannot_be_used(
    certificates: Certificates, admin: Pair, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    locked = certificates.locked(admin)
    ca, cert = certificates.ca, admin.cert
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + locked.read_bytes())
    for tls, text in (
        (TLS(ca=tmp_path / "missing.pem"), "missing.pem' cannot be used: No such file"),
        (TLS(ca=empty), "empty.pem' cannot be used: it is no PEM file"),
        (TLS(ca=ca, cert=cert, key=empty), "cannot be used: it is no PEM file"),
        (TLS(ca=ca, cert=cert), "with a certificate and its private key, or that is"),
        (TLS(ca=ca, cert=both, key_password=PASSWORD[1:]), "opened by another key_password"),
        (TLS(ca=ca, cert=cert, key=certificates.server.key), "does not belong to the certificate"),
        (TLS(ca=ca, cert=cert, key=locked), "is encrypted; give its key_password"),
        (TLS(ca=ca, cert=cert, key=locked, key_password=PASSWORD[1:]), "password"),
    ):
        async with EmbeddedBroker() as broker:  # which is not even asked
            error = await refusal_of(broker.address, tls)
        assert type(error) is TLSFailed
        assert text in str(error)


async def test_an_encrypted_key_is_opened(
    tls_server: Server, certificates: Certificates, admin: Pair
) -> None:
    locked = certificates.locked(admin)
    tls = TLS(ca=certificates.ca, cert=admin.cert, key=locked, key_password=PASSWORD)
    async with Client(tls_server.address, options=ClientOptions(tls=tls)) as client:
        assert await client.ping() < SOON


async def test_renewed_files_are_used_by_the_next_connection(
    certificates: Certificates, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.other_ca.read_bytes())
    pair = certificates.server
    async with EmbeddedBroker(tls=BrokerTLS(cert=pair.cert, key=pair.key)) as broker:
        client = Client(broker.address, options=ClientOptions(tls=TLS(ca=ca)))
        with pytest.raises(ServerNotTrusted):
            await client.wait_ready()
        ca.write_bytes(certificates.ca.read_bytes())
        await client.wait_ready()
        await client.aclose()


async def test_files_that_are_being_renewed_hold_nobody_up(
    certificates: Certificates,
    admin: Pair,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(admin.cert.read_bytes())
    key.write_bytes(admin.key.read_bytes())
    tls = ClientTLS(TLS(ca=certificates.ca, cert=cert, key=key))
    before = tls.context()
    key.write_bytes(certificates.server.key.read_bytes())
    for _ in range(2):
        assert tls.context() is before
    (warning,) = caplog.messages
    assert "does not belong to the certificate; connections use the files as read before" in warning
    key.write_bytes(admin.key.read_bytes())
    assert tls.context() is not before
    key.unlink()
    assert tls.context() is not before
    assert len(caplog.messages) == 2
    with pytest.raises(CallFailure, match="No such file"):
        ClientTLS(TLS(ca=certificates.ca, cert=cert, key=key)).context()


async def test_a_context_of_ones_own_is_used_as_it_is(
    tls_server: Server, certificates: Certificates, admin: Pair
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(admin.cert, admin.key)
    options = ClientOptions(tls=TLS(context=context, server_name="localhost"))
    async with Client(tls_server.address, options=options) as client:
        assert await client.ping() < SOON
        assert client._parts is not None
        (link,) = client._parts.network.pool.connections
        protocol = link._channel.first_protocol
        assert protocol is not None
        agreed = protocol.connection._transport.get_extra_info("ssl_object")
        assert agreed.selected_alpn_protocol() == "h2"


# Some of several, and later


class Watch(Hook):
    def __init__(self) -> None:
        self.events: list[ConnectFailed] = []

    def connect_failed(self, event: ConnectFailed) -> None:
        self.events.append(event)


async def test_one_untrusted_server_of_three_is_reported_and_passed_over(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = certificates.server, certificates.signed("server-x", "127.0.0.1", by_stranger=True)
    watch = Watch()
    options = ClientOptions(tls=TLS(ca=certificates.ca), hook=watch)
    async with (
        EmbeddedBroker(tls=BrokerTLS(cert=good.cert, key=good.key)) as broker,
        EmbeddedBroker(tls=BrokerTLS(cert=bad.cert, key=bad.key)) as wrong,
        EmbeddedBroker() as plain,
    ):
        for _ in range(20):  # seeds are tried in any order
            async with Client(
                wrong.address, broker.address, plain.address, options=options
            ) as client:
                assert client.metadata.brokers
            if {event.address for event in watch.events} == {wrong.address, plain.address}:
                break
    kinds = {event.address: type(event.error) for event in watch.events}
    assert kinds == {wrong.address: ServerNotTrusted, plain.address: TLSFailed}
    warned = [record for record in caplog.records if record.name == "liftbridge_aio.net"]
    assert any("authority that is not trusted" in record.getMessage() for record in warned)


async def test_what_is_under_way_ends_when_servers_are_not_trusted_any_more(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resubscribe_deadline, "UNTRUSTED_FOR", 0.5)  # not five seconds, for time
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(pair: Pair) -> None:
        cert.write_bytes(pair.cert.read_bytes())
        key.write_bytes(pair.key.read_bytes())

    put(certificates.server)
    options = ClientOptions(tls=TLS(ca=certificates.ca), resubscribe_timeout=None)
    async with (
        EmbeddedBroker(tls=BrokerTLS(cert=cert, key=key)) as broker,
        Client(broker.address, options=options) as client,
    ):
        await client.create_stream("s")
        await client.publish("s", b"before")
        async with client.subscribe("s", start=StartAt.earliest()) as reading:
            assert (await anext(reading)).value == b"before"
            put(certificates.signed("server-y", "127.0.0.1", by_stranger=True))
            await broker.restart()
            async with asyncio.timeout(20):
                with pytest.raises(ServerNotTrusted) as caught:
                    await anext(reading)
        assert caught.value.offset == 0, "the last one that was delivered"
        with pytest.raises(ServerNotTrusted):
            await client.create_stream("t")
        for _ in range(2):  # each publish finds it out for itself
            async with asyncio.timeout(SOON):
                with pytest.raises(PublishNotSent, match="authority that is not trusted") as unsent:
                    await client.publish("s", b"between")
            assert isinstance(unsent.value.__cause__, ServerNotTrusted)
        put(certificates.server)
        await broker.restart()
        await client.publish("s", b"after")


async def test_a_plain_client_whose_server_turns_to_tls_is_told(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resubscribe_deadline, "UNTRUSTED_FOR", 0.2)
    options = ClientOptions(resubscribe_timeout=None)
    plain, pair = EmbeddedBroker(), certificates.server
    await plain.start()
    async with Client(plain.address, options=options) as client:
        await client.create_stream("s")
        async with client.subscribe("s", start=StartAt.earliest()) as reading:
            await plain.stop()
            secure = EmbeddedBroker(port=plain.port, tls=BrokerTLS(cert=pair.cert, key=pair.key))
            async with secure, asyncio.timeout(20):
                with pytest.raises(TLSFailed, match="requires TLS"):
                    await anext(reading)
                with pytest.raises(TLSFailed, match="requires TLS"):
                    await client.create_stream("t")


async def test_where_others_are_down_the_one_that_is_not_trusted_is_named(
    certificates: Certificates, unused_tcp_port: int, tmp_path: Path
) -> None:
    dead = f"127.0.0.1:{unused_tcp_port}"
    good, bad = certificates.server, certificates.signed("server-z", "127.0.0.1", by_stranger=True)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(pair: Pair) -> None:
        cert.write_bytes(pair.cert.read_bytes())
        key.write_bytes(pair.key.read_bytes())

    put(good)
    options = ClientOptions(tls=TLS(ca=certificates.ca), resubscribe_timeout=0.5)
    async with EmbeddedBroker(tls=BrokerTLS(cert=cert, key=key)) as broker:
        async with Client(broker.address, dead, options=options) as client:
            await client.create_stream("s")
            async with client.subscribe("s") as reading:
                put(bad)
                await broker.restart()
                with pytest.raises(SubscriptionLost, match="authority that is not trusted"):
                    await anext(reading)
        with pytest.raises(ServerNotTrusted, match="authority that is not trusted"):
            await Client(broker.address, dead, options=options).connect()


async def test_a_server_of_something_else_is_named_after_the_wait(
    certificates: Certificates,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    pair = certificates.server
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    async with await asyncio.start_server(answer, "127.0.0.1", ssl=context) as server:
        host, port = server.sockets[0].getsockname()
        tls = TLS(ca=certificates.ca)
        client = Client(f"{host}:{port}", options=ClientOptions(tls=tls))
        with pytest.raises(NotLiftbridge, match="does not speak HTTP/2"):
            await client.wait_ready(timeout=2)
        await client.aclose()


async def test_an_address_that_nobody_can_be_asked_for_is_a_failure_like_others() -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        assert client._parts is not None
        for address in ("a..b:1", f"{'a' * 64}:1", "a b:1"):  # servers may tell what they like
            with pytest.raises(CallFailure, match="is not an address") as caught:
                await client._parts.network.pool.get(address, Purpose.CONTROL)
            assert caught.value.reach is Reach.NOT_SENT
        assert await client.ping() < SOON
