"""Behaviours of the Go client when publishing, under the names of its tests."""

from __future__ import annotations

import asyncio

import nats
import pytest

from liftbridge_aio import (
    AckTimeout,
    ClientClosed,
    ConnectionFailed,
    InvalidRequest,
    MessageTooLarge,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishRefused,
    PublishTimeout,
    WrongType,
    stan,
)
from liftbridge_aio.wire.stan import PubAck, PubMsg
from liftbridge_aio.wire.stan_codec import encode_publish, publish_start
from stan.conftest import Script
from support.peers.scripted_stan import scripted_stan
from support.servers.streaming import CLUSTER, StreamingServer
from support.streaming_clients import (
    MakeClient,
    StartServer,
    client_of,
    ignore_heartbeats,
    sequences,
    state_of,
    take,
    until,
)


async def test_basic_publish(make: MakeClient, channel: str) -> None:
    async with make() as client:
        with pytest.raises(InvalidRequest, match="ack_timeout"):
            await client.publish(channel, b"hello", ack_timeout=-1)
        guid = await client.publish(channel, b"hello")
        assert guid != await client.publish(channel, b"hello", reply="answers.here")
        async with client.subscribe(channel, start=stan.StartAt.earliest()) as messages:
            first, second = await take(messages, 2)
        assert (first.data, first.reply, second.reply) == (b"hello", "", "answers.here")
        assert client.statistics().publishes.acked == 2


@pytest.mark.parametrize(
    "channel", ["", ".a", "a.", "a..b", "a.*", "a.>", "a/b", "a b", "a\tb", "a\x00b"]
)
async def test_bad_channels_are_refused_before_anything_is_sent(
    make: MakeClient, channel: str
) -> None:
    async with make() as client:
        with pytest.raises(InvalidRequest, match="a channel has no"):
            await client.publish(channel, b"")
        with pytest.raises(InvalidRequest, match="a channel has no"):
            client.subscribe(channel)
        assert client.statistics().publishes.sent == 0


async def test_wrong_arguments_are_refused(make: MakeClient, channel: str) -> None:
    async with make() as client:
        with pytest.raises(WrongType):
            await client.publish(channel, "text")  # type: ignore[arg-type]
        with pytest.raises(WrongType):
            await client.publish(1, b"")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="reply subject"):
            await client.publish(channel, b"", reply="a b")
        with pytest.raises(MessageTooLarge):
            await client.publish(channel, bytes(2**20 + 1))


async def test_basic_publish_async(make: MakeClient, channel: str) -> None:
    async with make() as client:
        publishes = [await client.publish_async(channel, b"%d" % n) for n in range(100)]
        assert [publish.guid for publish in publishes] == await asyncio.gather(*publishes)
        assert len({publish.guid for publish in publishes}) == 100
        async with client.subscribe(channel, start=stan.StartAt.earliest()) as messages:
            assert [int(message.data) for message in await take(messages, 100)] == [*range(100)]


async def test_timeout_publish(script: Script, channel: str) -> None:
    async with script(silent={"pub"}, ack_timeout=0.2) as (_, client):
        with pytest.raises(AckTimeout, match=r"no ack within 0\.2 s"):
            await client.publish(channel, b"")
        with pytest.raises(AckTimeout, match=r"no ack within 0\.1 s"):
            await client.publish(channel, b"", ack_timeout=0.1)
        assert client.statistics().publishes.timed_out == 2
        assert client.statistics().publishes.in_flight == 0


async def test_publish_async_timeout(script: Script, channel: str) -> None:
    """Each callback is called once, and may publish."""
    called: list[str] = []
    async with script(silent={"pub"}, ack_timeout=0.1) as (scripted, client):

        def once_more(publish: asyncio.Future[str]) -> None:
            assert isinstance(publish, stan.Publish)
            assert isinstance(publish.exception(), AckTimeout)
            called.append(publish.guid)
            if len(called) == 3:
                scripted.silent.clear()
                again.append(asyncio.create_task(client.publish(channel, b"again")))

        again: list[asyncio.Task[str]] = []
        publishes = [await client.publish_async(channel, b"") for _ in range(3)]
        for publish in publishes:
            publish.add_done_callback(once_more)
        await asyncio.wait(publishes)
        await until(lambda: bool(again))
        assert await again[0]
        assert called == [publish.guid for publish in publishes]


async def test_publish_with_closed_nats_conn(
    server: StreamingServer, client_id: str, channel: str
) -> None:
    connection = await nats.connect(server.url)
    async with stan.Client(connection, cluster=CLUSTER, client_id=client_id) as client:
        await client.publish(channel, b"")
        await connection.close()
        with pytest.raises(ConnectionFailed, match="the NATS connection is closed"):
            await client.publish(channel, b"")


async def test_max_pub_acks_inflight(script: Script, channel: str) -> None:
    options = {"ack_timeout": 0.3, "max_in_flight": 1, "close_timeout": 0.1}
    loop = asyncio.get_running_loop()
    async with script(silent={"pub"}, **options) as (_, client):
        began = loop.time()
        first = await client.publish_async(channel, b"")
        assert not first.done()
        second = await client.publish_async(channel, b"")
        assert loop.time() - began >= 0.3
        assert isinstance(first.exception(), AckTimeout)
        with pytest.raises(AckTimeout):
            await second


