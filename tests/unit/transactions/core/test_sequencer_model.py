"""Random logs: a sequencer of bounded size, restarted anywhere, beside a model that keeps all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from liftbridge_aio.transactions.core.sequencer import Sequencer
from liftbridge_aio.transactions.core.uuid import parse_uuid
from support.examples import examples
from support.traces import LENGTH, Log, Reader, Record


class Model:
    """What a reader without bounds delivers: for each producer all of its open messages."""

    def __init__(self) -> None:
        self.low: dict[bytes, int] = {}
        self.open: dict[bytes, list[tuple[int, str]]] = defaultdict(list)

    def read(self, record: Record) -> list[str]:
        """Return the words that the next message of the log commits."""
        producer, clock, _ = parse_uuid(record.uuid)
        if not clock:
            return [record.word]
        low, waiting = self.low.setdefault(producer, clock - 1), self.open[producer]
        match record.word[-1]:
            case "c":
                if clock > max([low, *(it for it, _ in waiting)]):
                    waiting.append((clock, record.word))
                return []
            case "a":
                delivered = [] if clock <= low else [it for it in waiting if it[0] <= clock]
                if clock > low and (not delivered or delivered[-1][0] < clock):
                    delivered.append((clock, record.word))
            case _:
                if clock <= low:
                    return []
                delivered = [(clock, record.word)]
        self.low[producer] = clock
        waiting.clear()
        return [word for _, word in delivered]


class Producers:
    """What three producers write, one byte for each message.

    They repeat only messages that stand in the log already, as a publisher does that got no
    answer: of acks the newest one, and nothing that was rolled back.
    """

    def __init__(self) -> None:
        self.clock = dict.fromkeys("ABC", 0)
        self.acked = dict.fromkeys("ABC", 0)
        self.sent: dict[str, list[str]] = {name: [] for name in "ABC"}

    def write(self, command: int) -> str:
        """Return the word of a command."""
        command, who = divmod(command, 3)
        name = "ABC"[who]
        command, what = divmod(command, 8)
        clock, acked = self.clock[name], self.acked[name]
        match what:
            case 0 | 1 | 2:
                return self.send(name, clock + 1 + command % 2, "c")
            case 3:
                return self.send(name, clock + 1, "a")
            case 4:
                self.forget_open(name)
                return f"{name}{acked}a" if acked else "-"
            case 5 if acked > 2:
                self.clock[name] = self.acked[name] = acked - 2
                self.sent[name].clear()
                return f"{name}{acked - 2}a"
            case 6 if clock > acked + 1:
                return self.send(name, acked + 1 + command % 2, "a")
            case 7 if command % 3 == 0:
                return self.send(name, clock + 1, "o")
            case _ if self.sent[name]:
                word = self.sent[name][-1 - command % len(self.sent[name])]
                if word[-1] == "a":  # which rolls back what is open
                    self.forget_open(name)
                return word
            case _:
                return "-"

    def forget_open(self, name: str) -> None:
        acked = self.acked[name]
        self.sent[name] = [it for it in self.sent[name] if int(it[1:-1]) <= acked]

    def send(self, name: str, clock: int, what: str) -> str:
        word = f"{name}{clock}{what}"
        self.clock[name] = max(clock, self.clock[name])
        if what != "c":
            self.clock[name] = self.acked[name] = clock
            self.sent[name] = [
                it for it in self.sent[name] if int(it[1:-1]) <= clock and it[-1] != "a"
            ]
        self.sent[name].append(word)
        return word


def stepped(reader: Reader) -> Iterator[str]:
    """Yield the words that are committed, one by one."""
    it = reader.sequencer
    if reader.outcomes[-1].name == "ACK_COMMIT_REPLAY":
        journal, begin, end = it.replay_range()
        for record in reader.log.read(begin, end):
            if it.replay(journal, record.uuid, record.begin, record.end, record.word):
                yield record.word
        it.end_replay()
    while found := it.step():
        yield found.message


@settings(max_examples=examples(500), deadline=None)
@given(st.binary(min_size=20, max_size=80), st.integers(1, 12), st.booleans())
def test_random_logs(commands: bytes, max_messages: int, bytes_too: bool) -> None:
    max_bytes = LENGTH * max_messages // 2 + 1 if bytes_too else 1 << 20
    log, model, producers = Log(), Model(), Producers()

    def restarted(reader: Reader | None = None) -> Reader:
        offsets, states = reader.sequencer.checkpoint() if reader else ({}, [])
        return Reader(
            log, Sequencer(offsets, states, max_messages=max_messages, max_bytes=max_bytes)
        )

    reader = restarted()
    for command in commands:
        (record,) = log.append(producers.write(command))
        expected = model.read(record)
        reader.queue(record)
        if command % 7:
            assert list(stepped(reader)) == expected
        else:  # it stops at a message, which comes again after the restart
            got = list[str]()
            for word in stepped(reader):
                if len(got) == command % 5:
                    reader = restarted(reader)
                    reader.queue(record)
                    got += stepped(reader)
                    break
                got.append(word)
            assert got == expected
        if command % 5 == 0:
            reader = restarted(reader)
        assert reader.sequencer.offsets.get("test/journal") == record.end
