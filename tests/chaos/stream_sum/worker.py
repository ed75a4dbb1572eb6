"""The chunker and the summer: `python -m chaos.stream_sum.worker ROLE WAY SERVERS [LEDGER]`.

They end by an error where they cannot go on; whoever started them starts them again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import sys
import zlib
from pathlib import Path
from typing import Final, TextIO

from chaos.stream_sum.judge import chunk_of, parse_chunk, parse_sum
from liftbridge_aio import (
    ALL_PARTITIONS,
    AckPolicy,
    Client,
    Isolation,
    Message,
    Retry,
    StartAt,
)
from liftbridge_aio.transactions import (
    CheckpointStream,
    ClaimedLog,
    CommitInDoubt,
    Producer,
    ProducerFenced,
    Transaction,
    TransactionAborted,
)
from liftbridge_aio.transactions.core.records import Kind, Mark

CHUNKS: Final = "chunks"
SUMS: Final = "sums"
PARTITIONS: Final = 2
LENGTH: Final = 20
"""Chunks of a stream."""
AT_A_TIME: Final = 6
"""Streams that are written at a time."""
ENTERED: Final = "entered"
"""What a summer prints when it has taken over."""
FENCED: Final = "fenced"
"""What a summer prints at its end if another one has taken over."""

EXACTLY_ONCE: Final = "exactly-once"
PLAIN: Final = "plain"
UNFENCED: Final = "unfenced"

_PAUSE: Final = 0.01
_RETRY: Final = Retry(attempts=30)


class Chunker:
    """Writes streams of chunks until it is told to stop."""

    def __init__(self, client: Client, producer: Producer | None, ledger: TextIO) -> None:
        self._client = client
        self._producer = producer
        self._ledger = ledger
        self._stopping = False

    def stop(self) -> None:
        """Begin no more streams."""
        self._stopping = True

    async def run(self) -> None:
        """Write streams; half of them one by one, half of them in transactions."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_A_TIME):
                group.create_task(self._write(in_transactions=bool(number % 2)))

    async def _write(self, *, in_transactions: bool) -> None:
        while not self._stopping:
            stream = secrets.token_hex(4)
            partition = int(stream, 16) % PARTITIONS
            chunks, crc = [], 0
            for number in range(LENGTH):
                value, crc = chunk_of(stream, number, crc, secrets.token_hex(20).encode())
                chunks.append(value)
            if self._producer is not None and in_transactions:
                if not await self._write_transaction(self._producer, chunks, partition):
                    continue
                for value in chunks:
                    self._note(value)
            else:
                for value in chunks:
                    await self._publish(value, partition)
                    self._note(value)
                    await asyncio.sleep(_PAUSE)

    async def _publish(self, value: bytes, partition: int) -> None:
        if self._producer is not None:
            await self._producer.publish(CHUNKS, value, partition=partition)
        else:
            await self._client.publish(
                CHUNKS, value, partition=partition, ack_policy=AckPolicy.ALL, retry=_RETRY
            )

    async def _write_transaction(
        self, producer: Producer, chunks: list[bytes], partition: int
    ) -> bool:
        try:
            async with in_full(producer.transaction()) as transaction:
                for value in chunks:
                    await transaction.publish(CHUNKS, value, partition=partition)
                    await asyncio.sleep(_PAUSE)
        except TransactionAborted:
            return False
        return True

    def _note(self, value: bytes) -> None:
        self._ledger.write(json.dumps(parse_chunk(value)[0]) + "\n")
        self._ledger.flush()


