"""Committed readings, producers and transactions."""

from __future__ import annotations

from typing import Final

from liftbridge_aio.transactions import Producer
from matrix.cells import ALL, NOTHING, Cell, On, ended, read_to_end, seen, until_probes
from matrix.operations import operation
from matrix.publishing import ACKED
from matrix.reading import EARLIEST, ONE

TABLE: Final = "Transactions"
COMMITTED: Final = True
VALUES: Final = (b"first of a transaction", b"second of a transaction")


@operation(TABLE, "committed read()", on=On.SHARED)
async def read_committed(cell: Cell) -> str:
    reading = cell.user.read(cell.stream, partition=0, committed=COMMITTED)
    return seen(cell, [message async for message in reading], start=ONE)


@operation(TABLE, "committed_range()", on=On.SHARED)
async def read_a_range(cell: Cell) -> str:
    reading = cell.user.committed_range(
        cell.stream, partition=0, start=1, end=max(cell.end_of(), 1)
    )
    return seen(cell, [message async for message in reading], start={0: 1})


@operation(TABLE, "committed, from earliest")
async def follow_committed(cell: Cell) -> str:
    async with cell.user.subscribe(
        cell.stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as reading:
        result = await until_probes(cell, reading, start=ONE)
    return ended(result, reading.end_reason)


@operation(TABLE, "arises meanwhile, committed", midway=True)
async def follow_committed_through(cell: Cell) -> str:
    async with cell.user.subscribe(
        cell.stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as reading:
        cell.begun.set()
        first = await read_to_end(cell, reading)
        await cell.until_arisen()
        result = await until_probes(cell, reading, start={0: first})
    return ended(result, reading.end_reason)


@operation(TABLE, "publish by a producer")
async def publish_by_a_producer(cell: Cell) -> str:
    """It may be sent again, so its offset is not always the next."""
    ack = await cell.user.producer().publish(cell.stream, VALUES[0], partition=0)
    return ACKED if ack.offset >= cell.end_of() else f"acked at {ack.offset}"


async def committed(cell: Cell) -> str:
    """Say how much of the transaction a committed reading shows."""
    reading = cell.user.read(cell.stream, partition=0, committed=COMMITTED, unpause=True)
    found = [message.value async for message in reading if message.value in VALUES]
    shown = {(): NOTHING, VALUES: ALL}.get(tuple(found), f"{found}")
    return f"committed, {shown}"


async def publish_both(cell: Cell, producer: Producer) -> None:
    async with producer.transaction() as transaction:
        for value in VALUES:
            await transaction.publish(cell.stream, value, partition=0)


@operation(TABLE, "transaction")
async def transaction(cell: Cell) -> str:
    await publish_both(cell, cell.user.producer())
    return await committed(cell)


@operation(TABLE, "arises in a transaction", midway=True)
async def transaction_in_the_middle(cell: Cell) -> str:
    cell.begun.set()
    await cell.filled.wait()
    async with cell.user.producer().transaction() as transaction:
        for value in VALUES:
            await transaction.publish(cell.stream, value, partition=0)
        await transaction.flush()
        await cell.until_arisen()
    return await committed(cell)
