"""A producer on a real nsqd."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from liftbridge_aio import nsq
from liftbridge_aio.errors import ConnectionFailed, InvalidRequest, PublishOutcomeUnknown
from liftbridge_aio.nsq.errors import (
    BadName,
    Closed,
    CommandRefused,
    NotConnected,
    OutcomeUnknown,
    ProtocolError,
)
from liftbridge_aio.testing import FaultProxy
from nsq_client.conftest import StartDaemon
from support.faults import eventually
from support.processes import succeeds
from support.servers.nsq_daemons import NsqDaemon


async def bodies(nsqd: NsqDaemon, topic: str, count: int) -> list[bytes]:
    """Consume so many messages."""
    found: list[bytes] = []
    async with nsq.Consumer(topic, "test", nsqd=[nsqd.address], max_in_flight=100) as consumer:
        async with asyncio.timeout(20):
            async for message in consumer:
                found.append(message.body)
                await message.finish()
                if len(found) == count:
                    return found
    return found


async def test_published_messages_are_delivered(nsqd: NsqDaemon, topic: str) -> None:
    async with nsq.Producer(nsqd.address) as producer:
        await producer.publish(topic, b"one")
        await producer.publish_many(topic, [b"two", b"three"])
        await producer.publish_many(topic, [])
        await producer.publish_delayed(topic, b"four", 0.0)
        await producer.ping()
    assert sorted(await bodies(nsqd, topic, 4)) == [b"four", b"one", b"three", b"two"]


async def test_a_forked_child_opens_a_connection_of_its_own(nsqd: NsqDaemon, topic: str) -> None:
    await succeeds(IN_A_FORKED_CHILD, nsqd.address, topic)
    assert sorted(await bodies(nsqd, topic, 2)) == [b"child", b"parent"]


IN_A_FORKED_CHILD = """
import asyncio, os, sys
from liftbridge_aio import nsq

