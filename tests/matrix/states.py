"""States of a partition, each brought about in one place; the rows of the matrix."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from liftbridge_aio import ClientOptions, Record, StreamOptions
from matrix.cells import COUNT, PARTITIONS, Log, Place, Stage
from support.raw import FROM_EARLIEST, TO_LATEST, eventually
from support.segments import becomes_empty, offsets


class Servers(Enum):
    """Servers that a state is brought about on."""

    SHARED = auto()
    """One that states share, as none of them harms it."""
    LONE = auto()
    """One that nothing else needs."""
    CLUSTER = auto()


Publish = Callable[[Stage, Place, Sequence[Record]], Awaitable[None]]
Arise = Callable[[Stage, Sequence[Place]], Awaitable[None]]


def numbered(count: int, text: str = "message", keys: str = "") -> tuple[Record, ...]:
    """Make records whose values tell their offsets; `-` is no key."""
    named = [None if key == "-" else key.encode() for key in keys.ljust(count, "-")]
    return tuple(Record(f"{text} {at}".encode(), key) for at, key in enumerate(named))


async def publish(stage: Stage, place: Place, records: Sequence[Record]) -> None:
    """Publish these to each partition of a place."""
    await stage.director.publish_many(
        place.stream,
        [replace(record, partition=partition) for partition in place.logs for record in records],
    )


async def nothing_happens(stage: Stage, places: Sequence[Place]) -> None:
    """Leave things as they are: what was published is in the state already."""


DEFAULT_OPTIONS: Final = ClientOptions(
    ack_timeout=6, call_timeout=20, connect_timeout=15, not_found_timeout=2
)
"""Longer than by default, as all operations begin at once on a machine that may be busy; shorter
only where tests would wait for nothing."""
ARISE_TIMEOUT: Final = 60.0
"""For calls that bring a state about: operations run beside them, on a busy machine."""


@dataclass(frozen=True)
class State:
    """A row.

    Attributes:
        name: Its heading.
        arise: Brings the state about for all streams at once, and returns when it is there.
        records: What is published to each partition before.
        publish: Publishes that.
        servers: On what.
        settings: Fields of `StreamOptions` that it needs.
        replication_factor: How many nodes of a cluster keep each stream.
        led_by_victim: Whether the node to which something happens leads all streams or none.
        options: Of the clients in it.
    """

    name: str
    arise: Arise = nothing_happens
    records: tuple[Record, ...] = numbered(COUNT)
    publish: Publish = publish
    servers: Servers = Servers.SHARED
    settings: Mapping[str, object] = field(default_factory=dict)
    replication_factor: int = 1
    led_by_victim: bool = False
    options: ClientOptions = DEFAULT_OPTIONS

    async def create(self, stage: Stage, place: Place) -> None:
        """Create the stream of a place, and note what it will hold."""
        await create(stage, place, replication_factor=self.replication_factor)
        place.holds({partition: log_of(self.records) for partition in PARTITIONS})

    async def fill(self, stage: Stage, place: Place) -> None:
        """Publish what is in a stream before the state arises."""
        if self.records:
            await self.publish(stage, place, self.records)


def log_of(records: Sequence[Record]) -> Log:
    """The log that consists of these."""
    return {offset: record.value for offset, record in enumerate(records)}


async def create(
    stage: Stage,
    place: Place,
    partitions: int = len(PARTITIONS),
    replication_factor: int = 1,
) -> None:
    """Create the stream of a place."""
    await stage.director.create_stream(
        place.stream,
        partitions=partitions,
        replication_factor=replication_factor,
        options=StreamOptions(**place.settings),  # type: ignore[arg-type]
    )


STATES: Final[dict[str, State]] = {}
"""All rows, by their headings."""


def add(state: State) -> None:
    """Make it a row."""
    STATES[state.name] = state


add(State("healthy"))
add(State("empty", records=()))


# Retention and compaction

CLEANED: Final = 1.0
"""Seconds between two visits of the cleaner: seldom enough that v1.9.0 survives publishes."""
AGE: Final = 3.0
"""Seconds that messages are kept: enough to be read while the log is followed."""


async def everything_ages(stage: Stage, places: Sequence[Place]) -> None:
    """Wait until retention has taken all; a stream made later says when, by being read-only."""
    control = Place(f"{places[0].stream}-control", dict(places[0].settings))
    control.settings["retention_max_age"] = AGE + CLEANED
    await create(stage, control)
    await stage.wire.publish(control.stream, b"")
    await becomes_empty(stage.wire, control.stream)
    for place in places:
        place.keeps(())


add(
    State(
        "emptied by retention",
        everything_ages,
        settings={
            "retention_max_age": AGE,
            "segment_max_age": CLEANED,
            "cleaner_interval": CLEANED,
        },
    )
)

KEYS: Final = "ab-a-bca"
SEGMENT: Final = 450
"""Bytes, of which five messages take more: v1.9.0 is to begin few segments while it cleans."""
KEPT: Final = (2, 4, 5, 6, 7)
"""The offsets of the last message of each key, and of those without one."""


async def everything_is_compacted(stage: Stage, places: Sequence[Place]) -> None:
    """Wait until only the last message of each key is left."""

    async def compacted(place: Place, partition: int) -> None:
        async def only_the_last() -> bool:
            positions = {**FROM_EARLIEST, **TO_LATEST, "partition": partition}
            found, _ = await offsets(stage.wire, place.stream, **positions)
            return [at for at in found if at < len(KEYS)] == list(KEPT)

        await eventually(only_the_last)

    await asyncio.gather(
        *(compacted(place, partition) for place in places for partition in place.logs)
    )
    for place in places:
        place.keeps(KEPT)


add(
    State(
        "compacted with gaps",
        everything_is_compacted,
        numbered(len(KEYS), keys=KEYS),
        settings={
            "compact_enabled": True,
            "segment_max_bytes": SEGMENT,
            "cleaner_interval": CLEANED,
        },
    )
)


# Paused and read-only


async def paused(stage: Stage, places: Sequence[Place]) -> None:
    """Pause all streams, which servers have done when they answer."""
    for place in places:
        await stage.director.pause_stream(place.stream)


async def all_paused(stage: Stage, places: Sequence[Place]) -> None:
    """Wait until all streams are paused, or were and are resumed already by who reads them."""
    begun = time.time_ns()
    for place in places:
        for partition in place.logs:

            async def was_paused(place: Place = place, partition: int = partition) -> bool:
                state = await stage.director.fetch_partition_metadata(place.stream, partition)
                return state.paused or (state.pause.latest or 0) >= begun

            await eventually(was_paused)


add(State("paused by hand", paused))
add(State("pausing itself", all_paused, settings={"auto_pause_time": 1.0}))


async def readonly(stage: Stage, places: Sequence[Place]) -> None:
    """Make all streams read-only."""
    for place in places:
        await stage.director.set_stream_readonly(place.stream)


add(State("read-only", readonly))


# Deleted and created again


async def deleted(stage: Stage, places: Sequence[Place]) -> None:
    """Delete all streams."""
    for place in places:
        await stage.director.delete_stream(place.stream, timeout=ARISE_TIMEOUT)
        place.holds({})


def created_again(partitions: int, count: int = 3) -> Arise:
    """Make what deletes streams and creates them again with so many partitions and messages."""

    async def arise(stage: Stage, places: Sequence[Place]) -> None:
        for place in places:
            await stage.director.delete_stream(place.stream, timeout=ARISE_TIMEOUT)
            await create(stage, place, partitions)
            records = numbered(count, "again")
            place.holds({partition: log_of(records) for partition in range(partitions)})
            await publish(stage, place, records)

    return arise


add(State("deleted", deleted))
add(State("created again with more partitions", created_again(4)))
add(State("created again with fewer partitions", created_again(1)))
add(State("created again, longer", created_again(len(PARTITIONS), 2 * COUNT)))


# Written by a foreign client

HUGE: Final = 20_000
FOREIGN: Final = (
    Record(b"", None, {}),
    Record(b"\xff\xfe", b"", {"subject": b"not ours", "reply": b"nor this"}),
    Record(b"huge", b"k" * HUGE, {"h" * HUGE: b"v" * HUGE}),
    Record(b"odd", b"\x00", {"": b"", "X-Msg-Encoding": b"unheard of", "\u2028": b"\x00"}),
)
"""No key, reserved names, huge headers, no value, no UTF-8."""


async def publish_past_the_client(stage: Stage, place: Place, records: Sequence[Record]) -> None:
    """Publish these as another client may, which checks nothing."""
    for partition in place.logs:
        for record in records:
            await stage.wire.publish(
                place.stream,
                record.value,
                key=record.key or b"",
                headers=dict(record.headers or {}),
                partition=partition,
            )


add(State("written by a foreign client", records=FOREIGN, publish=publish_past_the_client))
