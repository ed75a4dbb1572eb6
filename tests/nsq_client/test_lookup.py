"""Discovery by nsqlookupd, and the HTTP clients, on real daemons."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import nsq
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.nsq.errors import BadName, HttpRefused, LookupFailed, NotConnected
from nsq_client.conftest import StartDaemon
from support.faults import eventually
from support.servers.nsq_daemons import NsqDaemon

OPTIONS = nsq.ConsumerOptions(lookup_interval=0.2, reconnect_wait=60)


def registered(start: StartDaemon, *lookupds: NsqDaemon) -> NsqDaemon:
    """Start an nsqd that these nsqlookupds know."""
    return start("nsqd", *(f"-lookupd-tcp-address={each.address}" for each in lookupds))


async def publish(daemon: NsqDaemon, topic: str, *bodies: bytes) -> None:
    async with nsq.NsqdHttp(daemon.http_url) as client:
        for body in bodies:
            await client.publish(topic, body)


async def connected(consumer: nsq.Consumer, count: int) -> None:
    await eventually(lambda: len(consumer.statistics().connections) == count)


async def test_nsqds_of_all_nsqlookupds_are_found(start: StartDaemon, topic: str) -> None:
    first, second = start("nsqlookupd"), start("nsqlookupd")
    known_to_first, known_to_second = registered(start, first), registered(start, second)
    await publish(known_to_first, topic, b"one")
    await publish(known_to_second, topic, b"two")
    urls = [first.http_url, second.http_url]
    async with nsq.Consumer(
        topic, "test", lookupd=urls, max_in_flight=4, options=OPTIONS
    ) as consumer:
        await connected(consumer, 2)
        bodies = set()
        for _ in range(2):
            message = await anext(consumer)
            bodies.add(message.body)
            await message.finish()
        assert bodies == {b"one", b"two"}
        first.kill()  # those that it knew stay
        later = registered(start, second)
        await publish(later, topic, b"three")
        message = await anext(consumer)
        assert message.body == b"three"
        await message.finish()
        assert len(consumer.statistics().connections) == 3


async def test_a_topic_that_nobody_has_yet_is_waited_for(start: StartDaemon, topic: str) -> None:
    lookupd = start("nsqlookupd")
    daemon = registered(start, lookupd)
    async with nsq.Consumer(topic, "test", lookupd=[lookupd.http_url], options=OPTIONS) as consumer:
        assert not consumer.statistics().connections
        await publish(daemon, topic, b"one")
        message = await anext(consumer)
        assert message.body == b"one"
        await message.finish()


async def test_a_lost_nsqd_is_connected_again_when_it_is_found_again(
    start: StartDaemon, topic: str
) -> None:
    lookupd = start("nsqlookupd")
    daemon = registered(start, lookupd)
    await publish(daemon, topic, b"one")
    async with nsq.Consumer(topic, "test", lookupd=[lookupd.http_url], options=OPTIONS) as consumer:
        message = await anext(consumer)
        await message.finish()
        daemon.kill()
        await connected(consumer, 0)
        daemon.start()
        await publish(daemon, topic, b"two")
        message = await anext(consumer)
        assert message.body == b"two"
        await message.finish()


async def test_no_nsqlookupd_answers(start: StartDaemon, topic: str, unused_tcp_port: int) -> None:
    dead = f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.raises(LookupFailed, match="no nsqlookupd answered"):
        async with nsq.Consumer(topic, "test", lookupd=[dead]):
            pass
    alive = start("nsqlookupd")
    async with nsq.Consumer(topic, "test", lookupd=[dead, alive.http_url]):
        pass
    daemon = start("nsqd")
    with pytest.raises(LookupFailed, match="404"):
        async with nsq.Consumer(topic, "test", lookupd=[daemon.http_url]):
            pass


async def test_the_secret_goes_to_nsqlookupd(topic: str) -> None:
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        body = b'{"channels": [], "producers": []}'
        head = "HTTP/1.1 200 OK\r\nX-NSQ-Content-Type: nsq; version=1.0\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options = nsq.ConsumerOptions(auth_secret="open")  # noqa: S106 - of the test
        async with nsq.Consumer(topic, "test", lookupd=[url], options=options):
            pass
    assert "authorization: bearer open" in seen[0].lower()
    assert f"/lookup?topic={topic}" in seen[0]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"status_code": 200, "status_txt": "OK", "data": {"producers": [%s]}}',
        b'{"producers": [%s]}',
    ],
    ids=["wrapped", "bare"],
)
async def test_old_and_new_answers_are_understood(topic: str, answer: bytes) -> None:
    producer = b'{"broadcast_address": "::1", "tcp_port": 4150, "http_port": 4151}'
    # What cannot be an address would end the consumer that connects to it.
    others = [rb'"a\udcff", "tcp_port": 4150', b'"a..b", "tcp_port": 4150', b'"a", "tcp_port": -1']
    bad = [b'{"broadcast_address": %b, "http_port": 4151}' % other for other in others]
    body = answer % b", ".join([producer, *bad])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with nsq.LookupdHttp(url) as client:
            assert await client.lookup(topic) == [nsq.FoundNsqd("[::1]:4150", "[::1]:4151", "")]


async def test_the_http_client_of_nsqlookupd(start: StartDaemon, topic: str) -> None:
    lookupd = start("nsqlookupd")
    daemon = registered(start, lookupd)
    async with nsq.LookupdHttp(lookupd.http_url) as client:
        await client.ping()
        assert (await client.info())["version"] == "1.3.0"
        assert await client.lookup(topic) == []
        await client.create_topic(topic)
        await client.create_channel(topic, "billing")
        assert await client.topics() == [topic]
        assert await client.channels(topic) == ["billing"]
        await publish(daemon, topic, b"one")
        async with asyncio.timeout(10):
            while not (found := await client.lookup(topic)):
                pass
        assert found == [nsq.FoundNsqd(daemon.address, daemon.http_url[7:], "1.3.0")]
        assert await client.nodes() == found
        await client.tombstone(topic, daemon.http_url[7:])
        assert await client.lookup(topic) == []
        await client.delete_channel(topic, "billing")
        await client.delete_topic(topic)
        with pytest.raises(HttpRefused, match="MISSING_ARG_TOPIC") as caught:
            await client._request("GET", "/lookup")
        assert caught.value.status == 400
        with pytest.raises(BadName):
            await client.lookup("not a topic")
    with pytest.raises(InvalidRequest, match="is no URL"):
        nsq.LookupdHttp("127.0.0.1:4161")
    with pytest.raises(InvalidRequest, match="UTF-8"):
        nsq.LookupdHttp("http://a\udcff:4161")


async def test_the_http_client_of_nsqd(start: StartDaemon, topic: str) -> None:
    daemon = start()
    async with nsq.NsqdHttp(daemon.http_url) as client:
        await client.ping()
        assert (await client.info())["version"] == "1.3.0"
        await client.create_topic(topic)
        await client.create_channel(topic, "test")
        await client.publish(topic, b"one")
        await client.publish(topic, b"late", delay=3)
        await client.publish_many(topic, [b"two\n", b"three"])
        await client.pause_channel(topic, "test")
        [counted] = (await client.stats(topic, "test"))["topics"]
        assert counted["message_count"] == 4
        assert counted["channels"][0]["paused"]
        await client.unpause_channel(topic, "test")
        bodies = set()
        async with nsq.Consumer(topic, "test", nsqd=[daemon.address]) as consumer:
            for _ in range(3):
                message = await anext(consumer)
                bodies.add(message.body)
                await message.finish()
        assert bodies == {b"one", b"two\n", b"three"}
        await client.pause_topic(topic)
        await client.unpause_topic(topic)
        await client.empty_channel(topic, "test")
        await client.empty_topic(topic)
        assert await client.set_config("log_level", b"warn") == 3
        assert await client.config("log_level") == 3
        await client.delete_channel(topic, "test")
        await client.delete_topic(topic)
        with pytest.raises(HttpRefused, match="TOPIC_NOT_FOUND"):
            await client.delete_topic(topic)
        daemon.kill()
        with pytest.raises(NotConnected, match="ping"):
            await client.ping()
