"""Queues that more members share than there are partitions: leases over NATS, on a real server."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest

from liftbridge_aio import Client, ConnectionFailed, InvalidRequest, UsageError
from liftbridge_aio.queue import (
    AlreadySettled,
    DeadLetter,
    Delivery,
    FailedElsewhere,
    LeaseExpired,
    Order,
    Queue,
    QueueOptions,
    ValueDelivery,
)
from liftbridge_aio.queue.core.acks_record import AcksRecord
from liftbridge_aio.serializers import JSON
from support.groups.group_watcher import publish
from support.groups.leasing_members import members, take
from support.markdown import ROOT, blocks
from support.marks import ON_ONE_PATH
from support.raw import BOUND, eventually
from support.servers.node import LiftbridgeNode

pytestmark = ON_ONE_PATH

GUIDE: Final = ROOT / "docs" / "queues.md"


@pytest.fixture
async def client(real_server: LiftbridgeNode) -> AsyncIterator[Client]:
    async with Client(real_server.address) as client:
        yield client


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    """A stream with one partition."""
    await client.create_stream(stream_name)
    return stream_name


async def close(queues: Sequence[Queue[Delivery]]) -> None:
    for queue in queues:
        await queue.aclose()


@pytest.mark.timeout(90)
async def test_members_share_one_partition_and_keep_the_order_of_keys(
    client: Client, stream: str, real_server: LiftbridgeNode
) -> None:
    total, keys = 200, 20
    done: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    by: Counter[str] = Counter()
    running: dict[bytes, list[int]] = defaultdict(list)
    broken: list[int] = []

    async with members(client, stream, real_server.nats_url, 4, order=Order.KEY) as queues:

        async def handle(delivery: Delivery) -> None:
            offset = delivery.message.offset
            earlier = range(int(delivery.key), offset, keys)
            broken.extend([each for each in earlier if not done[each]])
            broken.extend(running[delivery.key])
            running[delivery.key].append(offset)
            await asyncio.sleep(0.02)
            running[delivery.key].remove(offset)
            if offset % 10 == 3 and not failed[offset]:
                failed[offset] += 1
                raise ValueError("the oven is cold")
            assert delivery.attempt == 1 + failed[offset]
            done[offset] += 1

        async def run(queue: Queue[Delivery]) -> None:
            async def handle_here(delivery: Delivery) -> None:
                by[queue.consumer_id] += 1
                await handle(delivery)

            await queue.run(handle_here, concurrency=3)

        for number in range(total):
            await client.publish(stream, b"", b"%d" % (number % keys))
        runs = [asyncio.create_task(run(queue)) for queue in queues]
        owner, *others = queues
        await eventually(lambda: owner.statistics().acked == total)
        statistics = owner.statistics()
        await close(others)
        await close([owner])
        await asyncio.wait(runs)
    assert broken == []
    assert set(done.values()) == {1}
    assert len(done) == total
    assert statistics.nacked == total / 10
    assert statistics.leased == sum(each.statistics().borrowed for each in others)
    assert statistics.expired == statistics.late == 0
    assert all(by[queue.consumer_id] >= total / 20 for queue in queues), by


@pytest.mark.timeout(60)
async def test_a_lease_is_answered_as_any_delivery(
    client: Client, stream: str, real_server: LiftbridgeNode
) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    large = b"x" * (2**20 - 400)
    for value in (b"0", b"1", b"2", b"3", large):
        await client.publish(stream, value, b"key", {"header": b"4"})
    options: dict[str, Any] = {
        "ack_wait": 4,
        "dead_letter": DeadLetter(dead),
        "commit_interval": 60,
    }
    async with members(client, stream, real_server.nats_url, **options) as (owner, other):
        first, second, third, late, whole = await take(other, 5)
        message = first.message
        assert (message.stream, message.partition, message.offset) == (stream, 0, 0)
        assert (first.value, first.key, first.headers["header"]) == (b"0", b"key", b"4")
        assert (first.attempt, first.error, message.timestamp > 0) == (1, None, True)
        assert whole.value == large  # more than fits into a message of NATS beside the lease
        assert f"{stream}/0: 5 in flight are leased to {other.consumer_id}" in owner.explain()
        assert len(other.explain()) == 5
        assert owner.statistics().partitions[0].leased == 5

        seen: list[tuple[bytes, int]] = []

        async def handle(delivery: Delivery) -> None:
            seen.append((delivery.value, delivery.attempt))
            if len(seen) == 1:
                await asyncio.Event().wait()  # until it is cancelled

        await client.publish(stream, b"hang")
        run = asyncio.create_task(other.run(handle))
        await eventually(lambda: bool(seen))

        await first.ack(sync=True)
        [record] = await client.last(f"__acks.g.{stream}", n=1)
        assert AcksRecord.decode(record.value).snapshot.leased == {other.consumer_id: 5}
        with pytest.raises(AlreadySettled):
            await first.ack()
        with pytest.raises(UsageError, match="with nats"):
            second.transaction()
        await second.nack(0, error=ValueError("the oven is cold\udcff"))
        await third.reject("no such account")
        await whole.extend()
        await whole.nack(0, error=ValueError("cold " * 100))
        again, whole = sorted(await take(other, 2), key=lambda each: len(each.value))
        assert (again.value, again.attempt) == (b"1", 2)
        assert (whole.value, whole.attempt) == (large, 2)
        assert isinstance(again.error, FailedElsewhere)
        assert again.error.message == "ValueError: the oven is cold\\udcff"
        await again.ack()
        await eventually(lambda: owner.statistics().dead_letters == 1)
        [letter] = await client.last(dead, n=1)
        assert letter.headers["queue-error"] == b"Reject: no such account"

        await eventually(lambda: late.state.value == "expired")
        with pytest.raises(LeaseExpired):
            await late.ack()
        await whole.ack()
        await eventually(lambda: owner.statistics().acked == 5)
        assert sorted(seen) == [(b"3", 2), (b"hang", 1), (b"hang", 2)]
        assert owner.statistics().expired == 2
        await close([other, owner])
        await run


@pytest.mark.timeout(60)
async def test_members_that_close_give_back_what_they_have(
    client: Client, stream: str, real_server: LiftbridgeNode
) -> None:
    await publish(client, stream, 0, 4)
    async with members(client, stream, real_server.nats_url, 3, ack_wait=60) as queues:
        owner, leaver, other = queues
        held = await take(leaver, 2)
        [slow] = await take(other)
        await leaver.aclose()
        with pytest.raises(LeaseExpired):
            await held[0].ack()
        again = await take(owner, 3)
        assert sorted((each.message.offset, each.attempt) for each in again) == [
            (0, 1),
            (1, 1),
            (3, 1),
        ]
        with pytest.raises(UsageError, match="with nats"):
            again[0].transaction()  # not even the owner's, so a handler fails the first time
        for each in again:
            await each.ack()
        closing = asyncio.create_task(owner.aclose())
        await asyncio.sleep(0.1)
        assert not closing.done()  # it waits for the member that has a message of it
        await slow.ack()
        async with asyncio.timeout(BOUND):
            await closing
        await publish(client, stream, 0)
        [last] = await take(other)
        assert last.message.offset == 4
        await last.ack(sync=True)


async def test_leased_values_are_decoded_by_the_member_that_has_them(
    client: Client, stream: str, real_server: LiftbridgeNode
) -> None:
    dead = f"{stream}.dead"
    await client.create_stream(dead)
    orders = client.values(stream, JSON)
    await orders.publish({"number": 1})
    await client.publish(stream, b"no JSON")
    await orders.publish({"number": 2})
    seen: list[int] = []

    def handle(delivery: ValueDelivery[Any]) -> None:
        seen.append(delivery.value["number"])

    dead_letter = DeadLetter(dead)
    async with members(orders, stream, real_server.nats_url, dead_letter=dead_letter) as queues:
        owner, other = queues
        run = asyncio.create_task(other.run(handle))
        await eventually(lambda: len(seen) == 2 and owner.statistics().dead_letters == 1)
        await close([other, owner])
        await run
    assert seen == [1, 2]
    [letter] = await client.last(dead, n=1)
    assert letter.value == b"no JSON"
    assert letter.headers["queue-error"].startswith(b"UndecodableMessage: ")


async def test_members_share_what_transactions_have_committed(
    client: Client, stream: str, real_server: LiftbridgeNode
) -> None:
    async with client.producer().transaction() as transaction:
        await transaction.publish(stream, b"a1", b"key")
        await transaction.flush()
        await client.publish(stream, b"b")
        await transaction.publish(stream, b"x" * (2**20 - 1000))  # read by the member
        async with client.producer().transaction() as never:
            await never.publish(stream, b"never")
            await never.flush()
            never.abort()
    await client.publish(stream, b"c")
    committed: dict[str, Any] = {"committed": True}
    shown = [message async for message in client.read(stream, **committed)]
    assert [message.value[:2] for message in shown] == [b"b", b"a1", b"xx", b"c"]
    async with members(client, stream, real_server.nats_url, **committed) as (owner, other):
        leased = await take(other, 4)
        assert [each.message for each in leased] == shown
        for each in leased[::2]:
            await each.ack()
        await close([other, owner])
    async with client.queue(stream, group="g", options=QueueOptions(**committed)) as queue:
        again = await take(queue, 2)
        assert [(each.message, each.attempt) for each in again] == [(shown[1], 1), (shown[3], 1)]


async def test_a_partition_is_in_order_over_all_members(
    client: Client, stream: str, real_server: LiftbridgeNode
) -> None:
    running = 0
    done: list[tuple[int, int]] = []

    async def handle(delivery: Delivery) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.005)
        running -= 1
        if delivery.message.offset == 7 and delivery.attempt == 1:
            raise ValueError("the oven is cold")
        done.append((delivery.message.offset, delivery.attempt))

    settings: dict[str, Any] = {"order": Order.PARTITION}
    async with members(client, stream, real_server.nats_url, 3, **settings) as (owner, *others):
        runs = [asyncio.create_task(each.run(handle, concurrency=2)) for each in others]
        await publish(client, stream, 0, 20)
        await eventually(lambda: owner.statistics().acked == 20)
        assert all(each.statistics().borrowed for each in others)
        await close([*others, owner])
        await asyncio.gather(*runs)
    assert done == [(offset, 2 if offset == 7 else 1) for offset in range(20)]


async def test_leases_need_a_group_and_a_server(
    client: Client, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match="group"):
        client.queue(stream, options=QueueOptions(nats="nats://127.0.0.1:1"))
    with pytest.raises(InvalidRequest, match="address"):
        client.queue(stream, group="g", options=QueueOptions(nats=[]))
    queue = client.queue(stream, group="g", options=QueueOptions(nats="nats://127.0.0.1:1"))
    with pytest.raises(ConnectionFailed, match="no connection to NATS"):
        await queue.__aenter__()
    await queue.aclose()
    monkeypatch.setitem(sys.modules, "liftbridge_aio._runtime.nats_library", None)
    with pytest.raises(UsageError, match="pip install nats-py"):
        client.queue(stream, group="g", options=QueueOptions(nats="nats://127.0.0.1:1"))


async def test_the_example_of_the_guide_runs(
    client: Client, real_server: LiftbridgeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [each for each in blocks(GUIDE, "python") if each.setup == "nats"]
    code = "async def example(nats_url, servers):\n" + textwrap.indent(block.code, "    ")
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # noqa: S102
    try:
        async with asyncio.timeout(BOUND):
            await namespace["example"](real_server.nats_url, real_server.address)
    finally:
        await client.delete_stream("photos")
    said = capsys.readouterr().out
    acked = [int(count) for count in re.findall(r" acked=(\d+)", said)]
    assert sum(acked) >= 40
