"""Stored positions cover delivered messages only, however readings are wrapped and left."""

from __future__ import annotations

import asyncio
import gc
import itertools
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from liftbridge_aio import (
    Client,
    ConsumerGroup,
    MergedSubscription,
    Record,
    StartAt,
    Subscription,
    UndecodableMessage,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.serializers import JSON
from liftbridge_aio.values import Undecodable
from support.examples import examples

T = TypeVar("T")

BOUND: Final = 30.0
STREAM: Final = "numbers"
COUNT: Final = 14
PARTITIONS: Final = (0, 1, 2)
POISON: Final = frozenset({3, 4, 9})
SELDOM: Final = 3600.0
EARLIEST: Final = StartAt.earliest()

_names = itertools.count()


class Failure(Exception):
    """Failure in the body of somebody else's program."""


class Bench:
    """A broker with partitions of numbers, some of which cannot be read."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.run(self._begin())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(BOUND):
                return await work

        return self.runner.run(bounded())

    async def _begin(self) -> None:
        self.broker = await EmbeddedBroker(cursors_partitions=1).__aenter__()
        self.client = await Client(self.broker.address).__aenter__()
        await self.client.create_stream(STREAM, partitions=len(PARTITIONS))
        await self.client.publish_many(
            STREAM,
            [
                Record(b"{" if number in POISON else b"%d" % number, partition=partition)
                for number in range(COUNT)
                for partition in PARTITIONS
            ],
        )

    async def end(self) -> None:
        await self.client.__aexit__(None, None, None)
        await self.broker.__aexit__(None, None, None)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.run(bench.end())
    bench.runner.close()


class Sessions(RuleBasedStateMachine):
    """One reader after the other, each reading on where the one before was left."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.client = bench.client
        self.source: Subscription | MergedSubscription | ConsumerGroup | None = None

    @initialize(kind=st.sampled_from(["one", "several", "group"]))
    def choose(self, kind: str) -> None:
        self.kind = kind
        self.name = f"reader-{next(_names)}"
        self.partitions = PARTITIONS[:1] if kind == "one" else PARTITIONS
        # Offsets that may lie below what is stored: finished, or passed over by the reader's wish.
        self.done: dict[int, set[int]] = {partition: set() for partition in self.partitions}

    def teardown(self) -> None:
        if self.source is not None:
            self.leave("normally")

    # Sessions

    @precondition(lambda self: self.source is None)
    @rule(outermost=st.sampled_from(["source", "strict", "lenient"]))
    def enter(self, outermost: str) -> None:
        self.bench.run(self.begin(outermost))

    async def begin(self, outermost: str) -> None:
        match self.kind:
            case "one":
                self.source = self.client.subscribe(
                    STREAM, 0, EARLIEST, cursor=self.name, cursor_interval=SELDOM
                )
            case "several":
                self.source = self.client.subscribe(
                    STREAM, PARTITIONS, EARLIEST, cursor=self.name, cursor_interval=SELDOM
                )
            case "group":
                self.source = self.client.group(
                    self.name, [STREAM], start=EARLIEST, commit_interval=SELDOM
                )
        self.in_hand: dict[int, set[int]] = {}
        self.last: dict[int, int] = {}
        self.paused: set[int] = set()
        self.sought = False
        self.readers: dict[str, Any] = {"source": self.source}
        self.wrap()
        self.outermost = self.readers[outermost]
        await self.outermost.__aenter__()

    @precondition(lambda self: self.source is not None)
    @rule()
    def wrap(self) -> None:
        """Read through new wrappers; those before are dropped."""
        for name, policy in (("strict", Undecodable.RAISE), ("lenient", Undecodable.SKIP)):
            values = self.client.values(STREAM, JSON, on_undecodable=policy)
            self.readers[name] = values.read(self.source)

    @precondition(lambda self: self.source is not None)
    @rule(how=st.sampled_from(["normally", "by an error", "cancelled", "closed", "dropped"]))
    def leave(self, how: str) -> None:
        if how == "dropped" and self.kind == "group":
            return  # a member goes on until its client is closed
        if how == "closed":
            self.bench.run(self.outermost.aclose())
            self.check()
        if how == "dropped":
            self.bench.run(self.drop())
        else:
            self.bench.run(self.exit(self.outermost, how))
        self.source = None
        if how in {"normally", "closed"}:
            self.finish()
        stored = self.check()
        if how == "normally" and not self.sought:
            for partition, last in self.last.items():
                position = stored[partition]
                assert position is not None
                assert position >= last

    async def exit(self, outermost: Any, how: str) -> None:
        match how:
            case "by an error":
                await outermost.__aexit__(Failure, Failure(), None)
            case "cancelled":
                error = asyncio.CancelledError()
                leaving = asyncio.ensure_future(outermost.__aexit__(type(error), error, None))
                await asyncio.sleep(0)
                leaving.cancel()
                await asyncio.wait([leaving])
            case _:
                await outermost.__aexit__(None, None, None)

    async def drop(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self.source = self.outermost = None
            self.readers.clear()
            gc.collect()
            await asyncio.sleep(0)

    # Reading

    def positions(self) -> dict[int, int | None]:
        assert self.source is not None
        if isinstance(self.source, Subscription):
            return {0: self.source.position}
        if isinstance(self.source, MergedSubscription):
            return self.source.positions
        return {place.partition: at for place, at in self.source.positions.items()}

    def left(self, *, lenient: bool) -> list[int]:
        """Messages that could be delivered now."""
        return [
            offset
            for partition, position in self.positions().items()
            if partition not in self.paused
            for offset in range(position or 0, COUNT)
            if not (lenient and offset in POISON)
        ]

    @precondition(lambda self: self.source is not None)
    @rule(
        way=st.sampled_from(["source", "strict", "lenient"]),
        kind=st.sampled_from(["one", "one", "list", "list", "raw"]),
        most=st.integers(1, 2 * COUNT),
        steps=st.integers(1, 4),
    )
    def read(self, way: str, kind: str, most: int, steps: int) -> None:
        reader = self.readers["source" if kind == "raw" else way]
        iterator: AsyncIterator[Any] = reader
        if kind == "list":
            iterator = reader.batches(most)
        elif kind == "raw":
            iterator = reader.batches(most, raw=True)
        for _ in range(steps):
            lenient = way == "lenient" and kind != "raw"
            if self.left(lenient=lenient):
                self.bench.run(self.step(iterator))
            if lenient:
                self.leave_poison_out()

    def leave_poison_out(self) -> None:
        for partition, position in self.positions().items():
            self.done[partition].update(n for n in POISON if n < (position or 0))

    async def step(self, iterator: AsyncIterator[Any]) -> None:
        handed: Any
        try:
            handed = await anext(iterator)
        except UndecodableMessage as error:
            handed = error.received
        items: list[Any] = handed if isinstance(handed, list) else [handed]
        self.finish()
        for item in items:
            message = getattr(item, "message", item)
            assert message.partition not in self.paused
            self.in_hand.setdefault(message.partition, set()).add(message.offset)
            self.last[message.partition] = message.offset

    @precondition(lambda self: self.source is not None)
    @rule(way=st.sampled_from(["source", "strict", "lenient"]), in_lists=st.booleans())
    def ask_in_vain(self, way: str, in_lists: bool) -> None:
        """Cancel the reader before anything can have come, or while it takes what has."""
        reader = self.readers[way]
        iterator = reader.batches(2, 10.0) if in_lists else reader

        async def ask() -> None:
            step = asyncio.ensure_future(self.step(iterator))
            await asyncio.sleep(0)
            step.cancel()
            with suppress(asyncio.CancelledError):
                await step
                return
            self.finish()

        self.bench.run(ask())
        if way == "lenient":
            self.leave_poison_out()

    # What readers do beside

    def finish(self) -> None:
        """The reader is done with what was in hand."""
        for partition, offsets in self.in_hand.items():
            self.done[partition] |= offsets
        self.in_hand.clear()

    @precondition(lambda self: self.source is not None)
    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(0, COUNT))
    def seek(self, partition: int, offset: int) -> None:
        if partition not in self.partitions:
            return
        if isinstance(self.source, Subscription):
            self.bench.run(self.source.seek(offset))
        elif isinstance(self.source, MergedSubscription):
            self.bench.run(self.source.seek({partition: offset}))
        elif self.source is not None:
            self.bench.run(self.source.seek(STREAM, partition, offset))
        self.sought = True
        self.done[partition].update(range(offset))

    @precondition(lambda self: self.source is not None)
    @rule(partition=st.sampled_from(PARTITIONS), pause=st.booleans())
    def pause(self, partition: int, pause: bool) -> None:
        if partition not in self.partitions:
            return
        (self.paused.add if pause else self.paused.discard)(partition)
        if isinstance(self.source, Subscription):
            (self.source.pause if pause else self.source.resume)()
        elif isinstance(self.source, MergedSubscription):
            (self.source.pause if pause else self.source.resume)([partition])
        elif self.source is not None:
            (self.source.pause if pause else self.source.resume)((STREAM, partition))

    @precondition(lambda self: self.source is not None)
    @rule()
    def commit(self) -> None:
        assert self.source is not None
        self.bench.run(self.source.commit())
        self.check()

    def check(self) -> dict[int, int | None]:
        cursor = f"__group:{self.name}" if self.kind == "group" else self.name

        async def fetch() -> dict[int, int | None]:
            return {
                partition: await self.client.fetch_cursor(cursor, STREAM, partition)
                for partition in self.partitions
            }

        stored = self.bench.run(fetch())
        for partition, position in stored.items():
            if position is not None:
                lost = set(range(position + 1)) - self.done[partition]
                assert not lost, f"{cursor}/{partition} is stored at {position}"
        return stored


@pytest.mark.timeout(180)
def test_what_nobody_was_handed_is_never_stored_as_finished(bench: Bench) -> None:
    machine: Any = partial(Sessions, bench)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(20), stateful_step_count=30, report_multiple_bugs=False
        ),
    )