async def main(address, topic):
    async with nsq.Producer(address) as producer:
        child = os.fork()
        if not child:
            asyncio.events._set_running_loop(None)
            asyncio.run(producer.publish(topic, b"child"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        await producer.publish(topic, b"parent")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_many_tasks_publish_over_one_connection(nsqd: NsqDaemon, topic: str) -> None:
    expected = {b"%d" % number for number in range(1000)}
    async with nsq.Producer(nsqd.address) as producer, asyncio.TaskGroup() as tasks:
        for body in expected:
            tasks.create_task(producer.publish(topic, body))
    assert set(await bodies(nsqd, topic, 1000)) == expected


async def test_a_delayed_message_comes_late(start: StartDaemon, topic: str) -> None:
    daemon = start()
    async with (
        nsq.Producer(daemon.address) as producer,
        nsq.Consumer(topic, "test", nsqd=[daemon.address]) as consumer,
    ):
        loop = asyncio.get_running_loop()
        before = loop.time()
        await producer.publish_delayed(topic, b"late", 0.5)
        message = await anext(consumer)
        await message.finish()
        assert loop.time() - before >= 0.5


@pytest.mark.parametrize("name", ["", "bad topic!", "a" * 65, "ü", 5, []])
async def test_bad_names_are_refused_before_sending(nsqd: NsqDaemon, name: str) -> None:
    async with nsq.Producer(nsqd.address) as producer:
        with pytest.raises(BadName, match="no name of a topic"):
            await producer.publish(name, b"x")
    with pytest.raises(BadName, match="no name of a channel"):
        nsq.Consumer("orders", name, nsqd=[nsqd.address])


async def test_bad_bodies_are_refused_before_sending(nsqd: NsqDaemon, topic: str) -> None:
    async with nsq.Producer(nsqd.address) as producer:
        with pytest.raises(InvalidRequest, match="without a body"):
            await producer.publish(topic, b"")
        with pytest.raises(InvalidRequest, match="must be bytes"):
            await producer.publish_many(topic, [b"x", "text"])  # type: ignore[list-item]
        with pytest.raises(InvalidRequest, match="from 0 up"):
            await producer.publish_delayed(topic, b"x", -1)
        await producer.publish(topic, b"x")


async def test_after_a_refusal_with_its_code_a_publish_connects_again(
    start: StartDaemon, topic: str
) -> None:
    daemon = start("nsqd", "-max-msg-size=100", "-max-body-size=1000")
    async with nsq.Producer(daemon.address) as producer:
        with pytest.raises(CommandRefused, match="E_BAD_MESSAGE") as caught:
            await producer.publish(topic, bytes(101))
        assert caught.value.code == "E_BAD_MESSAGE"
        await producer.publish(topic, b"small")
        with pytest.raises(CommandRefused, match="out of range"):
            await producer.publish_delayed(topic, b"x", 10_000)


async def test_what_follows_a_refused_command_is_known_as_not_stored(
    start: StartDaemon, topic: str
) -> None:
    daemon = start("nsqd", "-max-msg-size=100")
    async with nsq.Producer(daemon.address) as producer:
        too_large = asyncio.create_task(producer.publish(topic, bytes(101)))
        behind = asyncio.create_task(producer.publish(topic, b"behind"))
        with pytest.raises(CommandRefused):
            await too_large
        with pytest.raises(NotConnected, match="refused an earlier command"):
            await behind
        await producer.publish(topic, b"after")
    assert await bodies(daemon, topic, 1) == [b"after"]


async def test_a_publish_fails_while_nsqd_is_dead_and_connects_again(
    start: StartDaemon, topic: str
) -> None:
    daemon = start()
    async with nsq.Producer(daemon.address) as producer:
        await producer.publish(topic, b"before")
        daemon.kill()
        with pytest.raises((ConnectionFailed, OutcomeUnknown)):
            await producer.publish(topic, b"lost")
        daemon.start()
        await producer.publish(topic, b"again")


async def test_a_frozen_link_ends_in_an_unknown_outcome(nsqd: NsqDaemon, topic: str) -> None:
    async with (
        FaultProxy(nsqd.address) as proxy,
        nsq.Producer(proxy.address, timeout=0.5) as producer,
    ):
        await producer.publish(topic, b"one")
        proxy.freeze()
        waiting = [asyncio.create_task(producer.publish(topic, b"two")) for _ in range(3)]
        for each in waiting:
            with pytest.raises(PublishOutcomeUnknown, match="did not respond in time"):
                await each
        await proxy.heal()
        await producer.publish(topic, b"three")


async def test_a_silent_link_is_noticed_by_missing_heartbeats(nsqd: NsqDaemon, topic: str) -> None:
    options = nsq.ConnectionOptions(heartbeat_interval=1)
    async with (
        FaultProxy(nsqd.address) as proxy,
        nsq.Producer(proxy.address, timeout=60, options=options) as producer,
    ):
        await producer.publish(topic, b"one")
        proxy.freeze()
        with pytest.raises(OutcomeUnknown, match="nothing came"):
            await producer.publish(topic, b"two")


async def test_an_idle_connection_survives_heartbeats(nsqd: NsqDaemon, topic: str) -> None:
    options = nsq.ConnectionOptions(heartbeat_interval=1)
    async with nsq.Producer(nsqd.address, options=options) as producer:
        await producer.publish(topic, b"one")
        connection = producer._connection
        assert connection is not None
        await asyncio.sleep(2.5)  # more than the two intervals after which nsqd drops a silent one
        await producer.publish(topic, b"two")
        assert producer._connection is connection


async def test_closing_fails_what_has_no_response(nsqd: NsqDaemon, topic: str) -> None:
    async with FaultProxy(nsqd.address) as proxy:
        async with nsq.Producer(proxy.address) as producer:
            await producer.publish(topic, b"one")
            proxy.freeze()
            waiting = asyncio.create_task(producer.publish(topic, b"two"))
            await asyncio.sleep(0)
        with pytest.raises(OutcomeUnknown):
            await waiting
        with pytest.raises(Closed):
            await producer.publish(topic, b"three")
        await producer.aclose()


async def test_closing_while_a_publish_reconnects_leaves_no_connection(
    nsqd: NsqDaemon, topic: str
) -> None:
    async with FaultProxy(nsqd.address) as proxy:
        async with nsq.Producer(proxy.address) as producer:
            await producer.ping()
            lost = producer._connection
            await proxy.cut()
            await eventually(lambda: lost is not None and lost.error is not None)
            proxy.freeze()
            publishes = [
                asyncio.create_task(producer.publish(topic, b"%d" % number)) for number in range(3)
            ]
            await eventually(lambda: producer._opening is not None)
        async with asyncio.timeout(3):
            failures = await asyncio.gather(*publishes, return_exceptions=True)
        assert [type(each) for each in failures] == [Closed] * 3
        proxy.thaw()
        assert producer._connection is None
        with pytest.raises(Closed):
            await producer.publish(topic, b"late")


async def test_a_cancelled_publish_leaves_the_others_alone(nsqd: NsqDaemon, topic: str) -> None:
    async with nsq.Producer(nsqd.address) as producer:
        first = asyncio.create_task(producer.publish(topic, b"one"))
        second = asyncio.create_task(producer.publish(topic, b"two"))
        await asyncio.sleep(0)
        first.cancel()
        await second
        await producer.publish(topic, b"three")
    assert sorted(await bodies(nsqd, topic, 3)) == [b"one", b"three", b"two"]


async def test_refused_options_name_the_reason(nsqd: NsqDaemon) -> None:
    options = nsq.ConnectionOptions(heartbeat_interval=0.1)
    with pytest.raises(CommandRefused, match="heartbeat interval"):
        async with nsq.Producer(nsqd.address, options=options):
            pass


async def test_the_http_port_is_recognised(nsqd: NsqDaemon) -> None:
    address = nsqd.http_url.removeprefix("http://")
    with pytest.raises((ProtocolError, NotConnected), match="nsqd"):
        async with nsq.Producer(address):
            pass


async def test_nobody_listens(unused_tcp_port: int) -> None:
    with pytest.raises(NotConnected, match="cannot connect to nsqd"):
        async with nsq.Producer(f"127.0.0.1:{unused_tcp_port}"):
            pass


async def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = nsq.ConnectionOptions(connect_timeout=0.2)
        with pytest.raises(NotConnected, match=r"no answer within 0\.2 s"):
            async with nsq.Producer(f"127.0.0.1:{silent.getsockname()[1]}", options=options):
                pass


async def test_tls_is_required_where_it_is_asked_for(nsqd: NsqDaemon) -> None:
    options = nsq.ConnectionOptions(tls=ssl.create_default_context())
    with pytest.raises(NotConnected, match="does not offer TLS"):
        async with nsq.Producer(nsqd.address, options=options):
            pass
