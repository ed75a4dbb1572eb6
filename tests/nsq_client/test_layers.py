"""TLS, compression and authorisation on real daemons."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from liftbridge_aio import nsq
from liftbridge_aio.nsq.errors import CommandRefused, NotConnected, Unauthorized
from nsq_client.conftest import StartDaemon
from support.certificates import Certificates
from support.servers.nsq_daemons import NsqDaemon

COMPRESSIONS: list[dict[str, Any]] = [{}, {"deflate_level": 6}, {"snappy": True}]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def trusting(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificates.ca)


@pytest.fixture
def tls_nsqd(start: StartDaemon, certificates: Certificates) -> NsqDaemon:
    pair = certificates.server
    return start("nsqd", f"-tls-cert={pair.cert}", f"-tls-key={pair.key}", "-tls-required=true")


async def roundtrip(address: str, topic: str, **options: Any) -> None:
    """Publish and consume small, large and many messages."""
    expected = [b"small", bytes(300_000), *(b"%d" % number * 20 for number in range(200))]
    async with nsq.Producer(address, options=nsq.ConnectionOptions(**options)) as producer:
        await producer.publish_many(topic, expected)
    found = []
    async with nsq.Consumer(
        topic, "test", nsqd=[address], max_in_flight=50, options=nsq.ConsumerOptions(**options)
    ) as consumer:
        async for message in consumer:
            found.append(message.body)
            await message.finish()
            if len(found) == len(expected):
                break
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
async def test_compression(nsqd: NsqDaemon, topic: str, compression: dict[str, Any]) -> None:
    await roundtrip(nsqd.address, topic, **compression)


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
async def test_tls_with_compression(
    tls_nsqd: NsqDaemon, certificates: Certificates, topic: str, compression: dict[str, Any]
) -> None:
    await roundtrip(tls_nsqd.address, topic, tls=trusting(certificates), **compression)


async def test_a_client_certificate(
    start: StartDaemon, certificates: Certificates, topic: str
) -> None:
    pair, own = certificates.server, certificates.signed("worker")
    daemon = start(
        "nsqd",
        f"-tls-cert={pair.cert}",
        f"-tls-key={pair.key}",
        f"-tls-root-ca-file={certificates.ca}",
        "-tls-client-auth-policy=require-verify",
    )
    context = trusting(certificates)
    with pytest.raises(NotConnected):
        await roundtrip(daemon.address, topic, tls=context)
    context.load_cert_chain(own.cert, own.key)
    await roundtrip(daemon.address, topic, tls=context)


async def test_an_untrusted_server_is_refused(tls_nsqd: NsqDaemon) -> None:
    options = nsq.ConnectionOptions(tls=ssl.create_default_context())
    with pytest.raises(NotConnected, match="certificate"):
        async with nsq.Producer(tls_nsqd.address, options=options):
            pass


async def test_a_server_that_requires_tls_says_so(tls_nsqd: NsqDaemon, topic: str) -> None:
    with pytest.raises(CommandRefused, match="TLS required"):
        async with nsq.Producer(tls_nsqd.address) as producer:
            await producer.publish(topic, b"x")


@pytest.fixture
def authorisation() -> Iterator[str]:
    """A server that lets the secret "open" publish and subscribe to topics of orders."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = "secret=open" in self.path
            permission = {
                "topic": "orders-.*",
                "channels": [".*"],
                "permissions": ["subscribe", "publish"],
            }
            answer = {
                "ttl": 3600,
                "identity": "worker",
                "authorizations": [permission] if allowed else [],
            }
            body = json.dumps(answer).encode()
            self.send_response(200 if allowed else 403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_authorisation(start: StartDaemon, authorisation: str, topic: str) -> None:
    daemon = start("nsqd", f"-auth-http-address={authorisation}")
    await roundtrip(daemon.address, topic, auth_secret="open")  # noqa: S106 - of the test
    with pytest.raises(Unauthorized, match="E_AUTH_FAILED"):
        async with nsq.Producer(
            daemon.address,
            options=nsq.ConnectionOptions(auth_secret="wrong"),  # noqa: S106 - same
        ):
            pass
    with pytest.raises(Unauthorized) as caught:
        async with nsq.Producer(
            daemon.address,
            options=nsq.ConnectionOptions(auth_secret="open"),  # noqa: S106 - same
        ) as producer:
            await producer.publish("secrets", b"x")
    assert "open" not in str(caught.value)
    assert "open" not in repr(nsq.ConnectionOptions(auth_secret="open"))  # noqa: S106 - same
