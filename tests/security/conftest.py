"""Servers that speak TLS: the embedded broker and the pinned real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from liftbridge_aio import TLS, Client, ClientOptions
from liftbridge_aio.broker import BrokerTLS, EmbeddedBroker
from support.certificates import Certificates, Pair
from support.servers.build import pinned_version
from support.servers.node import EmbeddedServer, LiftbridgeNode, Server
from support.servers.tls_node import STREAMS, policy_settings, server_settings, start

EMBEDDED: Final = "embedded"
PINNED: Final = pinned_version()
READER: Final = "reader"
ALL_METHODS: Final = (
    "CreateStream",
    "DeleteStream",
    "PauseStream",
    "SetStreamReadonly",
    "Subscribe",
    "FetchPartitionMetadata",
    "Publish",
    "SetCursor",
    "FetchCursor",
)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority and what it has signed."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def admin(certificates: Certificates) -> Pair:
    """The certificate of a client that may do everything with the streams of the tests."""
    return certificates.signed("admin")


@pytest.fixture(scope="session")
def admin_tls(certificates: Certificates, admin: Pair) -> TLS:
    """TLS with that certificate."""
    return TLS(ca=certificates.ca, cert=admin.cert, key=admin.key)


@pytest.fixture(scope="session")
def policed_server(
    server_binary: Path,
    tmp_path_factory: pytest.TempPathFactory,
    certificates: Certificates,
    admin_tls: TLS,
) -> Iterator[LiftbridgeNode]:
    """A real server that wants certificates and has a policy.

    `admin` may do all with the streams `open` and `closed`, `reader` may only read `open`.
    """
    rules = [
        "p, admin, *, FetchMetadata",
        "p, reader, *, FetchMetadata",
        "p, reader, open, Subscribe",
        "p, reader, open, FetchPartitionMetadata",
        "p, admin, __cursors, Publish",
    ]
    rules += [f"p, admin, {stream}, {method}" for stream in STREAMS for method in ALL_METHODS]
    folder = tmp_path_factory.mktemp("policed")
    settings = {
        **server_settings(certificates, certificates.server, wants_certificates=True),
        **policy_settings(folder, "\n".join(rules)),
    }
    node = start(server_binary, folder, PINNED, settings, admin_tls)
    yield node
    node.stop()


@pytest.fixture(params=[EMBEDDED, PINNED])
async def tls_server(
    request: pytest.FixtureRequest, certificates: Certificates, admin_tls: TLS
) -> AsyncIterator[Server]:
    """A server that wants certificates: each of those that there are."""
    if request.param == PINNED:
        yield request.getfixturevalue("policed_server")
        return
    pair = certificates.server
    tls = BrokerTLS(cert=pair.cert, key=pair.key, client_ca=certificates.ca)
    async with EmbeddedBroker(tls=tls) as broker:
        async with Client(broker.address, options=ClientOptions(tls=admin_tls)) as client:
            for stream in STREAMS:
                await client.create_stream(stream)
        yield EmbeddedServer(broker.host, broker.port)
