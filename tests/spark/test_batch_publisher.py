"""Publishing the rows of a task: all of them acked, or a failure that says which one and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from liftbridge_aio import AckPolicy, Client, ClientOptions, Message, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.retry import Backoff
from liftbridge_aio.spark.core.row_placement import OutgoingRow
from liftbridge_aio.spark.core.write_id import WRITE_ID_HEADER, TaskAttempt, WriteId
from liftbridge_aio.spark.errors import InvalidRow, StreamMissing, WriteFailed
from liftbridge_aio.spark.write.batch_publisher import BatchPublisher

STREAM = "totals"
QUICK = ClientOptions(not_found_timeout=0.2, ack_timeout=20, backoff=Backoff(0.01, 0.05))
HASTY = ClientOptions(ack_timeout=1.0, backoff=Backoff(0.01, 0.05))


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    async with Client(broker.address, options=QUICK) as client:
        await client.create_stream(STREAM, partitions=2)
        yield client


@pytest.fixture
async def hasty(broker: EmbeddedBroker, client: Client) -> AsyncIterator[Client]:
    """A client that does not wait long for acks."""
    assert client.metadata.streams  # the stream is there
    async with Client(broker.address, options=HASTY) as hasty:
        yield hasty


def a_publisher(*, max_in_flight: int = 16_384, ack_timeout: float = 20.0) -> BatchPublisher:
    return BatchPublisher(
        ack_policy=AckPolicy.ALL, max_in_flight=max_in_flight, ack_timeout=ack_timeout
    )


def some_rows(count: int, *, stream: str = STREAM, partitions: int = 2) -> list[OutgoingRow]:
    return [(stream, b"%d" % row, None, None, row % partitions) for row in range(count)]


async def stored(client: Client, partition: int = 0, stream: str = STREAM) -> list[Message]:
    reading = client.subscribe(
        stream, partition=partition, start=StartAt.earliest(), stop=StopAt.latest()
    )
    async with reading:
        return [message async for message in reading]


async def test_every_row_is_acked_and_keeps_its_order(client: Client) -> None:
    publisher = a_publisher()
    rows = some_rows(1000)
    await publisher.publish(client, 0, rows[:700])
    await publisher.publish(client, 700, rows[700:])
    await publisher.finish(client)
    assert publisher.in_flight == 0
    assert publisher.written() == ((STREAM, 0, 0, 499, 500), (STREAM, 1, 0, 499, 500))
    for partition in (0, 1):
        values = [message.value for message in await stored(client, partition)]
        assert values == [row[1] for row in rows if row[4] == partition]


async def test_keys_and_headers_are_published(client: Client) -> None:
    publisher = a_publisher()
    await publisher.publish(client, 0, [(STREAM, b"v", b"k", {"trace": b"7"}, 1)])
    await publisher.finish(client)
    (message,) = await stored(client, 1)
    assert (message.key, message.value, message.headers["trace"]) == (b"k", b"v", b"7")


async def test_each_row_has_its_own_identity_beside_its_headers(client: Client) -> None:
    attempt = TaskAttempt(UUID(int=5), 7, 3, 0, b"attempt1")
    publisher = BatchPublisher(
        ack_policy=AckPolicy.ALL, max_in_flight=16_384, ack_timeout=20.0, identity=attempt
    )
    rows = some_rows(300, partitions=1)
    rows[1::2] = [(*row[:3], {"trace": row[1]}, row[4]) for row in rows[1::2]]
    rows[5] = (*rows[5][:3], {WRITE_ID_HEADER: b"of the task that wrote it before"}, 0)
    await publisher.publish(client, 0, rows[:100])
    await publisher.publish(client, 100, rows[100:])
    await publisher.finish(client)
    messages = await stored(client)
    identities = [WriteId.decode(message.headers[WRITE_ID_HEADER]) for message in messages]
    assert identities == [
        WriteId(attempt.query.bytes, 7, 3, number, b"attempt1") for number in range(300)
    ]
    traces = [message.headers.get("trace") for message in messages]
    assert traces == [None if row[3] is None else row[3].get("trace") for row in rows]


@pytest.mark.parametrize("most", [1, 7, 200])
async def test_no_more_rows_than_allowed_wait_for_their_acks(
    broker: EmbeddedBroker, client: Client, most: int
) -> None:
    publisher = a_publisher(max_in_flight=most)
    stall = broker.faults.stall("PublishAsync")
    publishing = asyncio.create_task(publisher.publish(client, 0, some_rows(500, partitions=1)))
    await stall.wait()
    await asyncio.sleep(0)
    figures = client.statistics().publisher
    assert figures is not None
    assert 0 < figures.in_flight <= publisher.in_flight <= most
    assert not publishing.done()
    stall.release()
    await publishing
    await publisher.finish(client)
    assert publisher.written()[0].rows == 500


async def test_a_row_whose_ack_was_lost_is_sent_again_and_counted(
    broker: EmbeddedBroker, hasty: Client
) -> None:
    attempt = TaskAttempt(UUID(int=5), 7, 3, 0, b"attempt1")
    publisher = BatchPublisher(
        ack_policy=AckPolicy.ALL, max_in_flight=16_384, ack_timeout=20.0, identity=attempt
    )
    lost = broker.faults.drop("PublishAsync", at="reply", times=3, skip=10)
    await publisher.publish(hasty, 0, some_rows(100, partitions=1))
    await publisher.finish(hasty)
    assert lost.applied == 3
    assert publisher.resent >= 3  # a slow machine may be late with more acks
    assert publisher.written()[0].rows == 100
    messages = await stored(hasty)
    assert len(messages) == 100 + publisher.resent
    assert {message.value for message in messages} == {row[1] for row in some_rows(100)}
    for message in messages:
        assert b"%d" % WriteId.decode(message.headers[WRITE_ID_HEADER]).row == message.value


async def test_rows_survive_a_server_that_goes_away_for_a_while(
    broker: EmbeddedBroker, client: Client
) -> None:
    publisher = a_publisher()
    await publisher.publish(client, 0, some_rows(600))
    await broker.stop()
    publishing = asyncio.create_task(publisher.publish(client, 600, some_rows(600)))
    await asyncio.sleep(0)
    await broker.start()
    await publishing
    await publisher.finish(client)
    assert sum(part.rows for part in publisher.written()) == 1200
    for partition in (0, 1):
        values = {message.value for message in await stored(client, partition)}
        assert values == {row[1] for row in some_rows(600) if row[4] == partition}


async def test_a_server_that_stays_silent_ends_the_patience(
    broker: EmbeddedBroker, hasty: Client
) -> None:
    publisher = a_publisher(ack_timeout=2.5)  # the client tells of one failure before
    broker.faults.drop("PublishAsync", at="reply", times=None, skip=40)
    await publisher.publish(hasty, 0, some_rows(50, partitions=1))
    with pytest.raises(
        WriteFailed,
        match=r"^\[LIFTBRIDGE_WRITE_FAILED\] no ack arrived for 2\.5 s; the last failure was: .*"
        r"stream='totals', partition=0.*publishTimeout",
    ):
        await publisher.finish(hasty)
    await publisher.abandon()
    assert publisher.in_flight == 0
    assert publisher.written() == ((STREAM, 0, 0, 39, 40),)


async def test_a_row_that_is_too_large_is_named_and_its_batch_is_not_published(
    client: Client,
) -> None:
    publisher = a_publisher()
    rows = some_rows(20, partitions=1)
    rows[15] = (STREAM, bytes(2**20), None, None, 0)
    with pytest.raises(
        InvalidRow,
        match=r"^\[LIFTBRIDGE_INVALID_ROW\] row 115 of the task: .*exceed max_message_bytes.*"
        r"\[stream='totals', partition=0\]: .*liftbridge\.maxMessageBytes",
    ):
        await publisher.publish(client, 100, rows)
    assert await publisher.abandon() == 0
    assert publisher.written() == ()
    assert await stored(client) == []


async def test_a_row_too_large_by_its_headers_is_named_and_others_are_counted(
    client: Client,
) -> None:
    publisher = a_publisher()
    rows = some_rows(20, partitions=1)
    rows[15] = (STREAM, b"v", None, {"large": bytes(2**20)}, 0)
    await publisher.publish(client, 100, rows)
    with pytest.raises(InvalidRow, match=r"row 115 of the task: .*exceeds max_message_bytes"):
        await publisher.finish(client)
    assert await publisher.abandon() == 0
    assert publisher.written() == ((STREAM, 0, 0, 14, 15),)
    assert len(await stored(client)) == 15


async def test_every_in_sync_replica_is_asked_to_have_a_row(
    broker: EmbeddedBroker, client: Client
) -> None:
    refused = broker.faults.drop(
        "PublishAsync", times=None, when=lambda request: request.ack_policy != AckPolicy.ALL
    )
    publisher = a_publisher(ack_timeout=2)
    await publisher.publish(client, 0, some_rows(10))
    await publisher.finish(client)
    assert refused.applied == 0


async def test_a_stream_that_is_gone_is_named(client: Client) -> None:
    publisher = a_publisher()
    await publisher.publish(client, 0, some_rows(10))
    await publisher.finish(client)
    await client.delete_stream(STREAM)
    await publisher.publish(client, 10, some_rows(10))
    with pytest.raises(
        StreamMissing,
        match=r"^\[LIFTBRIDGE_STREAM_MISSING\] row 1\d of the task: .*stream='totals'.*"
        "option stream",
    ):
        await publisher.finish(client)
    await publisher.abandon()


async def test_a_partition_that_takes_nothing_fails_at_once(client: Client) -> None:
    await client.set_stream_readonly(STREAM, [1])
    publisher = a_publisher()
    await publisher.publish(client, 0, some_rows(10))
    with pytest.raises(WriteFailed, match=r"row 1 of the task: .*read-?only.*partition=1"):
        await publisher.finish(client)
    await publisher.abandon()
    assert publisher.written() == ((STREAM, 0, 0, 4, 5),)
