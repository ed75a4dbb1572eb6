"""Web services over TLS: what they are told of servers reaches their client."""

from __future__ import annotations

import pytest

from liftbridge_aio import TLS, Client, ClientOptions
from liftbridge_aio.broker import BrokerTLS, EmbeddedBroker
from liftbridge_aio.integrations.service import running_service
from support.certificates import PASSWORD, Certificates, Pair
from support.web.web_apps import FRAMEWORKS


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_service_takes_a_url_and_options(
    certificates: Certificates, framework: str
) -> None:
    serve, pair = FRAMEWORKS[framework], certificates.server
    async with EmbeddedBroker(tls=BrokerTLS(cert=pair.cert, key=pair.key)) as broker:
        url = f"liftbridge+tls://{broker.address}?ca={certificates.ca}"
        async with serve(url, "orders") as served:
            await served.client.create_stream("orders")
        trusting = ClientOptions(tls=TLS(ca=certificates.ca))
        async with serve(broker.address, "orders", trusting) as served:
            assert (await served.client.publish("orders", b"bread")).offset == 0


async def test_the_password_of_a_key_in_a_url_comes_from_the_environment(
    certificates: Certificates, admin: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, locked = certificates.server, certificates.locked(admin)
    tls = BrokerTLS(cert=pair.cert, key=pair.key, client_ca=certificates.ca)
    monkeypatch.setenv("LIFTBRIDGE_TLS_KEY_PASSWORD", PASSWORD)
    async with EmbeddedBroker(tls=tls) as broker:
        files = f"ca={certificates.ca}&cert={admin.cert}&key={locked}"
        url = f"liftbridge+tls://{broker.address}?{files}"
        async with running_service(url, options=None, timeout=None) as service:
            assert await service.client.ping() < 5


async def test_a_service_takes_it_from_the_environment(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = certificates.server
    async with EmbeddedBroker(tls=BrokerTLS(cert=pair.cert, key=pair.key)) as broker:
        monkeypatch.setenv("LIFTBRIDGE_SERVERS", broker.address)
        monkeypatch.setenv("LIFTBRIDGE_TLS_CA", str(certificates.ca))
        async with Client.from_env() as client:
            assert await client.ping() < 5
