"""By TLS a client offers HTTP/2, whoever made the context: some servers refuse who does not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from liftbridge_aio import TLS, Client, ClientOptions, ConnectionFailed
from support.certificates import Certificates
from support.faults import BOUND

WAYS: dict[str, Callable[[Path], TLS]] = {
    "files": lambda ca: TLS(ca=ca),
    "context": lambda ca: TLS(context=ssl.create_default_context(cafile=ca)),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("alpn"))


@pytest.mark.parametrize("way", WAYS)
async def test_http2_is_offered(certificates: Certificates, way: str) -> None:
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificates.server.cert, certificates.server.key)
    serving.set_alpn_protocols(["http/1.1", "h2"])
    agreed: list[str | None] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        agreed.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=serving)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = Client(address, options=ClientOptions(tls=WAYS[way](certificates.ca)))
        async with asyncio.timeout(BOUND):
            with pytest.raises(ConnectionFailed):
                await client.connect()
    assert agreed == ["h2"]
