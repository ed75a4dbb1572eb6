"""Behaviours of the Go client around pings, under the names of its tests."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
import pytest

from liftbridge_aio import (
    ConnectionFailed,
    InvalidRequest,
    PublishNotSent,
    PublishOutcomeUnknown,
    WrongType,
    stan,
)
from stan.conftest import Script
from support.peers.scripted_stan import scripted_stan
from support.servers.streaming import CLUSTER, StreamingServer
from support.streaming_clients import MakeClient, client_of, state_of, until

FAILED = stan.ClientState.FAILED


@pytest.mark.parametrize(
    "wrong",
    [
        {"ping_interval": 0},
        {"ping_interval": -1},
        {"ping_max_out": 1},
        {"ping_max_out": 2**31},
        {"max_in_flight": 0},
        {"ack_timeout": 0},
        {"request_timeout": -1},
        {"discover_prefix": ""},
        {"discover_prefix": "a.*"},
    ],
    ids=str,
)
def test_pings_invalid_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        stan.ClientOptions(**wrong)


def test_options_of_the_wrong_type() -> None:
    with pytest.raises(WrongType):
        stan.ClientOptions(ping_interval=1.5)  # type: ignore[arg-type]
    with pytest.raises(WrongType):
        stan.ClientOptions(recover=1)  # type: ignore[arg-type]


async def test_pings(nats_url: str, client_id: str, channel: str) -> None:
    """The session is lost with the first ping after so many without an answer."""
    events: list[stan.Event] = []
    options: dict[str, Any] = {"ping_interval": 1, "ping_max_out": 2, "recover": False}
    async with scripted_stan(nats_url, client_id) as scripted:
        client = client_of(
            nats_url, client_id, cluster=client_id, on_event=events.append, **options
        )
        async with client:
            async with client.subscribe(channel) as messages:
                [ping] = await scripted.has("pings")
                [connect] = scripted.of("connect")
                assert ping.conn_id == connect.conn_id
                scripted.silent.add("pings")
                await until(lambda: state_of(client) is FAILED)
                assert len(scripted.of("pings")) == 3
                with pytest.raises(stan.SessionLost, match="has not answered 2 pings"):
                    await anext(messages)
                with pytest.raises(StopAsyncIteration):
                    await anext(messages)
            for call in (client.publish(channel, b""), client.subscribe(channel).open()):
                with pytest.raises(stan.SessionLost, match="has not answered 2 pings"):
                    await call
        assert [type(event) for event in events] == [stan.Lost, stan.GaveUp]


async def test_pings_with_nats_closed(server: StreamingServer, client_id: str) -> None:
    connection = await nats.connect(server.url)
    events: list[stan.Event] = []
    async with stan.Client(
        connection, cluster=CLUSTER, client_id=client_id, on_event=events.append
    ) as client:
        await connection.close()
        await until(lambda: state_of(client) is FAILED)
    [event] = events
    assert isinstance(event, stan.GaveUp)
    assert isinstance(event.error, ConnectionFailed)
    assert "the NATS connection is closed" in str(event.error)


async def test_pings_response_error(script: Script) -> None:
    events: list[stan.Event] = []
    error = "client has been replaced or is no longer registered"
    async with script(
        errors={"pings": error}, ping_interval=1, recover=False, on_event=events.append
    ) as (_, client):
        await until(lambda: state_of(client) is FAILED)
    assert error in str(events[0].error)  # type: ignore[union-attr]
    assert len(events) == 2


async def test_pings_close_unlock_pub_calls(script: Script, channel: str) -> None:
    """Publishes that wait for room end when the session is lost."""
    options: dict[str, Any] = {
        "ping_interval": 1,
        "ping_max_out": 2,
        "recover": False,
        "max_in_flight": 1,
        "publish_timeout": 60,
    }
    async with script(silent={"pings", "pub"}, **options) as (_, client):
        sent = await client.publish_async(channel, b"")
        waiting = [asyncio.create_task(client.publish(channel, b"")) for _ in range(5)]
        done, _ = await asyncio.wait(waiting, timeout=10)
        assert len(done) == 5
        assert all(isinstance(task.exception(), PublishNotSent) for task in done)
        with pytest.raises(PublishOutcomeUnknown, match="lost before the ack came") as caught:
            await sent
        assert isinstance(caught.value.__cause__, stan.SessionLost)


async def test_conn_err_handler_not_called_on_normal_close(make: MakeClient, channel: str) -> None:
    events: list[stan.Event] = []
    async with make(on_event=events.append, ping_interval=1) as client:
        await client.publish(channel, b"")
    assert events == []


async def test_no_responders_is_no_answer(nats_url: str, client_id: str) -> None:
    """NATS answers a ping in place of a server that is not there, with an empty message."""
    events: list[stan.Event] = []
    options: dict[str, Any] = {"ping_interval": 1, "ping_max_out": 2, "recover": False}
    async with scripted_stan(nats_url, client_id) as scripted:
        client = client_of(
            nats_url, client_id, cluster=client_id, on_event=events.append, **options
        )
        await client.connect()
        await scripted.connection.close()
        await until(lambda: state_of(client) is FAILED)
        await client.aclose()
    assert "has not answered 2 pings" in str(events[0].error)  # type: ignore[union-attr]


async def test_a_server_without_pings_is_not_pinged(script: Script, client_id: str) -> None:
    async with script(without={"ping_requests"}, ping_interval=1) as (scripted, client):
        assert client._runtime is not None
        session = client._runtime._session
        assert session is not None
        assert not session.can_ping
        for _ in range(200):
            session.ping()
        await client.publish(client_id, b"")
        assert scripted.of("pings") == []
        assert client.state is stan.ClientState.OPEN


async def test_what_on_event_raises_is_logged(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_event: stan.Event) -> None:
        raise ZeroDivisionError

    async with script(errors={"pings": "gone"}, ping_interval=1, recover=False, on_event=fail) as (
        _,
        client,
    ):
        await until(lambda: state_of(client) is FAILED)
    assert caplog.text.count("on_event failed") == 2
