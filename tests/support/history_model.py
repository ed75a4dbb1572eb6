"""Runs of a log that does what it promises, to make histories of and to spoil."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from hypothesis import strategies as st

from liftbridge_aio.testing import Event, EventKind, Guarantee, History

READERS = ("whole", "partial", "a", "b")
GROUPS = {"a": "group", "b": "group"}


Fields: TypeAlias = tuple[EventKind, str, int, bytes, bytes | None]
"""An event without its time: kind, actor, partition, value, key."""


@dataclass(frozen=True)
class Send:
    """One publish, what became of it and whether it is stored."""

    producer: str
    partition: int
    value: bytes
    outcome: EventKind | None
    stored: bool
    key: bytes | None


@dataclass
class Run:
    """The messages that were sent, and those delivered to each reader by partition."""

    sends: list[Send] = field(default_factory=list)
    given: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    finished: set[tuple[str, int]] = field(default_factory=set)
    more: list[Event] = field(default_factory=list)

    def of(self, partition: int, *outcomes: EventKind) -> list[Send]:
        return [
            send for send in self.sends if send.partition == partition and send.outcome in outcomes
        ]

    def acked_by(self, producer: str, partition: int) -> list[bytes]:
        acked = self.of(partition, EventKind.ACKED)
        return [send.value for send in acked if send.producer == producer]

    def events(self, random: Random) -> list[Event]:
        """Everything, each actor's events in its order, the actors in any."""
        queues: list[list[Fields]] = []
        for producer in sorted({send.producer for send in self.sends}):
            of_producer = [send for send in self.sends if send.producer == producer]
            queues.append(
                [(EventKind.SENT, producer, s.partition, s.value, s.key) for s in of_producer]
            )
            outcomes: list[Fields] = [
                (s.outcome, producer, s.partition, s.value, None)
                for s in of_producer
                if s.outcome is not None
            ]
            random.shuffle(outcomes)
            queues.append(outcomes)
        keys = {send.value: send.key for send in self.sends}
        for (reader, partition), values in self.given.items():
            queue: list[Fields] = [
                (EventKind.DELIVERED, reader, partition, value, keys.get(value)) for value in values
            ]
            if (reader, partition) in self.finished:
                queue.append((EventKind.FINISHED, reader, partition, b"", None))
            queues.append(queue)
        return [*_interleaved(queues, random), *self.more]

    def history(self, random: Random) -> History:
        history = History()
        history.extend(self.events(random))
        return history


def _interleaved(queues: list[list[Fields]], random: Random) -> Iterator[Event]:
    waiting = [iter(queue) for queue in queues]
    time = 0.0
    while waiting:
        queue = random.choice(waiting)
        fields = next(queue, None)
        if fields is None:
            waiting.remove(queue)
        else:
            time += random.random()
            kind, actor, partition, value, key = fields
            yield Event(kind, time, actor, partition, value, key)


@dataclass(frozen=True)
class Truth:
    """The model's state of a run."""

    repeated: int
    lost: int
    unread: int


@dataclass(frozen=True)
class Made:
    """A run that keeps its guarantee, and the truth about it."""

    run: Run
    guarantee: Guarantee
    random: Random

    def truth(self) -> Truth:
        repeated = lost = unread = 0
        for name, partition in {(GROUPS.get(r, r), p) for r, p in self.run.given}:
            members = [r for r in READERS if GROUPS.get(r, r) == name]
            finished = any((reader, partition) in self.run.finished for reader in members)
            given = Counter[bytes]()
            for reader in members:
                given.update(self.run.given.get((reader, partition), []))
            repeated += sum(count - 1 for count in given.values())
            missing = [
                send for send in self.run.of(partition, EventKind.ACKED) if send.value not in given
            ]
            if finished:
                lost += len(missing)
            elif given:  # a reader of whom nothing was recorded is not known to read
                passed = [send for send in missing if self._passed(send, given)]
                lost += len(passed)
                unread += len(missing) - len(passed)
        return Truth(repeated, lost, unread)

    def _passed(self, send: Send, given: Counter[bytes]) -> bool:
        same = self.run.acked_by(send.producer, send.partition)
        return any(value in given for value in same[same.index(send.value) :])


@st.composite
def made_runs(
    draw: st.DrawFn, guarantees: Sequence[Guarantee] = tuple(Guarantee), at_least: int = 0
) -> Made:
    """Publish through a log that keeps its promise, and read it."""
    guarantee = draw(st.sampled_from(guarantees))
    random = draw(st.randoms(use_true_random=True))
    partitions = draw(st.integers(1, 2))
    run = Run()
    outcomes = st.sampled_from([*[EventKind.ACKED] * 4, EventKind.UNKNOWN, EventKind.REFUSED, None])
    logs: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
    stored_late: dict[int, list[bytes]] = {partition: [] for partition in logs}
    for number in range(draw(st.integers(at_least, 12))):
        send = Send(
            producer=draw(st.sampled_from(["p", "q"])),
            partition=draw(st.integers(0, partitions - 1)),
            value=b"%d" % number,
            outcome=(outcome := draw(outcomes)),
            stored=outcome is EventKind.ACKED
            or (outcome is not EventKind.REFUSED and draw(st.booleans())),
            key=draw(st.none() | st.sampled_from([b"k", b"l"])),
        )
        run.sends.append(send)
        if send.outcome is EventKind.ACKED:
            lost = guarantee is Guarantee.AT_MOST_ONCE and draw(st.integers(0, 5)) == 0
            if not lost:
                logs[send.partition].append(send.value)
        elif send.stored:
            stored_late[send.partition].append(send.value)
    for partition, log in logs.items():
        for value in stored_late[partition]:
            log.insert(draw(st.integers(0, len(log))), value)
        if guarantee is Guarantee.AT_LEAST_ONCE:
            _store_again(draw, log)
        _read(draw, run, partition, log, again=guarantee is Guarantee.AT_LEAST_ONCE)
    return Made(run, guarantee, random)


def _store_again(draw: st.DrawFn, log: list[bytes]) -> None:
    """Retries: the same message once more, anywhere behind the first."""
    for _ in range(draw(st.integers(0, 3)) if log else 0):
        first = draw(st.integers(0, len(log) - 1))
        log.insert(draw(st.integers(first + 1, len(log))), log[first])


def _read(draw: st.DrawFn, run: Run, partition: int, log: list[bytes], *, again: bool) -> None:
    run.given["whole", partition] = list(log)
    run.finished.add(("whole", partition))
    run.given["partial", partition] = log[: draw(st.integers(0, len(log)))]
    turn = draw(st.integers(0, len(log)))
    overlap = draw(st.integers(0, turn)) if again else 0
    run.given["a", partition] = log[:turn]
    run.given["b", partition] = log[turn - overlap :]
    run.finished.add(("b", partition))
    if again and log:
        back = draw(st.integers(0, len(log)))
        run.given["whole", partition] += log[back:]
