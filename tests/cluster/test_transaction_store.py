"""A producer with a store while the leader of its store fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from liftbridge_aio import Client, ClientOptions, Isolation, LiftbridgeError
from liftbridge_aio.transactions import (
    CheckpointStream,
    CommitInDoubt,
    Producer,
    Transaction,
    TransactionAborted,
)
from support.clients import rest
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
                    await cluster.kill(leader)
                await commit(producer, b"%d" % number)
                if number % 3 == 2:
                    await cluster.start(leader)
                    await in_sync(client)
        async with client.producer("p", store=STORE) as producer:
            await commit(producer, b"9")
        found = await rest(client.read("out", isolation=Isolation.READ_COMMITTED))
    assert [message.value for message in found] == [b"%d" % number for number in range(10)]


async def in_sync(client: Client) -> None:
    """Wait until every replica has everything; else the next leader may lack what was shown."""
    while True:
        with suppress(LiftbridgeError):
            metadata = await client.fetch_metadata()
            partitions = [each.partitions[0] for each in metadata.streams.values()]
            if all(len(each.isr) == len(each.replicas) for each in partitions):
                return
        await asyncio.sleep(0.1)
