"""`liftbridge-aio queue`: show what queues have not settled, and requeue dead letters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import AckPolicy, StartAt, StopAt

from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags, StreamName
from .output import say, shown, write_json, write_table
from .partition_states import fetch_states, fetch_streams
from .running import CLIENT, TABLES, in_event_loop

if TYPE_CHECKING:
    from liftbridge_aio.queue.core.acks_record import AcksRecord

app = App(
    name=("queue", "queues"),
    help="Show what queues have not settled, and requeue dead letters.",
)

_PREFIX: Final = "__acks."
_QUEUE: Final = ("liftbridge_aio.queue",)


@app.command(name="list", usage="Usage: liftbridge-aio queue list [OPTIONS] [STREAMS...]")
@in_event_loop(*CLIENT, *TABLES, *_QUEUE)
async def list_queues(
    *streams: Annotated[str, Parameter(help="Only queues of these streams.")],
    group: Annotated[str | None, Parameter(help="Only queues of this group.")] = None,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Show each partition of each queue: what is settled, how far it lags, and attempts.

    It shows what members have stored, which they do about once a second. The window is the number
    of offsets from the first unsettled message to the next one to be read, attempts the most that
    an unsettled message has had, and leased the number of messages that other members had. With
    --json it says which members.

    For example:

        liftbridge-aio queue list
        liftbridge-aio queue list orders --group billing --json
    """
    async with connection.client() as client:
        records = [
            (partition, record)
            for partition, record in await _records(client)
            if (not streams or record.stream in streams) and group in {None, record.group}
        ]
        known = {record.stream for _, record in records}
        there = [info for info in await fetch_streams(client) if info.name in known]
        ends = {
            (state.stream, state.info.id): state.newest_offset
            for state in await fetch_states(client, there)
        }
    rows = [
        _row(partition, record, ends.get((record.stream, partition)))
        for partition, record in records
    ]
    if as_json:
        write_json(rows)
    else:
        for row in rows:
            row["leased"] = sum(row["leased"].values())
        columns = ("Group", "Stream", "Partition", "First unsettled", "Lag", "Window")
        write_table(
            "Queues",
            (*columns, "Unsettled", "Attempts", "Leased", "Member"),
            [tuple(shown(value) for value in row.values()) for row in rows],
        )


@app.command(name="requeue")
@in_event_loop(*CLIENT, *_QUEUE)
async def requeue(
    stream: Annotated[StreamName, Parameter(help="Name of the stream of dead letters.")],
    /,
    *,
    group: Annotated[str | None, Parameter(help="Only letters of this group.")] = None,
    dry_run: Annotated[
        bool, Parameter(negative="", help="Count them, and publish nothing.")
    ] = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Publish dead letters again, each to the stream and partition that it came from.

    A cursor in the stream of dead letters remembers how far this went, so that the next call begins
    with later letters; those of other groups are passed over. All groups of a stream receive what
    is requeued. If the command is interrupted, the last letter may be requeued again.

    For example:

        liftbridge-aio queue requeue orders.dead --dry-run
        liftbridge-aio queue requeue orders.dead --group billing
    """
    counts: dict[str, int] = {}
    async with connection.client() as client:
        [info] = await fetch_streams(client, [stream])
        for partition in sorted(info.partitions):
            await _requeue(client, stream, partition, group, counts, dry_run=dry_run)
    if as_json:
        write_json(counts)
    else:
        done = "would be requeued" if dry_run else "requeued"
        for origin, count in sorted(counts.items()):
            say(f"{count} messages {done} to {origin}")
        if not counts:
            say(f"no dead letters in {stream} that were not requeued before")


async def _requeue(
    client: Client,
    stream: str,
    partition: int,
    group: str | None,
    counts: dict[str, int],
    *,
    dry_run: bool,
) -> None:
    from liftbridge_aio.queue.core.moved_message import (  # noqa: PLC0415 - not for help
        PARTITION_HEADER,
        STREAM_HEADER,
    )
    from liftbridge_aio.queue.giving_up import GROUP_HEADER, HEADERS  # noqa: PLC0415

    cursor = f"__requeued:{group or ''}"
    stored = await client.fetch_cursor(cursor, stream, partition)
    start = StartAt.earliest() if stored is None else StartAt.offset(stored + 1)
    async with client.read(
        stream, start=start, stop=StopAt.latest(), partition=partition
    ) as letters:
        async for letter in letters:
            origin = letter.headers.get(STREAM_HEADER, b"").decode(errors="replace")
            of_group = letter.headers.get(GROUP_HEADER, b"").decode(errors="replace")
            if not origin or group not in {None, of_group}:
                continue
            counts[origin] = counts.get(origin, 0) + 1
            if dry_run:
                continue
            await client.publish(
                origin,
                letter.value,
                letter.key or None,
                {name: value for name, value in letter.headers.items() if name not in HEADERS},
                partition=int(letter.headers[PARTITION_HEADER]),
                ack_policy=AckPolicy.ALL,
            )
            await client.set_cursor(cursor, stream, partition, letter.offset)


async def _records(client: Client) -> list[tuple[int, AcksRecord]]:
    """Return what is stored of each partition of each queue."""
    from liftbridge_aio._runtime.bounded_gather import bounded_gather  # noqa: PLC0415 (anyio)
    from liftbridge_aio._subscribe.committed_state import (  # noqa: PLC0415 - not for help
        committed_state,
    )
    from liftbridge_aio.queue.acks_store import last_record  # noqa: PLC0415 - not for help

    places = [
        (info.name, partition)
        for info in await fetch_streams(client)
        if info.name.startswith(_PREFIX)
        for partition in info.partitions
    ]

    read_last = partial(client.last, unpause=True)

    async def last(place: tuple[str, int]) -> AcksRecord | None:
        name, partition = place
        await committed_state(
            lambda: client.fetch_partition_metadata(name, partition),
            lambda offset: client.publish(
                name, b"", partition=partition, ack_policy=AckPolicy.ALL, expected_offset=offset
            ),
        )
        try:
            return (await last_record(read_last, name, partition))[0]
        except MalformedData as error:
            say(f"{name}: {error}")
            return None

    records = await bounded_gather(places, last)
    found = [
        (partition, record)
        for (_, partition), record in zip(places, records, strict=True)
        if record is not None
    ]
    return sorted(found, key=lambda one: (one[1].group, one[1].stream, one[0]))


def _row(partition: int, record: AcksRecord, newest: int | None) -> dict[str, Any]:
    snapshot = record.snapshot
    return {
        "group": record.group,
        "stream": record.stream,
        "partition": partition,
        "first_unsettled": snapshot.base,
        "lag": None if newest is None else newest + 1 - snapshot.base,
        "window": snapshot.next_offset - snapshot.base,
        "unsettled": len(snapshot.unsettled),
        "attempts": max(snapshot.unsettled.values(), default=0),
        "leased": dict(snapshot.leased),
        "member": "released" if record.last else record.owner,
    }
