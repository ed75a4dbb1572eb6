"""`liftbridge-aio queue`: what is shown of queues, and dead letters that are requeued."""

from __future__ import annotations

import asyncio
import re

from cli.conftest import Run
from liftbridge_aio import Client
from liftbridge_aio.queue import DeadLetter, QueueOptions
from support.faults import eventually


async def work(address: str, stream: str) -> None:
    """Ack, nack and reject some messages of a queue."""
    async with Client(address) as client:
        await client.create_stream(f"{stream}.dead")
        for value in (b"good", b"late", b"bad", b"good"):
            await client.publish(stream, value, b"key", {"colour": b"red"}, partition=1)
        async with client.queue(
            stream, group="billing", options=QueueOptions(dead_letter=DeadLetter(f"{stream}.dead"))
        ) as queue:
            for _ in range(4):
                delivery = await anext(queue)
                if delivery.value == b"late":
                    await delivery.nack(60)
                elif delivery.value == b"bad":
                    await delivery.reject("unwanted")
                else:
                    await delivery.ack()
            await eventually(lambda: queue.statistics().dead_letters == 1)


def test_queues_are_shown_and_dead_letters_requeued(
    run_on_each: Run, address: str, stream: str
) -> None:
    run_on_each("streams", "create", stream, "--partitions", "2")
    asyncio.run(work(address, stream))

    [row] = run_on_each("queue", "list", stream, "--json").json
    assert row == {
        "group": "billing",
        "stream": stream,
        "partition": 1,
        "first_unsettled": 1,
        "lag": 3,
        "window": 3,
        "unsettled": 1,
        "attempts": 1,
        "leased": {},
        "member": "released",
    }
    listed = run_on_each("queues", "list").out
    assert re.search(rf"│ billing +│ {re.escape(stream)} ", listed)
    assert run_on_each("queue", "list", "--group", "other", "--json").json == []

    dead = f"{stream}.dead"
    counted = run_on_each("queue", "requeue", dead, "--dry-run")
    assert counted.err == f"1 messages would be requeued to {stream}\n"
    assert run_on_each("queue", "requeue", dead, "--group", "other", "--json").json == {}
    assert run_on_each("queue", "requeue", dead, "--json").json == {stream: 1}
    again = run_on_each("queue", "requeue", dead)
    assert again.err == f"no dead letters in {dead} that were not requeued before\n"
    read = run_on_each("tail", stream, "--from", "last:1", "--no-follow", "--json").out
    assert '"bad"' in read
    assert "queue-" not in read
    assert "colour" in read
