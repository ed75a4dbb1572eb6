"""Rows of a task as uncommitted messages: what its commit shows, each once and in order."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from liftbridge_aio import AckPolicy, Client, ClientOptions
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.model import ACK_HEADER
from liftbridge_aio.retry import Backoff
from liftbridge_aio.spark.core.one_shot_producer import OneShotProducer
from liftbridge_aio.spark.core.row_placement import OutgoingRow
from liftbridge_aio.spark.write.batch_publisher import BatchPublisher

STREAM = "totals"
HASTY = ClientOptions(ack_timeout=0.5, backoff=Backoff(0.01, 0.05))
PARTITIONS = 2
ROWS = 400


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    async with Client(broker.address, options=HASTY) as client:
        await client.create_stream(STREAM, partitions=PARTITIONS)
        yield client


def a_producer() -> OneShotProducer:
    return OneShotProducer(bytes((1, *secrets.token_bytes(5))), time.time_ns())


def a_publisher() -> BatchPublisher:
    return BatchPublisher(
        ack_policy=AckPolicy.ALL, max_in_flight=100, ack_timeout=20.0, new_producer=a_producer
    )


def some_rows(count: int) -> list[OutgoingRow]:
    return [(STREAM, b"%d" % row, None, None, row % PARTITIONS) for row in range(count)]


async def values(client: Client, *, committed: bool) -> list[list[int]]:
    """Read each partition."""
    found = []
    for partition in range(PARTITIONS):
        reading = client.read(STREAM, partition=partition, committed=committed)
        rows = [each async for each in reading if ACK_HEADER not in each.transaction_headers]
        found.append([int(row.value) for row in rows])
    return found


async def commit(client: Client, publisher: BatchPublisher) -> None:
    intents = [intent for rows in publisher.uncommitted() for intent in rows.intents()]
    async with client.producer() as producer:
        await producer.append_intents(intents)


WHOLE = [list(range(partition, ROWS, PARTITIONS)) for partition in range(PARTITIONS)]


async def publish_all(client: Client, publisher: BatchPublisher) -> None:
    rows = some_rows(ROWS)
    for first in range(0, ROWS, 150):
        await publisher.publish(client, first, rows[first : first + 150])
    await publisher.finish(client)


async def test_rows_are_hidden_until_they_are_committed(client: Client) -> None:
    publisher = a_publisher()
    await publish_all(client, publisher)
    assert await values(client, committed=True) == [[], []]
    assert await values(client, committed=False) == WHOLE
    await commit(client, publisher)
    await commit(client, publisher)
    assert await values(client, committed=True) == WHOLE


@pytest.mark.parametrize("at", ["reply", "request"])
@pytest.mark.parametrize("skip", [0, 37, 260])
async def test_rows_around_a_failure_are_shown_once_and_in_order(
    broker: EmbeddedBroker, client: Client, at: Literal["reply", "request"], skip: int
) -> None:
    """Those with unknown outcomes may be stored: then they are in the log twice."""
    publisher = a_publisher()
    lost = broker.faults.drop("PublishAsync", at=at, times=3, skip=skip)
    await publish_all(client, publisher)
    assert lost.applied == 3
    assert len(publisher.uncommitted()) >= (2 if skip else 1)
    await commit(client, publisher)
    assert await values(client, committed=True) == WHOLE
    everything = await values(client, committed=False)
    assert sum(map(len, everything)) > ROWS


async def test_a_server_that_is_away_repeats_nothing(
    broker: EmbeddedBroker, client: Client
) -> None:
    publisher = a_publisher()
    rows = some_rows(ROWS)
    await publisher.publish(client, 0, rows[:150])
    await broker.stop()
    rest = asyncio.create_task(publisher.publish(client, 150, rows[150:]))
    await asyncio.sleep(0)
    await broker.start()
    await rest
    await publisher.finish(client)
    await commit(client, publisher)
    assert await values(client, committed=True) == WHOLE


async def test_an_attempt_that_is_given_up_shows_nothing(client: Client) -> None:
    first, second = a_publisher(), a_publisher()
    await first.publish(client, 0, some_rows(ROWS))
    await first.abandon()
    assert first.uncommitted() == ()
    await publish_all(client, second)
    await commit(client, second)
    assert await values(client, committed=True) == WHOLE


def test_rows_stored_out_of_order_are_noticed() -> None:
    place = ("totals", 0)
    for wrong in ([4], [5], [7, 6], [6, 8, 8]):
        producer = a_producer()
        assert producer.stored({place: [3, 5]}) is None
        assert producer.stored({place: wrong}) == place
