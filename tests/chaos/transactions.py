"""Transactions among the load of a run: a publisher of them, committed readers, and their judge."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from chaos.load import Load
from liftbridge_aio import Client, Isolation, LiftbridgeError, StartAt, StreamReset
from liftbridge_aio.transactions import CommitInDoubt, Producer, Transaction, TransactionAborted

STREAM: Final = "transactions"
PARTITIONS: Final = 2
SIZE: Final = 4
"""Messages of a transaction, to all partitions in turn."""
_PAUSE: Final = 0.1
_AGAIN: Final = 0.2


class Transactions:
    """Publishes transactions and single messages, and reads what is committed of them.

    Attributes:
        committed: Transactions, and single messages, that are committed.
        aborted: Transactions of which nothing may be shown.
    """

    def __init__(self, load: Load, writer: Client, readers: list[Client]) -> None:
        self._load = load
        self._writer = writer
        self.committed: list[int] = []
        self.aborted: set[int] = set()
        self.in_doubt = 0
        """How often it was unknown for a while if a commit is stored."""
        self.shown: dict[tuple[int, int], list[bytes]] = {
            (reader, partition): []
            for reader in range(len(readers))
            for partition in range(PARTITIONS)
        }
        """By reader and partition."""
        self._clients = readers
        self._readings: list[asyncio.Task[None]] = []
        self._stopped = False

    # At work

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return all that goes on at once."""
        return [self._publish_all(), *(self._follow(*each) for each in self.shown)]

    async def _publish_all(self) -> None:
        """Publish until nothing more is to be published; each transaction has an outcome."""
        number = 0
        async with self._writer.producer() as producer:
            while self._load.publishing:
                number += 1
                with suppress(LiftbridgeError):  # else its outcome is noted
                    await self._publish(producer, number)
                await asyncio.sleep(_PAUSE)

    async def _publish(self, producer: Producer, number: int) -> None:
        began = time.monotonic()
        self.aborted.add(number)  # until it is known that it is not
        transaction = producer.transaction()
        try:
            async with transaction:
                for each in range(SIZE):
                    value = b"%d/%d" % (number, each)
                    await transaction.publish(STREAM, value, partition=each % PARTITIONS)
        except CommitInDoubt:
            self.aborted.discard(number)
            self.in_doubt += 1
            await self._resume(transaction)
        except TransactionAborted as error:
            self._load.calls.failed("transaction", error)
            raise
        self.aborted.discard(number)
        self.committed.append(number)
        self._load.calls.ended("transaction", began, time.monotonic(), float("inf"))

    async def _resume(self, transaction: Transaction) -> None:
        while self._load.running:
            try:
                return await transaction.resume()
            except CommitInDoubt:
                await asyncio.sleep(_AGAIN)
        raise CommitInDoubt("it was in doubt until the end of the run")

    async def _follow(self, reader: int, partition: int) -> None:
        """Read what is committed until `stop`, from the start again where a reading ends."""
        shown = self.shown[reader, partition]
        while not self._stopped:
            reading = asyncio.create_task(self._read(reader, partition))
            self._readings.append(reading)
            await asyncio.wait([reading])
            self._readings.remove(reading)
            if not self._stopped:
                shown.clear()

    async def _read(self, reader: int, partition: int) -> None:
        what = f"committed reading {reader} of {STREAM}/{partition}"
        try:
            async with self._clients[reader].subscribe(
                *(STREAM, partition, StartAt.earliest()), isolation=Isolation.READ_COMMITTED
            ) as messages:
                async for message in messages:
                    self.shown[reader, partition].append(message.value)
        except LiftbridgeError as error:
            if not self._stopped:
                reset = (STREAM, partition) if isinstance(error, StreamReset) else None
                self._load.find(f"{what} ended with {error!r}", reset=reset)
                await asyncio.sleep(_AGAIN)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._load.find_untyped(what, error)

    def stop(self) -> None:
        """End the readings."""
        self._stopped = True
        for reading in self._readings:
            reading.cancel()

    # The end

    @property
    def behind(self) -> bool:
        """True if something committed is not shown yet."""
        if not self.committed:
            return False
        last = self.committed[-1]
        return any(
            values_of(last, partition)[-1] not in shown
            for (_, partition), shown in self.shown.items()
        )

    async def judge(self, client: Client) -> tuple[list[str], list[str]]:
        """Return what is wrong, and what the servers have lost.

        Raises:
            LiftbridgeError: the log could not be read.
        """
        log = {
            partition: {each.value async for each in client.read(STREAM, partition=partition)}
            for partition in range(PARTITIONS)
        }
        wrong, by_servers = [], []
        for (reader, partition), shown in self.shown.items():
            place = f"{STREAM}/{partition} (reader {reader})"
            expected = [each for one in self.committed for each in values_of(one, partition)]
            for value in sorted(set(expected) - set(shown)):
                if value in log[partition]:
                    wrong.append(f"{value!r} is committed and not shown: {place}")
                else:
                    by_servers.append(f"{value!r} was acked by all, and is lost: {place}")
            wrong += [
                f"{value!r} was shown {count} times: {place}"
                for value, count in Counter(shown).items()
                if count > 1
            ]
            hidden = {each for one in self.aborted for each in values_of(one, partition)}
            wrong += [
                f"{value!r} was aborted, and shown: {place}" for value in hidden.intersection(shown)
            ]
            known = [value for value in shown if value in set(expected)]
            if known != [value for value in expected if value in set(shown)]:
                wrong.append(f"the transactions are not shown in their order: {place}")
        return wrong, by_servers

    def last_words(self) -> list[str]:
        """Return what it says of itself where it cannot be judged."""
        return [self.text()]

    def text(self) -> str:
        """Return figures."""
        return (
            f"{len(self.committed)} committed, {len(self.aborted)} aborted, in doubt for a while:"
            f" {self.in_doubt}"
        )


def values_of(number: int, partition: int) -> list[bytes]:
    """Return the messages of a transaction in a partition."""
    return [b"%d/%d" % (number, each) for each in range(partition, SIZE, PARTITIONS)]
