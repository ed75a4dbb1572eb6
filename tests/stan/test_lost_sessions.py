"""Sessions that the server does not know any more: another one takes their place."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest

from liftbridge_aio import PublishOutcomeUnknown, PublishRefused, PublishTimeout, stan
from liftbridge_aio.retry import Backoff
from liftbridge_aio.stan import StartAt
from liftbridge_aio.wire.stan import MsgProto
from stan.conftest import Script
from support.peers.scripted_stan import ScriptedStan, scripted_stan
from support.servers.streaming import StreamingServer
from support.streaming_clients import (
    MakeClient,
    StartServer,
    client_of,
    ignore_heartbeats,
    publish_many,
    sequences,
    state_of,
    take,
    until,
)

FIRST: Final = StartAt.earliest()
QUICK: Final[dict[str, Any]] = {
    "ping_interval": 1,
    "close_timeout": 0.5,
    "backoff": Backoff(0.01, 0.1),
}
GONE: Final = "client has been replaced or is no longer registered"
OPEN, FAILED = stan.ClientState.OPEN, stan.ClientState.FAILED


class Events(list[stan.Event]):
    """Events as they come."""

    def kinds(self) -> list[type[object]]:
        return [type(event) for event in self]

    async def recovered(self, times: int = 1) -> None:
        await until(lambda: self.kinds().count(stan.Recovered) >= times)


async def lose(scripted: ScriptedStan) -> None:
    """Have the server say, once, that it does not know the session."""
    count = len(scripted.of("pings"))
    scripted.errors["pings"] = GONE
    await scripted.has("pings", count + 1)
    scripted.errors.clear()


async def test_a_replaced_client_is_told_and_gives_up(
    make: MakeClient, client_id: str, channel: str
) -> None:
    """Both have one id; the newer one answers the server, so the older one cannot come back."""
    events = Events()
    async with make(client_id, on_event=events.append, **QUICK) as old:
        waiting = asyncio.create_task(old.subscribe(channel).__aenter__())
        reader = await waiting
        await ignore_heartbeats(old)
        async with make(client_id) as new:
            await until(lambda: state_of(old) is FAILED)
            assert events.kinds() == [stan.Lost, stan.GaveUp]
            assert GONE in str(events[0].error)  # type: ignore[union-attr]
            for call in (old.publish(channel, b""), anext(reader), old.subscribe(channel).open()):
                with pytest.raises(stan.ClientIdTaken):
                    await call
            await new.publish(channel, b"")


async def test_lost_heartbeats(start_server: StartServer, client_id: str, channel: str) -> None:
    """The server removes a client that does not answer; a new session follows."""
    server = start_server("FILE", "-hbi", "300ms", "-hbt", "100ms", "-hbf", "1")
    events = Events()
    async with (
        client_of(server.url, client_id, on_event=events.append, **QUICK) as client,
        client.subscribe(channel, durable="dur") as durable,
        client.subscribe(channel) as plain,
    ):
        await client.publish(channel, b"before")
        for subscription in (durable, plain):
            assert sequences(await take(subscription, 1)) == [1]
        await ignore_heartbeats(client)
        await events.recovered()
        assert events.kinds() == [stan.Lost, stan.Recovered]
        assert events[1].subscriptions == 2  # type: ignore[union-attr]
        await client.publish(channel, b"after")
        # What was read is acked when the next is asked for: in the other session too.
        for subscription in (durable, plain):
            assert sequences(await take(subscription, 1)) == [2]
        # The server hears heartbeats again.
        await asyncio.sleep(1)  # three of its intervals, in which it would remove the client
        assert events.kinds() == [stan.Lost, stan.Recovered]


@pytest.mark.parametrize("minutes", [-1, 1])
async def test_no_clock_decides_where_another_session_starts(
    start_server: StartServer,
    client_id: str,
    channel: str,
    minutes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = start_server("FILE", "-hbi", "300ms", "-hbt", "100ms", "-hbf", "1")
    events = Events()
    time_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: time_ns() + minutes * 60 * 10**9)
    async with (
        client_of(server.url, client_id, on_event=events.append, **QUICK) as client,
        client.subscribe(channel, manual_ack=True, max_in_flight=4) as messages,
    ):
        await publish_many(client, channel, 6)
        one, two, *_ = await take(messages, 4)
        await one.ack()
        await take(messages, 1)
        await ignore_heartbeats(client)
        await events.recovered()
        await two.ack()
        assert sequences(await take(messages, 3)) == [3, 4, 5]


async def test_subscriptions_are_created_again_durables_first(script: Script, channel: str) -> None:
    events = Events()
    async with (
        script(on_event=events.append, **QUICK) as (scripted, client),
        client.subscribe(f"{channel}.1"),
        client.subscribe(f"{channel}.2", queue="group"),
        client.subscribe(f"{channel}.3", durable="dur"),
        client.subscribe(f"{channel}.4", durable="dur", queue="group"),
        client.subscribe(f"{channel}.5"),
    ):
        await lose(scripted)
        await events.recovered()
        again = [request.subject[-1] for request in scripted.of("sub")[5:]]
        assert again == ["3", "4", "1", "2", "5"]
        first, second = scripted.of("connect")
        assert first.client_id == second.client_id
        assert first.conn_id != second.conn_id
        assert first.heartbeat_inbox != second.heartbeat_inbox
        await client.publish(channel, b"")
        assert scripted.of("pub")[-1].conn_id == second.conn_id


async def test_a_refused_subscription_fails_alone(script: Script, channel: str) -> None:
    events = Events()
    async with script(on_event=events.append, **QUICK) as (scripted, client):
        refused = client.subscribe(channel)
        await refused.open()
        scripted.errors = {"pings": GONE, "sub": "stan: invalid subject"}
        await events.recovered()
        scripted.errors.clear()
        with pytest.raises(stan.StreamingError, match="invalid subject"):
            await anext(refused)
        with pytest.raises(StopAsyncIteration):
            await anext(refused)
        with pytest.raises(stan.SubscriptionClosed):
            await refused.unsubscribe()
        await refused.aclose()
        assert stan.SubscriptionFailed in events.kinds()
        async with client.subscribe(channel):
            await client.publish(channel, b"")


async def test_attempts_go_on_until_one_succeeds(script: Script, channel: str) -> None:
    events = Events()
    options = {**QUICK, "request_timeout": 0.1}
    async with (
        script(on_event=events.append, **options) as (scripted, client),
        client.subscribe(channel) as messages,
    ):
        scripted.silent |= {"connect"}
        await lose(scripted)
        await scripted.has("connect", 3)
        assert state_of(client) is stan.ClientState.LOST
        with pytest.raises(stan.SessionLost, match="has no session"):
            await client.subscribe(channel).open()
        scripted.silent = {"sub"}
        await scripted.has("sub", 3)
        assert state_of(client) is stan.ClientState.LOST
        scripted.silent.clear()
        await events.recovered()
        [lost, recovered] = events
        assert isinstance(lost, stan.Lost)
        assert isinstance(recovered, stan.Recovered)
        assert recovered.attempts >= 4
        assert messages.is_open
        assert client.statistics().subscriptions == 1


async def test_publishes_of_a_lost_session(script: Script, channel: str) -> None:
    """What was sent is unknown, what waited goes out in the next session, once."""
    async with script(silent={"pub"}, **QUICK) as (scripted, client):
        sent = await client.publish_async(channel, b"sent")
        await scripted.has("pub")
        scripted.silent.add("connect")
        await lose(scripted)
        with pytest.raises(
            PublishOutcomeUnknown, match="session was lost before the ack"
        ) as caught:
            await sent
        assert isinstance(caught.value.__cause__, stan.SessionLost)
        waiting = await client.publish_async(channel, b"waits")
        await scripted.has("connect", 2)
        scripted.silent.clear()
        await waiting
        assert [publish.data for publish in scripted.of("pub")] == [b"sent", b"waits"]


async def test_publishes_wait_for_a_session_no_longer_than_told(
    script: Script, channel: str
) -> None:
    options = {**QUICK, "publish_timeout": 0.2}
    async with script(**options) as (scripted, client):
        scripted.silent.add("connect")
        await lose(scripted)
        await until(lambda: state_of(client) is stan.ClientState.LOST)
        with pytest.raises(PublishTimeout, match="has not confirmed that it knows the session"):
            await client.publish(channel, b"")


async def test_closing_while_a_session_is_lost(nats_url: str, client_id: str, channel: str) -> None:
    """Nothing hangs, and nobody is asked who does not know the session."""
    async with scripted_stan(nats_url, client_id) as scripted:
        client = client_of(nats_url, client_id, cluster=client_id, **QUICK)
        await client.connect()
        subscription = client.subscribe(channel, durable="dur")
        await subscription.open()
        scripted.silent.add("connect")
        await lose(scripted)
        await until(lambda: state_of(client) is stan.ClientState.LOST)
        reading = asyncio.create_task(anext(subscription))
        await asyncio.sleep(0)
        await subscription.aclose()
        with pytest.raises(StopAsyncIteration):
            await reading
        await client.aclose()
        assert scripted.of("sub_close") == scripted.of("close") == []
        assert client._link.is_over


async def test_acks_in_another_session(script: Script, channel: str) -> None:
    """An ack of a message of the session before settles the message when it comes again."""
    events = Events()

    def message(sequence: int, **fields: Any) -> bytes:
        fields = {"timestamp": sequence * 1000, "subject": channel, **fields}
        return bytes(MsgProto(sequence=sequence, **fields))

    async with (
        script(on_event=events.append, **QUICK) as (scripted, client),
        client.subscribe(channel, manual_ack=True) as messages,
    ):
        inbox = scripted.of("sub")[0].inbox
        for sequence in (1, 2, 3, 4):
            await scripted.send(inbox, message(sequence))
        one, two, three = await take(messages, 3)
        await one.ack()
        await scripted.has("ack")
        await lose(scripted)
        look = (await scripted.has("sub", 2))[1]
        assert (look.start_sequence, look.max_in_flight) == (2, 1)
        await scripted.send(look.inbox, message(2))
        await events.recovered()
        assert scripted.of("sub")[2].start_sequence == 2
        await two.ack()
        inbox = scripted.of("sub")[2].inbox
        # The first one was acked before the second session, the second one in it.
        for sequence in (1, 2, 3, 4, 5):
            await scripted.send(inbox, message(sequence))
        assert sequences(await take(messages, 3)) == [3, 4, 5]
        await three.ack()
        acks = await scripted.has("ack", 4)
        assert [ack.sequence for ack in acks] == [1, 1, 2, 3]
        # A message of another log is another one, whatever its sequence.
        await scripted.send(inbox, message(2, timestamp=10**9))
        [another] = await take(messages, 1)
        await another.ack()
        assert (await scripted.has("ack", 5))[-1].sequence == 2


async def test_what_was_acked_while_it_waited_again_stays_acked(
    script: Script, channel: str
) -> None:
    events = Events()

    def message(sequence: int, **fields: Any) -> bytes:
        moment = 1_795_000_000_000_000_000 + sequence
        return bytes(MsgProto(sequence=sequence, subject=channel, timestamp=moment, **fields))

    async with (
        script(on_event=events.append, **QUICK) as (scripted, client),
        client.subscribe(channel, manual_ack=True) as messages,
    ):
        inbox = scripted.of("sub")[0].inbox
        for sequence in (1, 2):
            await scripted.send(inbox, message(sequence))
        one, _ = await take(messages, 2)
        await scripted.send(inbox, message(1, redelivered=True, redelivery_count=1))
        await until(lambda: messages.statistics().pending == 1)
        await one.ack()
        assert messages.statistics().pending == 0
        await scripted.has("ack")
        await lose(scripted)
        await scripted.send((await scripted.has("sub", 2))[1].inbox, message(2))
        await events.recovered()
        inbox = scripted.of("sub")[2].inbox
        for sequence in (1, 2, 3):
            await scripted.send(inbox, message(sequence))
        assert sequences(await take(messages, 2)) == [2, 3]


@pytest.mark.parametrize("durable", ["", "dur"])
async def test_a_server_without_its_memory(
    start_server: StartServer, client_id: str, new_id: Any, channel: str, durable: str
) -> None:
    """Sequences begin anew; what others publish before the client is back is not missed."""
    server = start_server("MEMORY")
    events = Events()
    fast = {"reconnect_time_wait": 2.0}  # the others are quicker
    async with (
        client_of(server.url, client_id, on_event=events.append, connect=fast, **QUICK) as client,
        client.subscribe(channel, durable=durable) as messages,
    ):
        await publish_many(client, channel, 20)
        assert sequences(await take(messages, 20)) == [*range(1, 21)]
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        async with client_of(server.url, new_id()) as another:
            await publish_many(another, channel, 3)
        await client.publish(channel, b"own")
        assert sequences(await take(messages, 4)) == [1, 2, 3, 4]
    assert events.kinds() == [stan.Lost, stan.Recovered]


async def test_a_server_that_kept_its_files(
    start_server: StartServer, client_id: str, channel: str
) -> None:
    """The session goes on; nothing acked is lost, and nothing is sent twice."""
    server = start_server("FILE")
    events = Events()
    async with (
        client_of(
            server.url,
            client_id,
            on_event=events.append,
            connect={"reconnect_time_wait": 0.05},
            **QUICK,
        ) as client,
        client.subscribe(channel, start=FIRST, ack_wait=1) as messages,
    ):
        await publish_many(client, channel, 20)
        await take(messages, 10)
        await asyncio.to_thread(server.kill)
        await until(lambda: not client._link.is_up)  # what is sent before may have no ack
        waiting = [await client.publish_async(channel, b"%d" % n) for n in range(20, 30)]
        await asyncio.to_thread(server.start)
        await asyncio.gather(*waiting)
        seen: set[int] = {*range(1, 11)}
        fresh = []
        while len(seen) < 30:
            [message] = await take(messages, 1)
            if message.sequence not in seen:
                fresh.append(int(message.data))
            seen.add(message.sequence)
        assert sorted(fresh) == [*range(10, 30)]
    assert events == []


async def test_a_streaming_server_that_is_restarted_alone(
    servers: dict[str, StreamingServer], start_server: StartServer, client_id: str, channel: str
) -> None:
    """NATS stays, and answers in place of the server that nobody listens."""
    cluster = f"cluster-{client_id}"
    server = start_server("MEMORY", nats_url=servers["MEMORY"].url, cluster=cluster)
    events = Events()
    async with (
        client_of(
            server.url, client_id, cluster=cluster, on_event=events.append, **QUICK
        ) as client,
        client.subscribe(channel, durable="dur") as messages,
    ):
        await client.publish(channel, b"before")
        await take(messages, 1)
        await asyncio.to_thread(server.kill)
        unanswered = await client.publish_async(channel, b"nobody hears this")
        await until(lambda: state_of(client) is stan.ClientState.CHECKING)
        waiting = await client.publish_async(channel, b"waits")
        await asyncio.to_thread(server.start)
        await waiting
        with pytest.raises(PublishOutcomeUnknown):
            await unanswered
        [message] = await take(messages, 1)
        assert (message.sequence, message.data) == (1, b"waits")
    assert events.kinds() == [stan.Lost, stan.Recovered]


async def test_a_refused_publish_shows_that_the_session_is_lost(
    script: Script, channel: str
) -> None:
    events = Events()
    options = {**QUICK, "ping_interval": 60}
    async with script(on_event=events.append, **options) as (scripted, client):
        scripted.errors = {"pub": "stan: invalid publish request", "pings": GONE}
        with pytest.raises(PublishRefused, match="safe to publish again once there is another"):
            await client.publish(channel, b"")
        await events.recovered()
        scripted.errors.clear()
        await client.publish(channel, b"")
        # If the server knows it after all, publishing goes on.
        scripted.errors = {"pub": "stan: invalid publish request"}
        with pytest.raises(PublishRefused):
            await client.publish(channel, b"")
        scripted.errors.clear()
        await client.publish(channel, b"")
        assert len(events) == 2
