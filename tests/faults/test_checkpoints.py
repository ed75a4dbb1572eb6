"""Producers with a store when checkpoints, acks and servers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    PublishOutcomeUnknown,
    Retry,
    UsageError,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.broker.faults.fault import Fault
from liftbridge_aio.broker.faults.fault_plan import MessagePlace
from liftbridge_aio.transactions import (
    CheckpointStream,
    CommitInDoubt,
    Phase,
    Producer,
    ProducerFenced,
    TransactionAborted,
)
from liftbridge_aio.wire import proto
from support.clients import EARLIEST, rest, take
from support.faults import (
    QUICK,
    Recorder,
    eventually,
    nothing_left_behind,
)
from support.lone_servers import LoneServer

pytestmark = pytest.mark.parametrize("data_path", ["lane"], indirect=True)

COMMITTED = True
STREAM = "s"
STORE = CheckpointStream("store")
SOON = Retry(attempts=2, backoff=QUICK)
OPTIONS = ClientOptions(backoff=QUICK, ack_timeout=0.2, publish_timeout=1)


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    async with Client(broker.address, options=OPTIONS) as client:
        await client.create_stream(STREAM, partitions=2)
        yield client


@pytest.fixture
async def producer(client: Client) -> AsyncIterator[Producer]:
    async with client.producer("p", store=STORE, retry=SOON) as producer:
        async with producer.transaction() as transaction:
            for partition in (0, 1):
                await transaction.publish(STREAM, b"first", partition=partition)
        yield producer


def of_store(request: proto.PublishRequest) -> bool:
    return request.stream == STORE.stream_of("p")


def lose(broker: EmbeddedBroker, at: MessagePlace, times: int | None = None) -> Fault:
    """Lose what is sent to the store from now on, or all acks."""
    if at == "request":
        return broker.faults.drop("PublishAsync", when=of_store, times=times)
    return broker.faults.drop("PublishAsync", at="reply", times=times)


def of_stream(request: proto.PublishRequest) -> bool:
    return request.stream == STREAM


async def committed(client: Client, partition: int = 0, stream: str = STREAM) -> list[bytes]:
    reading = client.read(stream, partition=partition, committed=COMMITTED)
    return [message.value for message in await rest(reading)]


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_a_lost_checkpoint_is_repeated(
    broker: EmbeddedBroker, client: Client, producer: Producer, at: MessagePlace
) -> None:
    for value in (b"1", b"2"):
        async with producer.transaction() as transaction:
            await transaction.publish(STREAM, value, partition=0)
            await transaction.flush()
            lose(broker, at, times=1)
    broker.faults.assert_all_applied()
    assert await committed(client) == [b"first", b"1", b"2"]


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_a_checkpoint_in_doubt_is_resumed(
    broker: EmbeddedBroker, client: Client, producer: Producer, at: MessagePlace
) -> None:
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"1", partition=0)
    await transaction.flush()
    lost = lose(broker, at)
    with pytest.raises(CommitInDoubt, match="unknown if the transaction is committed"):
        await transaction.commit()
    assert transaction.phase is Phase.IN_DOUBT
    with pytest.raises(UsageError, match="finish the one that is in doubt"):
        producer.transaction()
    with pytest.raises(CommitInDoubt):
        await transaction.resume()
    assert await committed(client) == [b"first"]
    lost.cancel()
    await transaction.resume()
    assert await committed(client) == [b"first", b"1"]
    async with producer.transaction() as transaction:
        await transaction.publish(STREAM, b"2", partition=0)
    assert await committed(client) == [b"first", b"1", b"2"]


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_who_takes_over_decides_a_checkpoint_in_doubt(
    broker: EmbeddedBroker, client: Client, producer: Producer, at: MessagePlace
) -> None:
    """If it was stored the successor has finished it; if not it can be stored no more."""
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"1", partition=0)
    await transaction.flush()
    lost = lose(broker, at)
    with pytest.raises(CommitInDoubt):
        await transaction.commit()
    lost.cancel()
    async with client.producer("p", store=STORE):
        expected = [b"first", b"1"] if at == "reply" else [b"first"]
        assert await committed(client) == expected
        if at == "reply":
            await transaction.resume()
        else:
            with pytest.raises(ProducerFenced):
                await transaction.resume()
            assert transaction.phase is Phase.ABORTED
        with pytest.raises(ProducerFenced):
            async with producer.transaction() as following:
                await following.publish(STREAM, b"2", partition=0)
    assert await committed(client) == expected


async def test_acks_that_are_lost_are_written_by_the_next_producer(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    transaction = producer.transaction()
    for partition in (0, 1):
        await transaction.publish(STREAM, b"1", partition=partition)
    await transaction.flush()
    lost = broker.faults.drop("PublishAsync", when=of_stream, times=None)
    with pytest.raises(CommitInDoubt, match="2 of 2 acks"):
        await transaction.commit()
    assert await committed(client, 0) == [b"first"]
    with pytest.raises(CommitInDoubt, match="2 of 2 acks") as caught:
        await client.producer("p", store=STORE, retry=SOON).__aenter__()
    assert "enter the producer again" in str(caught.value)
    lost.cancel()
    async with client.producer("p", store=STORE):
        for partition in (0, 1):
            assert await committed(client, partition) == [b"first", b"1"]


async def test_a_checkpoint_that_is_refused_aborts_the_transaction(
    client: Client, producer: Producer
) -> None:
    await client.set_stream_readonly(STORE.stream_of("p"))
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"in vain", partition=0)
    with pytest.raises(TransactionAborted, match="the checkpoint was refused"):
        await transaction.commit()
    await client.set_stream_readonly(STORE.stream_of("p"), readonly=False)
    async with producer.transaction() as transaction:
        await transaction.publish(STREAM, b"1", partition=0)
    assert await committed(client) == [b"first", b"1"]


async def test_a_new_partition_is_not_used_before_the_store_has_it(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    await client.create_stream("other")
    lost = broker.faults.drop("PublishAsync", when=of_store, times=None)
    transaction = producer.transaction()
    with pytest.raises(PublishOutcomeUnknown):
        await transaction.publish("other", b"1")
    assert await rest(client.read("other", partition=0)) == []
    lost.cancel()
    await transaction.publish("other", b"1")
    await transaction.commit()
    assert await committed(client, stream="other") == [b"1"]


async def test_a_commit_that_is_cancelled_while_it_is_stored(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"1", partition=0)
    await transaction.flush()
    async with nothing_left_behind():
        stall = broker.faults.stall("PublishAsync")
        committing = asyncio.create_task(transaction.commit())
        await stall.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
    assert transaction.phase is Phase.IN_DOUBT
    stall.release()
    await transaction.resume()
    assert await committed(client) == [b"first", b"1"]


async def test_an_abort_rewinds_while_no_server_answers(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    async with client.subscribe(STREAM, partition=0, start=EARLIEST, positions=producer) as reading:
        [before] = await take(reading, 1)
        transaction = producer.transaction(reading)
        stall = broker.faults.stall("Subscribe", at="request")
        transaction.abort()
        stall.release()
        assert await take(reading, 1) == [before]


async def test_a_lone_server_is_killed_between_commit_and_restart(
    crashable: LoneServer, recorder: Recorder, stream_name: str
) -> None:
    """It hides what it acked last: the record of the transaction."""
    options = ClientOptions(backoff=QUICK, hook=recorder)
    store = CheckpointStream(f"{stream_name}-store")
    async with Client(crashable.address, options=options) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"order")
        out = f"{stream_name}-out"
        await client.create_stream(out)

        async def work() -> list[bytes]:
            async with (
                client.producer("p", store=store) as producer,
                client.subscribe(
                    stream_name, partition=0, start=EARLIEST, positions=producer
                ) as reading,
            ):
                async with producer.transaction(reading) as transaction:
                    for message in await take(reading, 1):
                        await transaction.publish(out, message.value)
                return [
                    each.value
                    for each in await rest(client.read(out, partition=0, committed=COMMITTED))
                ]

        await work()
        await crashable.crash()
        await eventually(lambda: recorder.down)
        await crashable.start()
        await client.publish(stream_name, b"another")
        assert await work() == [b"order", b"another"]
