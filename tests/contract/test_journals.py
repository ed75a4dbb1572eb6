"""Journals of Gazette's guide in partitions."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import Client, InvalidRequest
from liftbridge_aio.transactions.errors import FramingError
from liftbridge_aio.transactions.journals import (
    JSON_LINES,
    Journal,
    JsonMessage,
    PartitionJournals,
    Publisher,
    ReadCommittedIter,
    Sequencer,
    rendezvous_mapping,
)
from support.marks import ON_ONE_PATH
from support.raw import BOUND

pytestmark = ON_ONE_PATH


def new_message(_: Journal) -> JsonMessage:
    return JsonMessage()


def key_of(message: JsonMessage) -> bytes:
    return str(message.fields["n"]).encode()


async def test_transactions_over_partitions(client: Client, stream_name: str) -> None:
    """They are read whole, long ones again from the log; a reader may follow."""
    await client.create_stream(stream_name, partitions=3)
    among = [Journal(f"{stream_name}/{number}", JSON_LINES) for number in range(3)]
    mapping = rendezvous_mapping(key_of, lambda: among)
    journals = PartitionJournals(client)
    publisher = Publisher(journals)
    for n in range(30):
        await publisher.publish_uncommitted(mapping, JsonMessage(n=n))
    rolled_back = Publisher(journals)
    await rolled_back.publish_uncommitted(lambda _: among[0], JsonMessage(n=-1))
    intents = publisher.build_ack_intents()
    await publisher.append_intents(intents * 2)
    found: list[int] = []
    for journal in among:
        reading = ReadCommittedIter(journals.source(journal), new_message, Sequencer(buffer=3))
        ns = [each.message.fields["n"] async for each in reading if "n" in each.message.fields]
        assert ns == sorted(ns)
        found += ns
    assert sorted(found) == list(range(30))

    source = journals.source(among[0], follow=True)
    follower = ReadCommittedIter(source, new_message, Sequencer())
    begin, _ = await publisher.publish_committed(lambda _: among[0], JsonMessage(n=99))
    async with asyncio.timeout(BOUND):
        while (envelope := await anext(follower)).message.fields.get("n") != 99:
            continue
    assert envelope.begin == begin


async def test_a_message_that_is_no_frame(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"{}\n{}\n")
    source = PartitionJournals(client).source(Journal(stream_name, JSON_LINES))
    with pytest.raises(FramingError, match=f"at offset 0 of {stream_name} is no frame"):
        await anext(ReadCommittedIter(source, new_message, Sequencer()))


@pytest.mark.parametrize("name", ["", "/1", "orders/x", "a/" + "9" * 5000])
async def test_a_journal_that_names_no_partition(client: Client, name: str) -> None:
    with pytest.raises(InvalidRequest, match="a journal is a stream, or a stream/partition"):
        PartitionJournals(client).source(Journal(name, JSON_LINES))
