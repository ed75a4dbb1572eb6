"""Producers with a store: who takes over, what is finished, and where reading goes on."""

from __future__ import annotations

import pytest

from liftbridge_aio import (
    Client,
    InvalidRequest,
    Message,
    PartitionReadonly,
    StartAt,
    StopAt,
    StreamOptions,
    StreamReset,
    UsageError,
    WrongType,
)
from liftbridge_aio.model import ACK_HEADER
from liftbridge_aio.transactions import (
    CheckpointStream,
    Phase,
    ProducerFenced,
)
from support.clients import EARLIEST, rest, take
from support.marks import ON_ONE_PATH

pytestmark = ON_ONE_PATH

COMMITTED = True
UNCOMMITTED = False


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    await client.create_stream(stream_name, partitions=2)
    return stream_name


@pytest.fixture
async def orders(client: Client, stream_name: str) -> str:
    name = f"{stream_name}-orders"
    await client.create_stream(name, partitions=2)
    return name


@pytest.fixture
def store(stream_name: str) -> CheckpointStream:
    return CheckpointStream(f"{stream_name}-store")


async def committed(client: Client, stream: str) -> list[bytes]:
    reading = client.read(stream, committed=COMMITTED)
    return [message.value async for message in reading]


async def acks_of(client: Client, stream: str) -> int:
    found = await rest(client.read(stream))
    return sum(ACK_HEADER in message.transaction_headers for message in found)