async def test_no_room_in_time(script: Script, channel: str) -> None:
    options = {"max_in_flight_bytes": 10, "publish_timeout": 0.1, "close_timeout": 0.1}
    async with script(silent={"pub"}, **options) as (_, client):
        await client.publish_async(channel, bytes(9))
        with pytest.raises(PublishTimeout, match="1 messages in flight"):
            await client.publish_async(channel, bytes(9))
        waiting = asyncio.create_task(client.publish(channel, bytes(9)))
        await until(lambda: client.statistics().publishes.waiting == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert client.statistics().publishes.waiting == 0


async def test_duplicate_processing_of_pub_ack(script: Script, channel: str) -> None:
    """An ack that comes twice, or after the timeout, settles nothing a second time."""
    async with script(silent={"pub"}, ack_timeout=0.2) as (scripted, client):
        late = await client.publish_async(channel, b"late")
        with pytest.raises(AckTimeout):
            await late
        acked = await client.publish_async(channel, b"acked")
        await scripted.has("pub", 2)
        for reply, publish in zip(scripted.replies[-2:], (late, acked), strict=True):
            for _ in range(2):
                await scripted.send(reply, bytes(PubAck(guid=publish.guid)))
        assert await acked == acked.guid
        await until(lambda: client.statistics().publishes.unmatched == 3)
        assert client.statistics().publishes.acked == 1


async def test_client_id_and_conn_id_in_pub_msg(
    script: Script, client_id: str, channel: str
) -> None:
    async with script() as (scripted, client):
        guid = await client.publish(channel, b"data", reply="here")
        [connect], [publish] = scripted.of("connect"), scripted.of("pub")
        assert publish == PubMsg(
            client_id=client_id,
            guid=guid,
            subject=channel,
            reply="here",
            data=b"data",
            conn_id=connect.conn_id,
        )
        assert (connect.client_id, connect.protocol) == (client_id, 1)
        assert (connect.ping_interval, connect.ping_max_out) == (5, 88)
        assert len(connect.conn_id) > 10
        assert scripted.replies[-1].startswith("_STAN.acks.")


async def test_pub_fails_on_client_replaced(make: MakeClient, client_id: str, channel: str) -> None:
    """The server replaces a client that does not answer heartbeats; its publishes are refused."""
    async with make(client_id, recover=False, close_timeout=0.1) as old:
        await old.publish(channel, b"")
        await ignore_heartbeats(old)
        async with make(client_id) as new:
            with pytest.raises(PublishRefused, match="stan: invalid publish request") as caught:
                await old.publish(channel, b"")
            assert caught.value.code == "stan: invalid publish request"
            # The client finds out at once why that was.
            await until(lambda: state_of(old) is stan.ClientState.FAILED)
            with pytest.raises(stan.SessionLost, match="has been replaced"):
                await old.publish(channel, b"")
            await new.publish(channel, b"")


@pytest.mark.parametrize("store", ["MEMORY", "FILE"])
async def test_max_channels(start_server: StartServer, client_id: str, store: str) -> None:
    server = start_server(store, "-mc", "2")
    async with client_of(server.url, client_id) as client:
        for name in ("one", "two", "one"):
            await client.publish(name, b"")
        with pytest.raises(PublishRefused, match="too many channels"):
            await client.publish("three", b"")
        with pytest.raises(stan.StreamingError, match="too many channels"):
            await client.subscribe("three").open()
        assert state_of(client) is stan.ClientState.OPEN


async def test_channels_that_differ_in_case(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await client.publish(channel, b"")
        with pytest.raises(PublishRefused, match="different cases not allowed"):
            await client.publish(channel.upper(), b"")
        await client.publish(channel, b"")


async def test_servers_do_not_recognise_repeats(
    make: MakeClient, client_id: str, channel: str
) -> None:
    async with make(client_id) as client:
        assert client._runtime is not None
        session = client._runtime._session
        assert session is not None
        twice = encode_publish(publish_start(client_id, session.connection_id, channel), b"id", b"")
        for _ in range(2):
            client._link.send_now(f"{session.subjects.pub_prefix}.{channel}", twice)
        async with client.subscribe(channel, start=stan.StartAt.earliest()) as messages:
            assert sequences(await take(messages, 2)) == [1, 2]


async def test_cancelling_takes_back_what_is_not_sent(make: MakeClient, channel: str) -> None:
    async with make() as client:
        client._link.hold()
        publish = await client.publish_async(channel, b"never")
        waiting = asyncio.create_task(client.publish(channel, b"never"))
        await asyncio.sleep(0)
        publish.cancel()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # The session is confirmed again by a ping.
        assert await client.publish(channel, b"kept")
        async with client.subscribe(channel, start=stan.StartAt.earliest()) as messages:
            [message] = await take(messages, 1)
            assert sequences([message]) == [1]
        assert client.statistics().publishes.in_flight == 0


async def test_closing_settles_what_is_in_flight(
    nats_url: str, client_id: str, channel: str
) -> None:
    async with scripted_stan(nats_url, client_id, silent={"pub"}) as scripted:
        client = client_of(nats_url, client_id, cluster=client_id, close_timeout=0.2)
        await client.connect()
        sent = await client.publish_async(channel, b"")
        await scripted.has("pub")
        client._link.hold()
        unsent = await client.publish_async(channel, b"")
        scripted.silent.add("pings")
        await client.aclose()
        with pytest.raises(PublishOutcomeUnknown, match="closed before the ack came"):
            await sent
        with pytest.raises(PublishNotSent, match="closed before the message was sent"):
            await unsent
        with pytest.raises(ClientClosed):
            await client.publish(channel, b"")


async def test_what_is_no_ack_changes_nothing(
    script: Script, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with script(silent={"pub"}) as (scripted, client):
        publish = await client.publish_async(channel, b"")
        await scripted.has("pub")
        for garbage in (b"\x0a\xff", b"\xff" * 40, b"\x0a\x02\xc3\x28", b"\x12\x01"):
            await scripted.send(scripted.replies[-1], garbage)
        await scripted.send(scripted.replies[-1], bytes(PubAck(guid=publish.guid)))
        assert await publish
        assert caplog.text.count("is no PubAck") >= 3
