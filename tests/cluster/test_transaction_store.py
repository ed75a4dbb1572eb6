"""A producer with a store while the leader of its store fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from liftbridge_aio import (
    AckPolicy,
    Client,
    ClientOptions,
    LiftbridgeError,
    StopAt,
    StreamOptions,
)
from liftbridge_aio.transactions import (
    CheckpointStream,
    CommitInDoubt,
    Producer,
    Transaction,
    TransactionAborted,
    TransactionError,
)
from support.clients import EARLIEST, rest
from support.faults import BOUND, QUICK
from support.servers.cluster import Cluster

STORE = CheckpointStream("store")


async def commit(producer: Producer, value: bytes) -> None:
    """Publish in a transaction, as the page about transactions says."""
    while True:
        transaction = producer.transaction()
        with suppress(TransactionAborted):
            try:
                async with transaction:
                    await transaction.publish("out", value)
            except CommitInDoubt:
                await resume(transaction)
            return


async def resume(transaction: Transaction) -> None:
    while True:
        try:
            await transaction.resume()
        except CommitInDoubt:
            continue
        return


async def test_the_leader_of_a_store_fails(cluster: Cluster) -> None:
    addresses = cluster.addresses.values()
    async with (
        asyncio.timeout(2 * BOUND),
        Client(*addresses, options=ClientOptions(backoff=QUICK, ack_timeout=1)) as client,
    ):
        await client.create_stream("out", replication_factor=3)
        async with client.producer("p", store=STORE) as producer:
            for number in range(9):
                if number % 3 == 1:
                    store = (await client.fetch_metadata()).streams[STORE.stream_of("p")]
                    leader = store.partitions[0].leader
                    assert leader
                    await cluster.stop_node(leader)
                await commit(producer, b"%d" % number)
                if number % 3 == 2:
                    await cluster.start_node(leader)
                    await in_sync(client)
        async with client.producer("p", store=STORE) as producer:
            await commit(producer, b"9")
        found = await rest(client.read("out", committed=True))
    assert [message.value for message in found] == [b"%d" % number for number in range(10)]


async def work(client: Client, name: str, gate: asyncio.Event) -> None:
    """Copy all orders exactly once; stop in the second transaction until the gate opens."""
    async with (
        client.producer(name, store=CheckpointStream(f"{name}-store")) as producer,
        client.subscribe(
            name, partition=0, start=EARLIEST, stop=StopAt.latest(), positions=producer
        ) as orders,
    ):
        async for batch in orders.batches(max_size=2):
            async with producer.transaction(orders) as transaction:
                for order in batch:
                    await transaction.publish(f"{name}-out", order.value)
                if batch[0].offset:
                    await gate.wait()


async def test_one_that_hung_is_fenced_though_the_leader_fails(
    cluster: Cluster, stream_name: str
) -> None:
    """Another one does its work meanwhile; each result is shown once."""
    opened, gate, values = asyncio.Event(), asyncio.Event(), [b"%d" % n for n in range(10)]
    opened.set()
    options = ClientOptions(backoff=QUICK, ack_timeout=1)
    out = f"{stream_name}-out"
    async with (
        asyncio.timeout(3 * BOUND),
        Client(*cluster.addresses.values(), options=options) as client,
        Client(*cluster.addresses.values(), options=options) as other,
    ):
        for stream in (stream_name, out):
            await client.create_stream(
                stream, replication_factor=3, options=StreamOptions(min_isr=2)
            )
        await client.publish_many(stream_name, values, ack_policy=AckPolicy.ALL)
        zombie = asyncio.create_task(work(client, stream_name, gate))
        async for _ in other.subscribe(out, start=EARLIEST, committed=True):
            break
        leader = (await other.fetch_metadata([out])).streams[out].partitions[0].leader
        assert leader
        await cluster.stop_node(leader)
        done = False
        while not done:
            with suppress(TransactionError, LiftbridgeError):
                await work(other, stream_name, opened)
                done = True
        await cluster.start_node(leader)
        gate.set()
        with pytest.raises(TransactionError):
            await zombie
        found = await rest(other.read(out, committed=True))
    assert [message.value for message in found] == values


async def in_sync(client: Client) -> None:
    """Wait until every replica has everything; else the next leader may lack what was shown."""
    while True:
        with suppress(LiftbridgeError):
            metadata = await client.fetch_metadata()
            partitions = [each.partitions[0] for each in metadata.streams.values()]
            if all(len(each.isr) == len(each.replicas) for each in partitions):
                return
        await asyncio.sleep(0.1)
