"""A program with a database of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from liftbridge_aio import Client, Message, StartAt

from .program import PARTITIONS, STREAM, Orders, Program, Surroundings, new_client

SCHEMA: Final = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE booked (partition INTEGER, number INTEGER, value BLOB UNIQUE);
"""


class Overtaken(Exception):
    """Another process has booked what this one has read."""


class Booking(Program):
    """Books each order in SQLite, together with its offset, in a thread.

    Each order is booked once and in order, whenever the process is killed, and although it may run
    twice.
    """

    hosts = ("booker",)
    with_twins = hosts
    may_end_with = (Overtaken,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name, "books")

    async def prepare(self, client: Client) -> None:
        """Create the database."""
        with closing(sqlite3.connect(self._path)) as database:
            database.executescript(SCHEMA)

    async def work(self, host: str) -> None:
        """Read on where the database says, and book."""
        starts = await asyncio.to_thread(self._starts)
        async with (
            new_client(self.world) as client,
            client.subscribe(
                STREAM,
                partition=range(PARTITIONS),
                start={each: StartAt.offset(offset) for each, offset in starts.items()},
                resubscribe_timeout=None,
            ) as messages,
        ):
            async for message in messages:
                await asyncio.to_thread(self._book, message)
                self.seen[message.value] += 1

    def _starts(self) -> dict[int, int]:
        with closing(sqlite3.connect(self._path)) as database:
            return {each: _booked(database, each) for each in range(PARTITIONS)}

    def _book(self, message: Message) -> None:
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("BEGIN IMMEDIATE")
            if _booked(database, message.partition) != message.offset:
                raise Overtaken(str(message))
            row = message.partition, message.offset, message.value
            database.execute("INSERT INTO booked VALUES (?, ?, ?)", row)

    async def judge(self, client: Client) -> None:
        """Check that the books are the log."""
        with closing(sqlite3.connect(self._path)) as database:
            rows = [*database.execute("SELECT partition, number, value FROM booked")]
        books: dict[int, dict[int, bytes]] = {each: {} for each in range(PARTITIONS)}
        for partition, number, value in rows:
            books[partition][number] = value
        for partition, log in self.orders.log.items():
            assert books[partition].items() <= log.items()
            assert [*books[partition]] == [*range(len(books[partition]))]
        self._folder.cleanup()


def _booked(database: sqlite3.Connection, partition: int) -> int:
    """Return how many messages of a partition are booked."""
    query = "SELECT count(*) FROM booked WHERE partition = ?"
    [[count]] = database.execute(query, (partition,))
    return int(count)
