"""Permissions by the policy of a real server: the embedded broker has none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from liftbridge_aio import (
    TLS,
    Client,
    ClientOptions,
    Hook,
    PermissionDenied,
    StartAt,
)
from liftbridge_aio.telemetry import Retried
from support.certificates import Certificates
from support.servers.node import LiftbridgeNode

DENIED: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "CreateStream": lambda client: client.create_stream("closed"),
    "DeleteStream": lambda client: client.delete_stream("closed"),
    "PauseStream": lambda client: client.pause_stream("closed"),
    "SetStreamReadonly": lambda client: client.set_stream_readonly("closed"),
    "FetchPartitionMetadata": lambda client: client.fetch_partition_metadata("closed", 0),
    "PublishToSubject": lambda client: client.publish_to_subject("closed", b""),
    "SetCursor": lambda client: client.set_cursor("c", "closed", 0, 1),
    "FetchCursor": lambda client: client.fetch_cursor("c", "closed", 0),
    "Subscribe": lambda client: anext(client.subscribe("closed", start=StartAt.earliest())),
    "Publish": lambda client: client.publish("closed", b"denied"),
}


class Watch(Hook):
    def __init__(self) -> None:
        self.retried_calls: list[str] = []

    def retried(self, event: Retried) -> None:
        self.retried_calls.append(event.call)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture(scope="module")
def reader_tls(certificates: Certificates) -> TLS:
    """TLS of somebody who may only read `open`."""
    pair = certificates.signed("reader")
    return TLS(ca=certificates.ca, cert=pair.cert, key=pair.key)


@pytest.fixture
async def reader(
    policed_server: LiftbridgeNode, reader_tls: TLS, watch: Watch
) -> AsyncIterator[Client]:
    options = ClientOptions(tls=reader_tls, hook=watch)
    async with Client(policed_server.address, options=options) as client:
        yield client


@pytest.fixture
async def admin_client(policed_server: LiftbridgeNode, admin_tls: TLS) -> AsyncIterator[Client]:
    async with Client(policed_server.address, options=ClientOptions(tls=admin_tls)) as client:
        yield client


async def test_what_is_allowed_works(reader: Client, admin_client: Client) -> None:
    ack = await admin_client.publish("open", b"for all to read")
    async with reader.subscribe("open", start=StartAt.offset(ack.offset)) as reading:
        assert (await anext(reading)).value == b"for all to read"
    assert (await reader.fetch_partition_metadata("open", 0)).leader
    await reader.wait_ready()  # which asks for something that is forbidden


@pytest.mark.parametrize("method", DENIED)
async def test_what_is_denied_is_one_error_and_not_tried_again(
    reader: Client, watch: Watch, method: str
) -> None:
    with pytest.raises(PermissionDenied) as caught:
        await DENIED[method](reader)
    assert f"not authorized to call {method} on resource closed" in str(caught.value)
    assert "p, <name>, <stream" in str(caught.value)
    assert watch.retried_calls == []


async def test_metadata_that_is_denied_ends_connecting(
    policed_server: LiftbridgeNode, certificates: Certificates
) -> None:
    nobody = certificates.signed("nobody")
    tls = TLS(ca=certificates.ca, cert=nobody.cert, key=nobody.key)
    client = Client(policed_server.address, options=ClientOptions(tls=tls))
    with pytest.raises(PermissionDenied, match=r"FetchMetadata on resource \*"):
        await client.connect()


async def test_a_publish_without_ack_that_is_denied_shows_at_flush(reader: Client) -> None:
    await reader.publish_unacked("closed", b"denied")
    with pytest.raises(PermissionDenied):
        await reader.flush()


async def test_v1_9_0_stores_what_it_denies(reader: Client, admin_client: Client) -> None:
    """A fault of the server: it answers that a publish is denied, and publishes it all the same."""
    value = b"denied and stored"
    with pytest.raises(PermissionDenied):
        await reader.publish("closed", value)
    async with admin_client.subscribe("closed", start=StartAt.earliest()) as reading:
        async for message in reading:
            if message.value == value:
                break