class in_full:  # noqa: N801 - reads as a function
    """Commit a transaction at the end of the block, however often that takes."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def __aenter__(self) -> Transaction:
        return await self._transaction.__aenter__()

    async def __aexit__(self, *raised: object) -> None:
        try:
            await self._transaction.__aexit__(*raised)  # type: ignore[arg-type]
        except CommitInDoubt:
            await self._resume()

    async def _resume(self) -> None:
        while True:
            try:
                return await self._transaction.resume()
            except CommitInDoubt:
                await asyncio.sleep(0.2)


class Sums:
    """The CRC of each stream, as far as it is summed up.

    Args:
        strict: end by an error where a chunk is not the next one.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.known: dict[str, tuple[int, int]] = {}

    def note(self, message: Message) -> None:
        """Take a sum that was written before."""
        stream, number, crc = parse_sum(message.value)
        self.known[stream] = number, crc

    def add(self, batch: list[Message]) -> list[tuple[bytes, int]]:
        """Sum chunks up; returns what is to be written, and where to.

        Raises:
            RuntimeError: they are not what follows: one is lost, doubled or out of order.
        """
        sums = []
        for message in batch:
            (stream, number, crc), data = parse_chunk(message.value)
            last, before = self.known.get(stream, (-1, 0))
            found = zlib.crc32(data, before)
            if self._strict and (number, crc) != (last + 1, found):
                text = f"{stream}: chunk {number} comes after {last}"
                print(text, flush=True)  # noqa: T201 - for the one who started this
                raise RuntimeError(text)
            self.known[stream] = number, found
            sums.append((json.dumps([stream, number, found]).encode(), message.partition))
        return sums


async def sum_up(client: Client, *, strict: bool) -> None:
    """Sum up exactly once."""
    async with client.producer("summer", store=CheckpointStream("store")) as producer:
        sums = Sums(strict=strict)
        await _read_known(client, sums)
        print(ENTERED, flush=True)  # noqa: T201 - same
        async with client.subscribe(
            *(CHUNKS, ALL_PARTITIONS, StartAt.earliest()),
            positions=producer,
            isolation=Isolation.READ_COMMITTED,
        ) as chunks:
            async for batch in chunks.batches(max=50, wait=0.05):
                before = dict(sums.known)
                try:
                    async with in_full(producer.transaction(chunks)) as transaction:
                        for value, partition in sums.add(batch):
                            await transaction.publish(SUMS, value, partition=partition)
                except TransactionAborted:
                    sums.known = before


async def _read_known(client: Client, sums: Sums) -> None:
    async with client.read(
        SUMS, partition=ALL_PARTITIONS, isolation=Isolation.READ_COMMITTED
    ) as reading:
        async for message in reading:
            sums.note(message)


async def sum_up_plainly(client: Client) -> None:
    """Sum up with cursors, as is usual: at least once."""
    print(ENTERED, flush=True)  # noqa: T201 - same

    async def one(partition: int) -> None:
        last = await client.fetch_cursor("summer", CHUNKS, partition)
        start = StartAt.earliest() if last is None else StartAt.offset(last + 1)
        async with client.subscribe(CHUNKS, partition, start) as chunks:
            async for batch in chunks.batches(max=50, wait=0.05):
                for message in batch:
                    value = json.dumps(parse_chunk(message.value)[0]).encode()
                    await client.publish(
                        *(SUMS, value),
                        partition=partition,
                        ack_policy=AckPolicy.ALL,
                        retry=_RETRY,
                    )
                await client.set_cursor("summer", CHUNKS, partition, batch[-1].offset)

    async with asyncio.TaskGroup() as group:
        for partition in range(PARTITIONS):
            group.create_task(one(partition))


def take_the_fence_out() -> None:
    """Let those who claim a log not be noticed by whoever wrote before."""
    mark_of = ClaimedLog._mark

    def mark(self: ClaimedLog, message: Message) -> Mark | None:
        found = mark_of(self, message)
        return None if found is not None and found.kind is Kind.CLAIM else found

    ClaimedLog._mark = mark  # type: ignore[method-assign]


async def work(role: str, way: str, servers: list[str], ledger: Path) -> None:
    """Be a chunker or a summer."""
    async with Client(*servers) as client:
        if role == "summer":
            if way == PLAIN:
                await sum_up_plainly(client)
            else:
                await sum_up(client, strict=way != UNFENCED)
            return
        with ledger.open("a") as file:
            producer = None if way == PLAIN else client.producer()
            chunker = Chunker(client, producer, file)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, chunker.stop)
            await chunker.run()


def main() -> None:
    """Run."""
    role, way, servers, ledger = sys.argv[1:5]
    if way == UNFENCED:
        take_the_fence_out()
    try:
        asyncio.run(work(role, way, servers.split(","), Path(ledger)))
    except* ProducerFenced:
        print(FENCED, flush=True)  # noqa: T201 - for the one who started this


if __name__ == "__main__":
    main()
