"""A producer with a store while the leader of its store fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from liftbridge_aio import Client, ClientOptions, Isolation
from liftbridge_aio.broker import EmbeddedCluster
from liftbridge_aio.transactions import (
    CheckpointStream,
    CommitInDoubt,
    Producer,
    Transaction,
    TransactionAborted,
)
from support.clients import rest
from support.faults import BOUND, QUICK

pytestmark = pytest.mark.parametrize("data_path", ["lane"], indirect=True)

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


async def test_the_leader_of_a_store_fails() -> None:
    options = ClientOptions(backoff=QUICK, ack_timeout=1)
    async with (
        asyncio.timeout(2 * BOUND),
        EmbeddedCluster(nodes=3) as cluster,
        Client(*cluster.addresses, options=options) as client,
    ):
        await client.create_stream("out", replication_factor=3)
        async with client.producer("p", store=STORE) as producer:
            for number in range(9):
                if number % 3 == 1:
                    leader = cluster.leader_of(STORE.stream_of("p"))
                    await cluster.stop_node(leader)
                await commit(producer, b"%d" % number)
                if number % 3 == 2:
                    await cluster.start_node(leader)
        async with client.producer("p", store=STORE) as producer:
            await commit(producer, b"9")
        found = await rest(client.read("out", isolation=Isolation.READ_COMMITTED))
        assert [message.value for message in found] == [b"%d" % number for number in range(10)]
