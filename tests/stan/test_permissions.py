"""What NATS permits, and TLS: both are NATS's own, and pass through."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

import nats
import pytest

from liftbridge_aio import ConnectionFailed, ServerNotTrusted, TLSFailed, stan
from support.certificates import Certificates
from support.servers.streaming import CLUSTER, StreamingServer
from support.streaming_clients import StartServer, client_of, sequences, take

LIMITED: Final[dict[str, Any]] = {"connect": {"user": "limited", "password": "secret"}}
PERMISSIONS: Final = """
authorization {
  users = [
    { user: "stan", password: "x" },
    { user: "limited", password: "secret", permissions: {
        publish: [
          "_STAN.discover.test-cluster", "_STAN.discover.test-cluster.pings",
          "_STAN.sub.test-cluster", "_STAN.close.test-cluster", "_STAN.subclose.test-cluster",
          "_STAN.pub.test-cluster.allowed", "_INBOX.>", "*.*.subs.*.*.*" ]
        subscribe: ["_INBOX.>", "_STAN.acks.>"] } },
    { user: "stranger", password: "secret", permissions: {
        publish: ["nothing"], subscribe: ["_INBOX.>", "_STAN.acks.>"] } },
  ]
}
streaming { username: "stan", password: "x" }
"""


@pytest.fixture
def limiting_server(start_server: StartServer, tmp_path: Path) -> StreamingServer:
    """A server with a user who may publish to one channel, and one who may do nothing."""
    config = tmp_path / "permissions.conf"
    config.write_text(PERMISSIONS)
    return start_server("MEMORY", "-c", str(config))


async def test_a_publish_that_is_not_permitted(
    limiting_server: StreamingServer, client_id: str
) -> None:
    async with client_of(limiting_server.url, client_id, **LIMITED) as client:
        async with client.subscribe("allowed") as messages:
            refused = [await client.publish_async("secret", b"") for _ in range(3)]
            await client.publish("allowed", b"hello")
            async with asyncio.timeout(5):  # at once, and not after ack_timeout
                for publish in refused:
                    with pytest.raises(stan.PublishNotPermitted, match=r"_stan\.pub\..*\.secret"):
                        await publish
            assert sequences(await take(messages, 1)) == [1]
        async with client.subscribe("secret", start=stan.StartAt.earliest()) as messages:
            assert messages.statistics().received == 0


async def test_a_publish_that_is_not_permitted_over_a_given_connection(
    limiting_server: StreamingServer, client_id: str
) -> None:
    async def keep_quiet(_error: Exception) -> None:
        pass

    connection = await nats.connect(limiting_server.url, error_cb=keep_quiet, **LIMITED["connect"])
    options = stan.ClientOptions(ack_timeout=0.3)
    async with stan.Client(
        connection, cluster=CLUSTER, client_id=client_id, options=options
    ) as client:
        with pytest.raises(stan.PublishNotPermitted):
            await client.publish("secret", b"")
    await connection.close()


async def test_requests_that_are_not_permitted(
    limiting_server: StreamingServer, client_id: str
) -> None:
    stranger = {"connect": {"user": "stranger", "password": "secret"}}
    with pytest.raises(stan.RequestNotPermitted, match=r"_STAN\.discover\.test-cluster"):
        await client_of(limiting_server.url, client_id, **stranger).connect()
    async with client_of(limiting_server.url, client_id, **LIMITED) as client:
        subscription = client.subscribe("allowed", durable="dur")
        await subscription.open()
        with pytest.raises(stan.RequestNotPermitted, match=r"_STAN\.unsub\."):
            await subscription.unsubscribe()
        await subscription.aclose()


async def test_wrong_credentials(limiting_server: StreamingServer, client_id: str) -> None:
    wrong = {"connect": {"user": "limited", "password": "guessed"}}
    with pytest.raises(ConnectionFailed, match=r"(?i)authorization") as caught:
        await client_of(limiting_server.url, client_id, **wrong).connect()
    assert "guessed" not in str(caught.value)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def test_tls(
    start_server: StartServer, certificates: Certificates, client_id: str, channel: str
) -> None:
    pair = certificates.server
    files = ("--tls", "--tlscert", str(pair.cert), "--tlskey", str(pair.key))
    authority = ("-tls_client_cacert", str(certificates.ca))
    server = start_server("MEMORY", *files, *authority)
    address = f"{server.host}:{server.port}"
    trusting = ssl.create_default_context(cafile=certificates.ca)
    async with client_of(f"tls://{address}", client_id, connect={"tls": trusting}) as client:
        await client.publish(channel, b"")
    stranger = ssl.create_default_context(cafile=certificates.other_ca)
    with pytest.raises(ServerNotTrusted):
        await client_of(f"tls://{address}", client_id, connect={"tls": stranger}).connect()


async def test_tls_that_the_server_does_not_offer(nats_url: str, client_id: str) -> None:
    address = nats_url.replace("nats://", "tls://")
    with pytest.raises(TLSFailed, match="does not offer TLS"):
        await client_of(address, client_id).connect()