async def fill(client: Client, stream: str, count: int, *, size: int = 1) -> None:
    """Publish numbers in transactions of this size, to both partitions in turn."""
    producer = client.producer()
    for begin in range(0, count, size):
        async with producer.transaction() as transaction:
            for number in range(begin, begin + size):
                await transaction.publish(stream, b"%d" % number, partition=number // size % 2)


def numbers(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


async def test_transactions_with_a_store(
    client: Client, stream: str, store: CheckpointStream
) -> None:
    async with client.producer("p", store=store) as producer:
        for number in range(3):
            async with producer.transaction() as transaction:
                for partition in (0, 1):
                    await transaction.publish(stream, b"%d" % number, partition=partition)
            assert transaction.phase is Phase.COMMITTED
        async with producer.transaction():
            pass
    assert sorted(await committed(client, stream)) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    log = await rest(client.read(store.stream_of("p"), partition=0))
    # A claim, one record for each new partition, and one for each transaction.
    assert len(log) == 1 + 2 + 3


async def test_the_producer_before_is_fenced(
    client: Client, stream: str, store: CheckpointStream
) -> None:
    before = client.producer("p", store=store)
    async with before:
        async with before.transaction() as transaction:
            await transaction.publish(stream, b"1", partition=0)
        zombie = before.transaction()
        await zombie.publish(stream, b"in vain", partition=0)
        async with client.producer("p", store=store) as following:
            with pytest.raises(ProducerFenced, match="another writer has claimed"):
                await zombie.commit()
            assert zombie.phase is Phase.ABORTED
            with pytest.raises(ProducerFenced):
                before.transaction()
            with pytest.raises(ProducerFenced):
                await before.publish(stream, b"in vain", partition=0)
            async with following.transaction() as transaction:
                await transaction.publish(stream, b"2", partition=0)
    assert await committed(client, stream) == [b"1", b"2"]


async def test_a_store_created_again_fences_the_producer_before(
    client: Client, stream: str, store: CheckpointStream
) -> None:
    async with client.producer("p", store=store) as before:
        async with before.transaction() as transaction:
            await transaction.publish(stream, b"1", partition=0)
        await client.delete_stream(store.stream_of("p"))
        async with client.producer("p", store=store) as following:
            async with following.transaction() as transaction:
                await transaction.publish(stream, b"2", partition=0)
            zombie = before.transaction()  # its store has as many records as the new one
            await zombie.publish(stream, b"in vain", partition=0)
            with pytest.raises(ProducerFenced, match="created again"):
                await zombie.commit()
            assert zombie.phase is Phase.ABORTED
            async with following.transaction() as transaction:
                await transaction.publish(stream, b"3", partition=0)
            with pytest.raises(ProducerFenced):
                before.transaction()
    assert await committed(client, stream) == [b"1", b"2", b"3"]


async def test_producers_of_other_names_are_not_fenced(
    client: Client, stream: str, store: CheckpointStream
) -> None:
    async with client.producer("a", store=store) as one, client.producer("b", store=store) as two:
        for producer in (one, two):
            async with producer.transaction() as transaction:
                await transaction.publish(stream, b"x", partition=0)
    assert await committed(client, stream) == [b"x", b"x"]


async def test_what_the_producer_before_left_open_is_rolled_back(
    client: Client, stream: str, store: CheckpointStream
) -> None:
    before = client.producer("p", store=store)
    await before.__aenter__()
    transaction = before.transaction()
    await transaction.publish(stream, b"in vain", partition=0)
    await transaction.publish(stream, b"in vain", partition=1)
    await transaction.flush()
    async with client.producer("p", store=store):
        assert await acks_of(client, stream) == 2
    assert await committed(client, stream) == []


async def test_positions_are_committed_with_a_transaction(
    client: Client, stream: str, orders: str, store: CheckpointStream
) -> None:
    await fill(client, orders, 22)
    for _ in range(2):
        async with (
            client.producer("p", store=store) as producer,
            client.subscribe(
                orders, start=EARLIEST, positions=producer, committed=COMMITTED
            ) as reading,
        ):
            for _ in range(5):
                async with producer.transaction(reading) as transaction:
                    for message in await take(reading, 2):
                        await transaction.publish(stream, message.value)
            await take(reading, 1)  # in vain
    assert len(set(await committed(client, stream))) == 20


@pytest.mark.parametrize("whole", [COMMITTED, UNCOMMITTED])
async def test_reading_goes_on_in_the_middle_of_a_transaction(
    client: Client, stream: str, orders: str, store: CheckpointStream, whole: bool
) -> None:
    """The messages of a transaction share a position: how many were read is stored too."""
    await fill(client, orders, 12, size=6)
    found: list[bytes] = []
    for _ in range(3):
        async with (
            client.producer("p", store=store) as producer,
            client.subscribe(
                orders, partition=0, start=EARLIEST, positions=producer, committed=whole
            ) as one,
        ):
            async with producer.transaction(one) as transaction:
                for message in await take(one, 2):
                    await transaction.publish(stream, message.value, partition=0)
            found += await committed(client, stream)
    assert found[-6:] == [b"%d" % number for number in range(6)]


async def test_a_transaction_without_its_subscription_warns(
    client: Client, orders: str, store: CheckpointStream
) -> None:
    await fill(client, orders, 2)
    async with client.producer("p", store=store) as producer:
        reading = client.subscribe(
            orders, partition=0, start=EARLIEST, committed=COMMITTED, positions=producer
        )
        async with reading:
            producer.transaction().abort()  # nothing was read
            await take(reading, 1)
            with pytest.warns(RuntimeWarning, match=f"{orders}/0 .* give it the subscription"):
                producer.transaction().abort()
            async with producer.transaction(reading):
                pass
            producer.transaction().abort()  # all was committed


async def test_an_aborted_block_rewinds_its_subscription(
    client: Client, stream: str, orders: str, store: CheckpointStream
) -> None:
    await fill(client, orders, 24, size=4)

    async def fail(messages: list[Message]) -> None:
        async with producer.transaction(reading) as transaction:
            for message in messages:
                await transaction.publish(stream, message.value, partition=0)
            raise ZeroDivisionError

    async with (
        client.producer("p", store=store) as producer,
        client.subscribe(
            orders,
            start=EARLIEST,
            stop=StopAt.latest(),
            positions=producer,
            committed=COMMITTED,
        ) as reading,
    ):
        batches = 0
        async for batch in reading.batches(max_size=3):
            batches += 1
            if batches % 2:
                with pytest.raises(ZeroDivisionError):
                    await fail(batch)
                continue
            async with producer.transaction(reading) as transaction:
                for message in batch:
                    await transaction.publish(stream, message.value, partition=0)
    assert sorted(await committed(client, stream)) == numbers(24)


async def test_a_refused_message_rewinds_it_too(
    client: Client, stream: str, orders: str, store: CheckpointStream
) -> None:
    await fill(client, orders, 4)
    async with (
        client.producer("p", store=store) as producer,
        client.subscribe(
            orders, partition=0, start=StartAt.offset(0), positions=producer
        ) as reading,
    ):
        await client.create_stream(f"{stream}-readonly")
        await client.set_stream_readonly(f"{stream}-readonly")
        found: list[Message] = []

        async def copy(to: str) -> None:
            async with producer.transaction(reading) as transaction:
                found.extend(await take(reading, 1))
                await transaction.publish(to, found[-1].value)

        with pytest.raises(PartitionReadonly):
            await copy(f"{stream}-readonly")
        assert reading.position == 0
        await copy(stream)
        assert found == found[:1] * 2
        assert producer.positions == {(orders, 0): 1}


async def test_a_new_only_reading_goes_back_to_where_it_began(
    client: Client, orders: str, store: CheckpointStream
) -> None:
    await client.publish(orders, b"old")
    async with (
        client.producer("p", store=store) as producer,
        client.subscribe(orders, partition=0, positions=producer) as reading,
    ):
        await client.publish(orders, b"new")

        async def fail() -> None:
            async with producer.transaction(reading):
                assert [message.value for message in await take(reading, 1)] == [b"new"]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert [message.value for message in await take(reading, 1)] == [b"new"]


async def test_positions_without_messages_are_committed(
    client: Client, orders: str, store: CheckpointStream
) -> None:
    await fill(client, orders, 4)
    async with (
        client.producer("p", store=store) as producer,
        client.subscribe(orders, partition=0, start=EARLIEST, positions=producer) as reading,
    ):
        async with producer.transaction(reading):
            await take(reading, 2)
        assert producer.positions == {(orders, 0): 2}
    async with client.producer("p", store=store) as producer:
        assert producer.positions == {(orders, 0): 2}
        async with client.subscribe(
            orders, partition=0, start=EARLIEST, positions=producer
        ) as reading:
            assert reading.position == 2


async def test_a_log_that_was_created_again_is_refused(
    client: Client, orders: str, store: CheckpointStream
) -> None:
    await fill(client, orders, 4)
    async with client.producer("p", store=store) as producer:
        async with (
            client.subscribe(orders, partition=0, start=EARLIEST, positions=producer) as reading,
            producer.transaction(reading),
        ):
            await take(reading, 2)
        await client.delete_stream(orders)
        await client.create_stream(orders, partitions=2)
        await fill(client, orders, 8)
        with pytest.raises(StreamReset, match="created again"):
            async with client.subscribe(orders, partition=0, start=EARLIEST, positions=producer):
                pass


async def test_streams_that_are_gone_do_not_stop_the_next_producer(
    client: Client, stream: str, orders: str, store: CheckpointStream
) -> None:
    async with client.producer("p", store=store) as producer, producer.transaction() as transaction:
        await transaction.publish(stream, b"1", partition=0)
        await transaction.publish(orders, b"1", partition=0)
    await client.delete_stream(orders)
    async with client.producer("p", store=store) as producer, producer.transaction() as transaction:
        await transaction.publish(stream, b"2", partition=0)
    assert await committed(client, stream) == [b"1", b"2"]


async def test_a_store_of_the_users_own_making(
    client: Client, stream: str, store: CheckpointStream
) -> None:
    options = StreamOptions(optimistic_concurrency_control=True, retention_max_messages=100)
    await client.create_stream(store.stream_of("p"), options=options)
    async with client.producer("p", store=store) as producer, producer.transaction() as transaction:
        await transaction.publish(stream, b"1")


async def test_one_transaction_at_a_time(client: Client, store: CheckpointStream) -> None:
    async with client.producer("p", store=store) as producer:
        transaction = producer.transaction()
        with pytest.raises(UsageError, match="one transaction at a time"):
            producer.transaction()
        transaction.abort()
        producer.transaction().abort()


async def test_what_makes_no_sense_is_refused(
    client: Client, orders: str, store: CheckpointStream
) -> None:
    for name, kept in (("p", None), (None, store)):
        with pytest.raises(InvalidRequest, match="has a name"):
            client.producer(name, store=kept)
    for name in ("", "a b", "a.", "a*", "a/b"):
        with pytest.raises(InvalidRequest, match="the name of a producer"):
            client.producer(name, store=store)
    with pytest.raises(InvalidRequest, match="the name of a producer"):
        client.producer("a.b", store=store)  # another store has it as prefix and name
    for name in ("", "a b", "a.", "a*", "a/b"):
        with pytest.raises(InvalidRequest, match="a prefix has"):
            CheckpointStream(name)
    with pytest.raises(WrongType):
        client.producer("p", store="checkpoints")  # type: ignore[arg-type]
    closed = client.producer("p", store=store)
    for refused in (closed.transaction, closed.subscription_positions, lambda: closed.positions):
        with pytest.raises(UsageError, match="enter the producer first"):
            refused()
    without = client.producer()
    for refused in (without.subscription_positions, lambda: without.positions):
        with pytest.raises(UsageError, match="has no store"):
            refused()
    async with client.producer("r", store=store) as entered:
        with pytest.raises(UsageError, match="entered already"):
            await entered.__aenter__()
    with pytest.raises(UsageError, match="is closed"):
        await entered.__aenter__()
    async with client.producer("p", store=store) as one, client.producer("q", store=store) as two:
        with pytest.raises(InvalidRequest, match="not by both"):
            client.subscribe(orders, partition=0, positions=one, cursor="c")
        with pytest.raises(InvalidRequest, match="in reverse"):
            client.subscribe(orders, partition=0, positions=one, reverse=True)
        with pytest.raises(WrongType):
            client.subscribe(orders, partition=0, positions="p")  # type: ignore[call-overload]
        reading = client.subscribe(orders, partition=0, positions=one)
        with pytest.raises(UsageError, match="enter the subscription"):
            one.transaction(reading)
        with pytest.raises(UsageError, match="inside `async with`"):
            await anext(reading)
        async with reading:
            with pytest.raises(UsageError, match="of its own producer"):
                two.transaction(reading)
            with pytest.raises(UsageError, match="of its own producer"):
                without.transaction(reading)
            with pytest.raises(UsageError, match="another subscription reads this partition"):
                await client.subscribe(orders, positions=one).__aenter__()
            with pytest.raises(UsageError, match="are stored by transactions"):
                await reading.commit()
        with pytest.raises(WrongType):
            one.transaction(orders)  # type: ignore[arg-type]
        plain = client.subscribe(orders, partition=0)
        with pytest.raises(UsageError, match="of its own producer"):
            one.transaction(plain)
