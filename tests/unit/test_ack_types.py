"""Types say so where an ack is certain, however it is published; mypy checks this file."""

from __future__ import annotations

import asyncio
import inspect
from typing import assert_type

from liftbridge_aio import Ack, AckPolicy, Client
from liftbridge_aio.nats import NatsPublisher


async def of_a_client(client: Client, policy: AckPolicy) -> None:
    """Never run, as the others below."""
    assert_type(await client.publish("orders", b""), Ack)
    assert_type(await client.publish("orders", b"", ack_policy=AckPolicy.ALL), Ack)
    assert_type(await client.publish_async("orders", b""), asyncio.Future[Ack])
    all_acked = await client.publish_async("orders", b"", ack_policy=AckPolicy.ALL)
    assert_type(await all_acked, Ack)
    unacked = await client.publish_async("orders", b"", ack_policy=policy)
    assert_type(unacked, asyncio.Future[Ack | None])
    assert_type(await client.publish_many("orders", [b""]), list[Ack])
    assert_type(await client.publish_to_subject("orders.in", b""), Ack)


async def of_values(client: Client, policy: AckPolicy) -> None:
    orders = client.values("orders")
    assert_type(await orders.publish(b""), Ack)
    assert_type(await orders.publish(b"", b"key", ack_policy=AckPolicy.ALL), Ack)
    assert_type(await orders.publish_async(b""), asyncio.Future[Ack])
    assert_type(await orders.publish_async(b"", ack_policy=policy), asyncio.Future[Ack | None])
    assert_type(await orders.publish_many([b""], key=bytes), list[Ack])


async def over_nats(publisher: NatsPublisher) -> None:
    assert_type(await publisher.publish("orders", b""), Ack)


def test_what_mypy_is_told_is_there() -> None:
    assert all(map(inspect.iscoroutinefunction, (of_a_client, of_values, over_nats)))
