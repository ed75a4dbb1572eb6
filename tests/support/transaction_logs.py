"""Logs of transactions in words, and what a committed reading shows of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

from liftbridge_aio import Client
from liftbridge_aio.model import TRANSACTION_HEADERS, UUID_HEADER, OutgoingMessage, Record
from liftbridge_aio.transactions.core.uuid import UUID_BYTES, Flags, build_uuid
from liftbridge_aio.transactions.core.visibility import (
    AckEntry,
    Event,
    Follower,
    Replay,
    Row,
)
from liftbridge_aio.transactions.log_format import ACK_HEADERS, ack_values

BASE = 160  # clocks are never 0
STEP = 16  # as producers have it; clocks between these have a counter
FLAGS = {"c": Flags.CONTINUE, "o": Flags.OUTSIDE}


def producer(letter: str) -> bytes:
    return b"\x01prod" + letter.encode()


def log_of(words: str, step: int = STEP) -> list[Event[str]]:
    """Return a log: `A3c` continues a transaction, `A3o` is of none, `-` is plain.

    `A5/2/1` is an ack at clock 5 of a transaction that began at offset 2, after the commit of
    clock 1; `A5/2/1!` a final one; `A5/2/1+B7/3/0` is one ack of two producers.
    """
    events = []
    for offset, word in enumerate(words.split()):
        uuid, acks = None, []
        if "/" in word:
            for part in word.split("+"):
                clock, begin, previous = part[1:].rstrip("!").split("/")
                acks.append(
                    AckEntry(
                        producer(part[0]),
                        BASE + step * int(clock),
                        int(begin),
                        BASE + step * int(previous),
                        part[-1] == "!",
                    )
                )
        elif word != "-":
            uuid = build_uuid(producer(word[0]), BASE + step * int(word[1:-1]), FLAGS[word[-1]])
        events.append(Event(offset, word, uuid, tuple(acks)))
    return events


def followed(
    log: list[Event[str]], follower: Follower[str] | None = None, start: int = 0
) -> list[Row[str]]:
    """Return what a follower shows, which takes messages of producers by runs."""
    follower = follower or Follower()
    rows: list[Row[str]] = []
    for is_run, events in itertools.groupby(
        log[start:], lambda each: not each.acks and len(each.uuid or b"") == UUID_BYTES
    ):
        if is_run:
            offsets, messages, uuids, _ = zip(*events, strict=True)
            shown = follower.feed_run(uuids, offsets, messages)
            rows += [
                Row(each, 0, each, log[each].message) for each in (shown.offsets if shown else ())
            ]
            continue
        for event in events:
            for found in follower.feed(event):
                if isinstance(found, Replay):
                    for each in log[found.entry.begin : found.position]:
                        found.feed(each)
                    rows += found.rows()
                else:
                    rows.append(found)
    return rows


class Range:
    """The model: what a reader shows of positions from `start` to before `end`, by the log alone.

    Feed it the messages from `first` to before `end`, then those of `spans`, in order.
    """

    def __init__(self, start: int, end: int, look_back: int = 0) -> None:
        """Choose the range.

        Args:
            start: the first position.
            end: the one after the last.
            look_back: offsets before the start whose committed single messages are recognised if
                they are repeated.
        """
        self.start = start
        self.end = end
        self.first = max(0, start - look_back)
        self._rows: list[Row[str]] = []
        self._replays: list[Replay[str]] = []
        self._outside: Follower[str] = Follower(max_messages=1, max_producers=2**62)

    def feed(self, event: Event[str]) -> None:
        """Take the next message from `first` to before `end`."""
        for found in self._outside.feed(event):
            if event.offset < self.start:
                continue
            if isinstance(found, Replay):
                self._replays.append(found)
            else:
                self._rows.append(found)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Ranges of offsets, each up to before the second, that are to be fed to `replay`."""
        spans: list[tuple[int, int]] = []
        for replay in sorted(self._replays, key=lambda each: each.entry.begin):
            begin, end = replay.entry.begin, replay.position
            if spans and begin <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((begin, end))
        return spans

    def replay(self, event: Event[str]) -> None:
        """Take the next message of `spans`."""
        for replay in self._replays:
            if replay.entry.begin <= event.offset < replay.position:
                replay.feed(event)

    def rows(self) -> list[Row[str]]:
        """Return what is shown, in order."""
        shown = [row for replay in self._replays for row in replay.rows()]
        return sorted([*self._rows, *shown], key=lambda row: row[:3])


