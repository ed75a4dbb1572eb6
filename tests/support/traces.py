"""A small language for logs of several producers.

A word is one message: its producer (a letter), its clock, and what it is to a transaction: `o` for
outside, `c` for continue, `a` for an ack, `x` for flags that nobody knows. `A10c A11a` is a
transaction of producer A with one message, committed at clock 11. `-` is a message without clock.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from liftbridge_aio.transactions.core.sequencer import Outcome, Sequencer
from liftbridge_aio.transactions.core.uuid import NIL_UUID, Flags, build_uuid

JOURNAL = "test/journal"
FLAGS = {"o": Flags.OUTSIDE, "c": Flags.CONTINUE, "a": Flags.ACK, "x": 0x100}
LENGTH = 100
GAP = 2  # unused offsets between messages: the next one never begins where the last one ended


class Record(NamedTuple):
    """A message of a log."""

    word: str
    uuid: bytes
    begin: int
    end: int


def producer(letter: str) -> bytes:
    """Return the producer id of a letter."""
    return b"\x01prod" + letter.encode()


def uuid_of(word: str) -> bytes:
    """Return the UUID of a word."""
    if word == "-":
        return NIL_UUID
    match = re.fullmatch(r"([A-Z])(\d+)([ocax])", word)
    assert match, word
    return build_uuid(producer(match[1]), int(match[2]), FLAGS[match[3]])


class Log:
    """A log that grows by words, and what it is read with."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, words: str) -> list[Record]:
        """Append the messages of some words and return them."""
        first = len(self.records)
        for word in words.split():
            begin = len(self.records) * (LENGTH + GAP)
            self.records.append(Record(word, uuid_of(word), begin, begin + LENGTH))
        return self.records[first:]

    def read(self, begin: int, end: int) -> list[Record]:
        """Return the messages from one offset to before another."""
        return [it for it in self.records if it.begin >= begin and it.end <= end]

    def begin_of(self, word: str) -> int:
        """Return the offset of the newest message that is this word."""
        return next(it.begin for it in reversed(self.records) if it.word == word)


class Reader:
    """A sequencer that follows a log and notes what it does."""

    def __init__(self, log: Log, sequencer: Sequencer[str] | None = None) -> None:
        self.log = log
        self.sequencer: Sequencer[str] = sequencer or Sequencer()
        self.outcomes: list[Outcome] = []
        self.replays: list[tuple[int, int]] = []

    def queue(self, record: Record) -> Outcome:
        """Queue a message of the log."""
        outcome = self.sequencer.queue(
            JOURNAL, record.uuid, record.begin, record.end, record.word, LENGTH
        )
        self.outcomes.append(outcome)
        return outcome

    def deliver(self) -> list[str]:
        """Return the words that are committed by now, read again where necessary."""
        delivered = []
        if self.outcomes[-1] is Outcome.ACK_COMMIT_REPLAY:
            _, begin, end = self.sequencer.replay_range()
            self.replays.append((begin, end))
            delivered += [
                it.word
                for it in self.log.read(begin, end)
                if self.sequencer.replay(JOURNAL, it.uuid, it.begin, it.end, it.word)
            ]
            self.sequencer.end_replay()
        while found := self.sequencer.step():
            delivered.append(found.message)
        return delivered

    def follow(self, words: str) -> str:
        """Append words to the log, read them, and return the words that are delivered."""
        delivered = []
        for record in self.log.append(words):
            self.queue(record)
            delivered += self.deliver()
        return " ".join(delivered)


def read(words: str, sequencer: Sequencer[str] | None = None) -> str:
    """Return the words that a reader of a new log with these words delivers."""
    return Reader(Log(), sequencer).follow(words)
