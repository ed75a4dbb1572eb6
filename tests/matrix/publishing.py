"""Each kind of publish."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Final

from liftbridge_aio import Ack, AckPolicy, Record, Retry
from liftbridge_aio.nats import NatsPublisher
from liftbridge_aio.partitioner import by_key
from liftbridge_aio.wire import proto
from matrix.cells import Cell
from matrix.operations import operation
from support.raw import FROM_EARLIEST, TO_LATEST, Ended

TABLE: Final = "Publishing"
VALUE: Final = b"published by the cell"
ACKED: Final = "acked"
KEYS: Final = (b"key-0", b"key-1", b"key-2", b"key-3")


def acked(cell: Cell, *acks: Ack | None) -> str:
    """Say whether these are the acks of the next messages of partition 0."""
    offsets = [ack and ack.offset for ack in acks]
    wanted = list(range(cell.end_of(), cell.end_of() + len(acks)))
    return ACKED if offsets == wanted else f"acked at {offsets} instead of {wanted}"


@operation(TABLE, "publish")
async def publish(cell: Cell) -> str:
    return acked(cell, await cell.user.publish(cell.stream, VALUE))


@operation(TABLE, "publish_async")
async def publish_async(cell: Cell) -> str:
    futures = [await cell.user.publish_async(cell.stream, VALUE) for _ in range(3)]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return acked(cell, *[outcome for outcome in outcomes if isinstance(outcome, Ack)])


@operation(TABLE, "publish_many")
async def publish_many(cell: Cell) -> str:
    return acked(cell, *await cell.user.publish_many(cell.stream, [VALUE, Record(VALUE)]))


@operation(TABLE, "with a key", midway=True)
async def publish_by_key(cell: Cell) -> str:
    """Publish until all keys are where a client that has just connected would put them."""
    cell.begun.set()
    await cell.filled.wait()
    if any(cell.place.logs.values()):
        for key in KEYS:
            await cell.user.publish(cell.stream, VALUE, key)
    await cell.until_arisen()
    for number in itertools.count():
        values = {key: b"%s %d" % (key, number) for key in KEYS}
        for key, value in values.items():
            await cell.user.publish(cell.stream, value, key, retry=Retry(attempts=50))
        metadata = await cell.stage.director.fetch_metadata([cell.stream])
        count = len(metadata.streams[cell.stream].partitions)
        found = [
            await _newest_values(cell, by_key(cell.stream, key, value, count))
            for key, value in values.items()
        ]
        if all(value in values for value, values in zip(values.values(), found, strict=True)):
            return ACKED
        await asyncio.sleep(0.05)
    raise AssertionError


async def _newest_values(cell: Cell, partition: int) -> list[bytes]:
    where = {"partition": partition, "resume": True, "read_isr_replica": True}
    messages: list[proto.Message] = []
    with suppress(Ended, TimeoutError):  # the server is away, or cleans the log
        async with (
            asyncio.timeout(2),
            cell.stage.wire.subscribe(
                cell.stream, **where, **FROM_EARLIEST, **TO_LATEST
            ) as subscription,
        ):
            messages, _ = await subscription.rest()
    return [message.value for message in messages]


@operation(TABLE, "ack by all")
async def publish_to_all_replicas(cell: Cell) -> str:
    return acked(cell, await cell.user.publish(cell.stream, VALUE, ack_policy=AckPolicy.ALL))


@operation(TABLE, "without ack")
async def publish_without_ack(cell: Cell) -> str:
    await cell.user.publish_unacked(cell.stream, VALUE)
    await cell.user.flush()
    return "flushed"


@operation(TABLE, "expected offset", settings={"optimistic_concurrency_control": True})
async def publish_at_an_offset(cell: Cell) -> str:
    end = cell.end_of()
    return acked(cell, await cell.user.publish(cell.stream, VALUE, expected_offset=end))


@operation(TABLE, "with retry")
async def publish_again(cell: Cell) -> str:
    ack = await cell.user.publish(cell.stream, VALUE, retry=Retry(attempts=50))
    return ACKED if ack.offset >= cell.end_of() else f"acked at {ack.offset}"


@operation(TABLE, "to the subject")
async def publish_to_subject(cell: Cell) -> str:
    return acked(cell, await cell.user.publish_to_subject(cell.stream, VALUE))


@operation(TABLE, "over NATS")
async def publish_over_nats(cell: Cell) -> str:
    assert cell.stage.world.nats_url is not None
    async with NatsPublisher(cell.stage.world.nats_url) as publisher:
        return acked(cell, await publisher.publish(cell.stream, VALUE))