def range_of(log: list[Event[str]], start: int, end: int, look_back: int = 0) -> list[Row[str]]:
    """Return what the pure rule shows of a range."""
    reader = Range(start, end, look_back)
    for event in log[reader.first : end]:
        reader.feed(event)
    for begin, until in reader.spans:
        for event in log[begin:until]:
            reader.replay(event)
    return reader.rows()


def shown(rows: Iterable[Row[str]]) -> str:
    return " ".join(row.message for row in rows)


def records_of(log: list[Event[str]]) -> list[Record]:
    """Return what is to be published for a log; its offsets must be those of the partition."""
    records = []
    for event in log:
        if event.acks:
            [value] = ack_values(event.acks)
            records.append(Record(value, headers=ACK_HEADERS))
        else:
            headers = {"word": b"yes"}
            if event.uuid is not None:
                headers[UUID_HEADER] = event.uuid
            records.append(Record(event.message.encode(), headers=headers))
    return records


async def publish_own(client: Client, message: OutgoingMessage) -> int:
    """Publish a message with headers of this package, and return its offset."""
    ack = await (await client._living.submit(message))
    assert ack is not None
    return ack.offset


async def publish_records(client: Client, stream: str, records: Iterable[Record]) -> list[int]:
    """Publish records of `records_of`, and return their offsets."""
    offsets = []
    for record in records:
        headers = dict(record.headers or {})
        own = {name: headers.pop(name) for name in TRANSACTION_HEADERS & headers.keys()}
        message = OutgoingMessage(stream, record.value, record.key, headers, record.partition)
        message.own_headers = own
        offsets.append(await publish_own(client, message))
    return offsets


class Producers:
    """Producers that publish, repeat, commit, roll back, crash, and come back as zombies."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.words: list[str] = []
        self.clock = dict.fromkeys("ABC", 0)
        self.begin = dict.fromkeys("ABC", -1)
        self.committed = dict.fromkeys("ABC", 0)

    def write(self) -> None:
        name, chance = self.chance.choice("ABC"), self.chance
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                if self.begin[name] < 0:
                    self.begin[name] = len(self.words)
                self.words.append(f"{name}{self.tick(name)}c")
            case 4 | 5:
                self.words.append(self.commit(name))
            case 6:
                both = [self.commit(each) for each in "AB"]
                self.words.append("+".join(both))
            case 7:  # a rollback, by itself or by an operator
                self.words.append(
                    f"{name}{self.committed[name]}/{self.begin[name]}/{self.committed[name]}"
                    + chance.choice(["", "!"])
                )
                if chance.random() < 0.7:  # else the producer has not heard of it
                    self.begin[name] = -1
            case 8:
                self.words.append("-")
            case 9:
                self.words.append(f"{name}{self.tick(name)}o")
                self.begin[name] = -1
            case _:  # anything again
                if self.words:
                    self.words.append(chance.choice(self.words[-12:]))

    def tick(self, name: str) -> int:
        self.clock[name] += self.chance.randrange(1, 3)
        return self.clock[name]

    def commit(self, name: str) -> str:
        clock = self.tick(name) - (self.chance.random() < 0.2)
        word = f"{name}{clock}/{self.begin[name]}/{self.committed[name]}"
        self.begin[name], self.committed[name] = -1, clock
        return word
