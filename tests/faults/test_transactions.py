"""Transactions and single messages of producers when messages, acks and servers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    Message,
    PublishOutcomeUnknown,
    Retry,
    UsageError,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.model import ACK_HEADER, UUID_HEADER, OutgoingMessage
from liftbridge_aio.transactions import (
    CommitInDoubt,
    Phase,
    Producer,
    ReadCommitted,
    TransactionAborted,
)
from support.clients import rest
from support.faults import QUICK, eventually, nothing_left_behind

COMMITTED = True
STREAM = "s"


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    """A client that soon gives up waiting for acks; partition 0 of its stream has been used."""
    options = ClientOptions(backoff=QUICK, ack_timeout=0.3, publish_timeout=1)
    async with Client(broker.address, options=options) as client:
        await client.create_stream(STREAM, partitions=2)
        await client.publish(STREAM, b"first")
        yield client


@pytest.fixture
async def producer(client: Client) -> Producer:
    return client.producer(retry=Retry(attempts=3, backoff=QUICK))


async def committed(client: Client, partition: int = 0) -> list[bytes]:
    """Read it twice, once without a memory for open transactions."""
    found = [
        [
            message.value
            for message in await rest(client.read(STREAM, partition=partition, committed=each))
        ]
        for each in (COMMITTED, ReadCommitted(max_messages=1))
    ]
    assert found[0] == found[1]
    return found[0]


async def log(client: Client) -> list[Message]:
    return await rest(client.read(STREAM, partition=0))


def producers(messages: list[Message]) -> set[bytes]:
    uuids = [message.transaction_headers.get(UUID_HEADER) for message in messages]
    return {uuid[-6:] for uuid in uuids if uuid}


def tasks_of_producers() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    own = ("liftbridge_aio:producer", "liftbridge_aio:publish-retry")
    return [name for name in names if name.startswith(own)]


async def test_a_single_message_whose_ack_is_lost_is_shown_once(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    broker.faults.drop("PublishAsync", at="reply", times=2)
    assert (await producer.publish(STREAM, b"once")).offset == 3
    assert len(await log(client)) == 4
    assert await committed(client) == [b"first", b"once"]


async def test_a_single_message_that_is_lost_is_sent_again(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    broker.faults.drop("PublishAsync")
    await producer.publish(STREAM, b"once")
    await producer.publish(STREAM, b"twice")
    assert await committed(client) == [b"first", b"once", b"twice"]


async def test_a_producer_id_of_unknown_outcome_is_not_used_again(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    lost = broker.faults.drop("PublishAsync", at="reply", times=None)
    with pytest.raises(PublishOutcomeUnknown):
        await producer.publish(STREAM, b"perhaps")
    lost.cancel()
    before = producers(await log(client))
    await producer.publish(STREAM, b"surely")
    assert len(before) == 1
    assert len(producers(await log(client))) == 2
    assert await committed(client) == [b"first", b"perhaps", b"surely"]


async def test_a_single_message_that_is_given_up_is_sent_no_more(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    lost = broker.faults.drop("PublishAsync", times=None)
    async with nothing_left_behind():
        future = await producer.publish_async(STREAM, b"perhaps")
        await eventually(lambda: lost.applied == 2)
        future.cancel()
        await eventually(lambda: not tasks_of_producers())
    lost.cancel()
    await client.flush()
    assert await committed(client) == [b"first"]


@pytest.mark.parametrize("place", ["request", "reply"])
async def test_a_message_of_unknown_outcome_aborts_its_transaction(
    broker: EmbeddedBroker, client: Client, producer: Producer, place: str
) -> None:
    broker.faults.drop("PublishAsync", at=place, skip=1)  # type: ignore[arg-type]
    transaction = producer.transaction()
    for number in range(3):
        await transaction.publish(STREAM, b"%d" % number)
    with pytest.raises(TransactionAborted, match="was not stored") as caught:
        await transaction.commit()
    assert isinstance(caught.value.__cause__, PublishOutcomeUnknown)
    async with producer.transaction() as transaction:
        for number in range(3):
            await transaction.publish(STREAM, b"%d" % number)
    assert await committed(client) == [b"first", b"0", b"1", b"2"]
    assert len(producers(await log(client))) == 2


async def test_a_late_repeat_of_an_aborted_message_is_never_shown(
    client: Client, producer: Producer
) -> None:
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"in vain")
    await transaction.flush()
    transaction.abort()
    await client.flush()
    stored = next(message for message in await log(client) if message.value == b"in vain")
    async with producer.transaction() as following:
        await following.publish(STREAM, b"0")
        await following.flush()
        late = OutgoingMessage(STREAM, b"late", own_headers=stored.transaction_headers)
        await (await client._living.submit(late))
        await following.publish(STREAM, b"1")
    assert await committed(client) == [b"first", b"0", b"1"]


async def test_a_commit_whose_answer_is_lost_is_repeated(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    async with producer.transaction() as transaction:
        await transaction.publish(STREAM, b"0")
        await transaction.flush()
        broker.faults.drop("PublishAsync", at="reply")
    assert transaction.phase is Phase.COMMITTED
    async with producer.transaction() as transaction:
        await transaction.publish(STREAM, b"1")
    assert sum(ACK_HEADER in message.transaction_headers for message in await log(client)) == 3
    assert await committed(client) == [b"first", b"0", b"1"]
    assert len(producers(await log(client))) == 2, "a late repeat of the ack would roll back"


async def test_a_commit_in_doubt_is_resumed(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    transaction = producer.transaction()
    for partition in (0, 1):
        await transaction.publish(STREAM, b"x", partition=partition)
    await transaction.flush()
    lost = broker.faults.drop("PublishAsync", times=None, skip=1)
    with pytest.raises(CommitInDoubt, match="1 of 2 acks are not known to be stored"):
        await transaction.commit()
    assert transaction.phase is Phase.IN_DOUBT
    for refused in (transaction.abort, transaction.build_ack_intents):
        if refused is transaction.abort:
            with pytest.raises(UsageError, match="in doubt"):
                refused()
    with pytest.raises(CommitInDoubt):
        await transaction.resume()
    lost.cancel()
    await transaction.resume()
    await transaction.resume()
    assert [await committed(client, partition) for partition in (0, 1)] == [
        [b"first", b"x"],
        [b"x"],
    ]


async def test_a_cancelled_commit_can_be_resumed(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"x")
    await transaction.flush()
    stall = broker.faults.stall("PublishAsync")
    committing = asyncio.create_task(transaction.commit())
    await stall.wait()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert transaction.phase is Phase.IN_DOUBT
    stall.release()
    await transaction.resume()
    assert await committed(client) == [b"first", b"x"]


async def test_a_commit_cancelled_before_its_messages_are_stored_aborts(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    stall = broker.faults.stall("PublishAsync")
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"x")
    committing = asyncio.create_task(transaction.commit())
    await stall.wait()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    stall.release()
    await client.flush()
    assert transaction.phase is Phase.ABORTED
    assert await committed(client) == [b"first"]


async def test_a_transaction_survives_no_lost_connection_but_its_repeat_does(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    stall = broker.faults.stall("PublishAsync")
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"0")
    await stall.wait()
    await broker.faults.cut_links(reset=True)
    with pytest.raises(TransactionAborted):
        await transaction.commit()
    async with producer.transaction() as transaction:
        await transaction.publish(STREAM, b"0")
    assert await committed(client) == [b"first", b"0"]


async def test_a_restart_between_messages_and_commit(
    broker: EmbeddedBroker, client: Client, producer: Producer
) -> None:
    """What is stored is stored: the acks find it."""
    transaction = producer.transaction()
    await transaction.publish(STREAM, b"0")
    await transaction.flush()
    await broker.faults.cut_links(reset=True)
    await transaction.commit()
    assert await committed(client) == [b"first", b"0"]
