"""Publishing by key to a stream that another client deletes and creates with more partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from liftbridge_aio import Ack, Client, PartitionNotFound, Record, by_key
from liftbridge_aio.serializers import JSON
from support.marks import ON_ONE_PATH
from support.raw import eventually

pytestmark = ON_ONE_PATH

KEYS: Final = [f"key-{n}".encode() for n in range(16)]

Publish = Callable[[Client, str], Awaitable[list[Ack]]]


async def publish_each(client: Client, stream: str) -> list[Ack]:
    return [await client.publish(stream, b"", key=key) for key in KEYS]


async def publish_many(client: Client, stream: str) -> list[Ack]:
    return await client.publish_many(stream, [Record(b"", key=key) for key in KEYS])


async def publish_by_partitioner(client: Client, stream: str) -> list[Ack]:
    return [await client.publish(stream, b"", key=key, partitioner=by_key) for key in KEYS]


async def publish_values(client: Client, stream: str) -> list[Ack]:
    typed = client.values(stream, JSON)
    return [await typed.publish("value", key=key) for key in KEYS]


@pytest.mark.parametrize(
    "publish", [publish_each, publish_many, publish_by_partitioner, publish_values]
)
async def test_keys_go_to_the_new_partitions_soon(
    client: Client, server_client: Client, stream_name: str, publish: Publish
) -> None:
    """The partition that each key had is there still, so no server refuses anything."""
    await client.create_stream(stream_name)
    await publish(client, stream_name)
    await server_client.delete_stream(stream_name)
    await server_client.create_stream(stream_name, partitions=8)

    expected = [by_key(stream_name, key, b"", 8) for key in KEYS]

    async def spread() -> bool:
        return [ack.partition for ack in await publish(client, stream_name)] == expected

    await eventually(spread)


async def test_a_late_refusal_tells_of_fewer_partitions(
    client: Client, server_client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=8)
    key = next(key for key in KEYS if by_key(stream_name, key, b"", 8))
    await client.publish(stream_name, b"", key=key)
    await server_client.delete_stream(stream_name)
    await server_client.create_stream(stream_name)

    await client.publish_unacked(stream_name, b"", key=key)
    with pytest.raises(PartitionNotFound):
        await client.flush()
    assert (await client.publish(stream_name, b"", key=key)).partition == 0
