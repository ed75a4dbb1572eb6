"""Transactions and messages that are sent again: what is stored, and what readings show."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import (
    AckPolicy,
    Client,
    InvalidRequest,
    PartitionReadonly,
    StreamNotFound,
    UsageError,
    WrongType,
    round_robin,
)
from liftbridge_aio.model import ACK_HEADER, UUID_HEADER
from liftbridge_aio.transactions import Phase, Producer, ReadCommitted, TransactionAborted
from support.clients import EARLIEST, rest, take
from support.faults import eventually
from support.marks import ON_ONE_PATH

pytestmark = ON_ONE_PATH

COMMITTED = True


async def committed(client: Client, stream: str) -> list[bytes]:
    reading = client.read(stream, committed=COMMITTED)
    return [message.value async for message in reading]


async def acks_of(client: Client, stream: str) -> int:
    found = await rest(client.read(stream))
    return sum(ACK_HEADER in message.transaction_headers for message in found)


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    await client.create_stream(stream_name, partitions=2)
    return stream_name


@pytest.fixture
async def producer(client: Client) -> Producer:
    return client.producer()


async def test_a_transaction_is_visible_once_it_is_committed(
    client: Client, stream: str, producer: Producer
) -> None:
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as reading:
        async with producer.transaction() as transaction:
            for number in range(3):
                await transaction.publish(stream, b"%d" % number, b"key", {"n": b"1"}, partition=0)
            await transaction.flush()
            await client.publish(stream, b"plain", partition=0)
            assert [message.value for message in await take(reading, 1)] == [b"plain"]
        assert transaction.phase is Phase.COMMITTED
        found = await take(reading, 3)
    assert [message.value for message in found] == [b"0", b"1", b"2"]
    assert [(message.key, message.headers) for message in found] == [(b"key", {"n": b"1"})] * 3


async def test_an_exception_aborts_it(client: Client, stream: str, producer: Producer) -> None:
    transaction = producer.transaction()

    async def fail() -> None:
        async with transaction:
            await transaction.publish(stream, b"in vain")
            await transaction.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert transaction.phase is Phase.ABORTED
    async with producer.transaction() as transaction:
        await transaction.publish(stream, b"again")
    assert await committed(client, stream) == [b"again"]
    await client.flush()
    assert await acks_of(client, stream) == 2  # the rollback lets readers forget


async def test_an_abort_is_awaited_or_not(client: Client, stream: str, producer: Producer) -> None:
    transaction = producer.transaction()
    await transaction.publish(stream, b"in vain")
    await transaction.flush()
    await transaction.abort()
    assert await acks_of(client, stream) == 1
    await transaction.abort()
    assert await acks_of(client, stream) == 1


async def test_a_cancellation_aborts_it(client: Client, stream: str, producer: Producer) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with producer.transaction() as transaction:
            await transaction.publish(stream, b"in vain")
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with producer.transaction() as transaction:
        await transaction.publish(stream, b"again")
    assert await committed(client, stream) == [b"again"]


async def test_several_partitions_and_streams(
    client: Client, stream: str, stream_name: str, producer: Producer
) -> None:
    other = f"{stream_name}-other"
    await client.create_stream(other)
    async with producer.transaction() as transaction:
        for number in range(4):
            await transaction.publish(stream, b"%d" % number, partition=number % 2)
        await transaction.publish(other, b"other")
        assert await committed(client, stream) == []
    assert sorted(await committed(client, stream)) == [b"0", b"1", b"2", b"3"]
    assert await committed(client, other) == [b"other"]


async def test_partitions_are_chosen_as_usual(
    client: Client, stream: str, producer: Producer
) -> None:
    keyed = await client.publish(stream, b"", b"k1")
    partitioner = round_robin()
    async with producer.transaction() as transaction:
        await transaction.publish(stream, b"by key", b"k1")
        for _ in range(2):
            await transaction.publish(stream, b"in turn", partitioner=partitioner)
    await producer.publish(stream, b"alone", b"k1")
    found = await rest(client.read(stream, committed=COMMITTED))
    turns = [message.partition for message in found if message.value == b"in turn"]
    assert sorted(turns) == [0, 1]
    partitions = {message.partition for message in found if message.key == b"k1"}
    assert partitions == {keyed.partition}


async def test_transactions_one_after_another(
    client: Client, stream: str, producer: Producer
) -> None:
    """One producer id is used for all of them: readers need not remember many."""
    for number in range(20):
        async with producer.transaction() as transaction:
            await transaction.publish(stream, b"%d" % number, partition=0)
    for committed in (COMMITTED, ReadCommitted(max_messages=1)):
        found = await rest(client.read(stream, partition=0, committed=committed))
        assert [message.value for message in found] == [b"%d" % number for number in range(20)]
    uuids = {message.transaction_headers[UUID_HEADER][-6:] for message in found}
    assert len(uuids) == 1


async def test_transactions_side_by_side(client: Client, stream: str, producer: Producer) -> None:
    async def run(number: int) -> None:
        async with producer.transaction() as transaction:
            for _ in range(5):
                await transaction.publish(stream, b"%d" % number, partition=0)
                await asyncio.sleep(0)

    await asyncio.gather(*map(run, range(10)))
    found = [
        message.value
        for message in await rest(client.read(stream, partition=0, committed=COMMITTED))
    ]
    assert sorted(found) == sorted([b"%d" % number for number in range(10)] * 5)
    assert [found[first] for first in range(0, 50, 5)] == [found[n] for n in range(4, 50, 5)]


async def test_many_tasks_in_one_transaction(
    client: Client, stream: str, producer: Producer
) -> None:
    async with producer.transaction() as transaction, asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(transaction.publish(stream, b"%d" % number, b"%d" % number))
    assert len(await committed(client, stream)) == 100


async def test_a_message_that_is_refused_aborts_it(
    client: Client, impatient: Client, stream: str
) -> None:
    transaction = impatient.producer().transaction()
    await transaction.publish(stream, b"in vain")
    await transaction.publish("no-such-stream", b"")
    with pytest.raises(StreamNotFound) as caught:  # to repeat the block would not help
        await transaction.commit()
    assert caught.value.stream == "no-such-stream"
    assert caught.value.__notes__ == ["the transaction was aborted"]
    assert transaction.phase is Phase.ABORTED
    with pytest.raises(UsageError, match="it is aborted"):
        await transaction.publish(stream, b"")
    transaction.abort()
    assert await committed(client, stream) == []


async def test_of_many_that_are_refused_none_is_reported_twice(
    client: Client, stream: str, producer: Producer
) -> None:
    await client.set_stream_readonly(stream)
    transaction = producer.transaction()
    for number in range(50):
        await transaction.publish(stream, b"%d" % number, partition=0)
    with pytest.raises(PartitionReadonly):
        await transaction.commit()
    await client.flush()  # raises what nobody has seen


async def test_intents_may_be_kept_and_written_by_another(
    client: Client, stream: str, producer: Producer
) -> None:
    transaction = producer.transaction()
    await transaction.publish(stream, b"0", partition=0)
    with pytest.raises(UsageError, match="flush"):
        transaction.build_ack_intents()
    await transaction.publish(stream, b"1", partition=1)
    await transaction.flush()
    intents = transaction.build_ack_intents()
    with pytest.raises(UsageError, match="no more messages"):
        await transaction.publish(stream, b"late")
    assert sorted(intent.partition for intent in intents) == [0, 1]

    another = client.producer()
    await another.append_intents(intents)
    await transaction.commit()
    assert sorted(await committed(client, stream)) == [b"0", b"1"]


async def test_an_empty_transaction_writes_nothing(
    client: Client, stream: str, producer: Producer
) -> None:
    async with producer.transaction():
        pass
    assert await acks_of(client, stream) == 0


async def test_single_messages(
    client: Client, impatient: Client, stream: str, producer: Producer
) -> None:
    ack = await producer.publish(stream, b"0", b"k", {"h": b"1"}, partition=1)
    assert (ack.offset, ack.ack_policy) == (0, AckPolicy.ALL)
    futures = [await producer.publish_async(stream, b"%d" % n, partition=1) for n in range(1, 50)]
    acks = await asyncio.gather(*futures)
    assert [ack.offset for ack in acks] == list(range(1, 50))
    assert await committed(client, stream) == [b"%d" % number for number in range(50)]
    with pytest.raises(StreamNotFound):
        await impatient.producer().publish("no-such-stream", b"")


async def test_a_closed_producer_aborts_what_is_open(
    stream: str, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer:
        empty = producer.transaction()
        transaction = producer.transaction()
        await transaction.publish(stream, b"in vain")
        await transaction.flush()
    assert empty.phase is transaction.phase is Phase.ABORTED
    [warned] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "neither committed nor aborted" in warned
    producer.close()
    with pytest.raises(UsageError, match="closed"):
        await producer.publish(stream, b"")
    with pytest.raises(UsageError, match="closed"):
        producer.transaction()


async def test_a_closed_client_leaves_nothing_visible(client: Client, stream: str) -> None:
    async with Client(*client._seeds) as leaving:
        transaction = leaving.producer().transaction()
        await transaction.publish(stream, b"in vain")
    with pytest.raises(TransactionAborted, match="the commit was refused"):
        await transaction.commit()
    assert await committed(client, stream) == []


async def test_what_a_producer_cannot_do_is_refused(
    client: Client, stream: str, producer: Producer
) -> None:
    with pytest.raises(InvalidRequest, match="must know what is stored"):
        client.producer(ack_policy=AckPolicy.NONE)
    with pytest.raises(WrongType, match="retry is a Retry"):
        client.producer(retry=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="txn-uuid"):
        await producer.publish(stream, b"", headers={UUID_HEADER: b""})
    async with producer.transaction() as transaction:
        with pytest.raises(InvalidRequest, match="txn-ack"):
            await transaction.publish(stream, b"", headers={ACK_HEADER: b""})
        with pytest.raises(WrongType):
            await transaction.publish(stream, "text")  # type: ignore[arg-type]
        await transaction.publish(stream, b"right")
    assert await committed(client, stream) == [b"right"]
    with pytest.raises(UsageError, match="only a commit in doubt is resumed"):
        await producer.transaction().resume()
    await transaction.resume()
    with pytest.raises(UsageError, match="cannot abort a transaction that is committed"):
        transaction.abort()
    await eventually(lambda: client.statistics().publisher.in_flight == 0)  # type: ignore[union-attr]
