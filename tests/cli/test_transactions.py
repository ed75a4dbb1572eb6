"""`transactions` and `--committed`: what is shown, what is open, and how it is rolled back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from anyio.from_thread import BlockingPortal

from cli.conftest import ON_EMBEDDED, ByClient, Run
from liftbridge_aio import Client, Record
from liftbridge_aio.model import ACK_HEADER
from liftbridge_aio.transactions import (
    CheckpointStream,
    ProducerFenced,
    Transaction,
    TransactionAborted,
)
from support.transaction_logs import log_of, producer, publish_records, records_of

A = producer("A").hex()
LOG = "- A1c B1c A2c - B2/2/0 A3/1/0 A4c -"
SHOWN = ["-", "-", "B1c", "A1c", "A2c", "-"]


@pytest.fixture
def logs(prepare: ByClient, stream: str) -> str:
    """A stream of two partitions, in each of which a transaction of A is open."""

    async def create(client: Client) -> None:
        await client.create_stream(stream, partitions=2)
        for partition, log in ((0, LOG), (1, "- A1c A2c")):
            records = [
                Record(each.value, headers=each.headers, partition=partition)
                for each in records_of(log_of(log))
            ]
            await publish_records(client, stream, records)

    prepare(create)
    return stream


def values(run: Run, *words: str) -> list[str]:
    return [message["value"] for message in run(*words, "--json").objects]


def test_a_committed_tail_shows_what_is_committed(run_on_each: Run, logs: str) -> None:
    tail = ("tail", logs, "--partition", "0", "--committed", "--no-follow")
    assert values(run_on_each, *tail) == SHOWN
    assert values(run_on_each, *tail, "--from", "last:2") == SHOWN[-2:]
    with_acks = run_on_each(*tail, "--acks", "--json").objects
    assert [message["offset"] for message in with_acks] == [0, 4, 2, 5, 1, 3, 6, 8]
    everything = run_on_each("tail", logs, "--partition", "0", "--no-follow", "--json").objects
    assert len(everything) == 9


@ON_EMBEDDED
def test_a_committed_tail_begins_within_a_transaction(run_on_each: Run, logs: str) -> None:
    tail = ("tail", logs, "--partition", "0", "--committed", "--no-follow")
    for count in range(1, 7):
        assert values(run_on_each, *tail, "--from", f"last:{count}") == SHOWN[-count:]


@ON_EMBEDDED
def test_a_committed_subscribe_and_a_group(run_on_each: Run, logs: str) -> None:
    read = ("subscribe", logs, "--start", "earliest", "--stop", "latest")
    assert values(run_on_each, *read, "--committed") == SHOWN
    group = ("tail", logs, "--group", logs, "--from", "earliest", "--committed")
    assert sorted(values(run_on_each, *group, "--count", "7")) == sorted(["-", *SHOWN])


@ON_EMBEDDED
def test_a_malformed_ack_ends_a_reading_unless_it_is_skipped(
    run_on_each: Run, prepare: ByClient, logs: str
) -> None:
    garbage = Record(b"", headers={ACK_HEADER: b"garbage"}, partition=1)
    prepare(lambda client: publish_records(client, logs, [garbage]))
    commands = {
        "tail": ("--committed", "--no-follow"),
        "transactions list": (),
        f"transactions show {logs} {A}": (),
    }
    for command, flags in commands.items():
        words = (*command.split(), *([] if logs in command else [logs]), "--partition", "1", *flags)
        complaint = run_on_each(*words, code=1).err
        assert f"stream={logs!r}, partition=1, offset=3" in complaint
        assert "--on-malformed skip" in complaint
        run_on_each(*words, "--on-malformed", "skip")
    listed = run_on_each("transactions", "list", logs, "--on-malformed", "skip")
    assert "partition 1: malformed acks were skipped (1)" in listed.err


@ON_EMBEDDED
def test_acks_are_asked_for_with_committed_only(run_on_each: Run, logs: str) -> None:
    assert "--acks goes with" in run_on_each("tail", logs, "--acks", code=2).err


def test_open_transactions_are_listed(run_on_each: Run, logs: str) -> None:
    found = run_on_each("transactions", "list", logs, "--json").json
    places = [
        (each["partition"], each["producer"], each["begin"], each["newest"]) for each in found
    ]
    assert places == [(0, A, 7, 7), (1, A, 1, 2)]
    assert [each["messages"] for each in found] == [1, 2]
    assert all(0 <= each["idle"] <= each["age"] < 60 for each in found)
    table = run_on_each("transactions", "list", logs, "--partition", "1").out
    assert f"│ 1         │ {A} │ 1-2 " in table
    assert run_on_each("transactions", "list", logs, "--from", "8", "--json").json == []


@ON_EMBEDDED
def test_the_messages_of_an_open_transaction_are_shown(run_on_each: Run, logs: str) -> None:
    assert values(run_on_each, "transactions", "show", logs, A) == ["A4c", "A1c", "A2c"]
    shown = run_on_each("transactions", "show", logs, A, "--partition", "1").out
    assert [line.split("\t")[2] for line in shown.splitlines()] == ["1", "2"]


def test_an_open_transaction_is_rolled_back_for_good(
    run_on_each: Run, prepare: ByClient, logs: str
) -> None:
    young = run_on_each("transactions", "abort", logs, A, code=1).err
    assert "may be at work" in young
    assert len(run_on_each("transactions", "list", logs, "--json").json) == 2
    aborted = run_on_each("transactions", "abort", logs, A, "--force").err
    assert "rolled back 1 message of" in aborted
    assert run_on_each("transactions", "list", logs, "--json").json == []

    async def second_half(client: Client) -> None:
        """The producer lives after all, and commits."""
        [late, ack] = records_of(log_of("A3c - - - A4/1/0"))[::4]
        for record in (late, ack):
            await publish_records(client, logs, [replace(record, partition=1)])

    prepare(second_half)
    tail = ("tail", logs, "--partition", "1", "--committed", "--no-follow")
    assert values(run_on_each, *tail) == ["-"]


@ON_EMBEDDED
def test_producers_that_have_nothing_open_are_refused(run_on_each: Run, logs: str) -> None:
    unknown = run_on_each("transactions", "abort", logs, "010203040506", code=2).err
    assert "has no open transaction" in unknown
    assert "12 hexadecimal digits" in run_on_each("transactions", "show", logs, "x", code=2).err


def test_a_producer_with_a_store_is_fenced_off_first(
    run_on_each: Run, stream: str, elsewhere: BlockingPortal, address: str
) -> None:
    """It learns of it, and what it has left in its store is finished."""

    async def begin() -> tuple[Client, Transaction]:
        client = Client(address)
        await client.connect()
        await client.create_stream(stream)
        producer = client.producer("worker", store=CheckpointStream("fenced"))
        await producer.__aenter__()
        transaction = producer.transaction()
        await transaction.publish(stream, b"half")
        await transaction.flush()
        return client, transaction

    async def commit(client: Client, transaction: Transaction) -> None:
        with pytest.raises((ProducerFenced, TransactionAborted)):
            await transaction.commit()
        await client.aclose()

    client, transaction = elsewhere.call(begin)
    [span] = run_on_each("transactions", "list", stream, "--json").json
    words = ("transactions", "abort", stream, span["producer"], "--name", "worker")
    assert "go together" in run_on_each(*words, code=2).err
    assert "may be at work" in run_on_each(*words, "--store", "fenced", code=1).err
    mistaken = (*words[:-1], "wroker", "--store", "fenced", "--force")
    assert "there is no stream fenced.wroker" in run_on_each(*mistaken, code=2).err
    assert "fenced off" in run_on_each(*words, "--store", "fenced", "--force").err
    assert run_on_each("transactions", "list", stream, "--json").json == []
    elsewhere.call(commit, client, transaction)
    assert values(run_on_each, "tail", stream, "--committed", "--no-follow") == []
