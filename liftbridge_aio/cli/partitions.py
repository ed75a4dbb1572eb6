"""`liftbridge-aio partitions`: list partitions of streams, and show one of them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    Integer,
    StreamName,
)
from .output import moment, shown, write_json, write_table
from .partition_states import PartitionState, fetch_states, fetch_streams, say_what_failed
from .running import CLIENT, TABLES, in_event_loop

app = App(name="partitions", help="List partitions of streams, or show one of them.")


@app.command(name="list", usage="Usage: liftbridge-aio partitions list [OPTIONS] [STREAMS...]")
@in_event_loop(*CLIENT, *TABLES)
async def list_partitions(
    *streams: Annotated[str, Parameter(help="Streams; none: all of them.")],
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """List partitions, as their leaders know them.

    A paused partition has no offsets here, nor has one whose leader does not answer; then the exit
    code is 1. Times are known since the leader was elected.

    For example:

        liftbridge-aio partitions list
        liftbridge-aio partitions list orders refunds --json
    """
    async with connection.client() as client:
        states = await fetch_states(client, await fetch_streams(client, streams))
    if as_json:
        write_json([state.as_json() for state in states])
        return say_what_failed(states)
    columns = (
        *("Stream", "Partition", "Leader", "Replicas", "In sync", "High watermark", "Newest"),
        *("State", "Latest message"),
    )
    rows = [
        (
            state.stream,
            state.info.id,
            state.info.leader or "none",
            " ".join(state.info.replicas),
            " ".join(state.info.isr),
            shown(state.high_watermark),
            shown(state.newest_offset),
            state.words(),
            moment(state.info.messages_received.latest),
        )
        for state in states
    ]
    spare = ("Replicas", "Latest message", "Newest", "In sync")
    write_table("Partitions", columns, rows, spare)
    return say_what_failed(states)


@app.command
@in_event_loop(*CLIENT, *TABLES)
async def show(
    stream: StreamName,
    partition: Annotated[Integer, Parameter(help="Partition of the stream.")],
    /,
    *,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Show the whole state of a partition.

    For example:

        liftbridge-aio partitions show orders 2
    """
    async with connection.client() as client:
        info = await client.fetch_partition_metadata(stream, partition)
    state = PartitionState(stream, info)
    if as_json:
        write_json(state.as_json())
        return
    rows = (
        ("leader", info.leader or "none"),
        ("replicas", " ".join(info.replicas)),
        ("in sync", " ".join(info.isr)),
        ("high watermark", shown(state.high_watermark)),
        ("newest offset", shown(state.newest_offset)),
        ("state", state.words()),
        *(
            (f"{which} {event}", moment(timestamp))
            for event, times in (
                ("message", info.messages_received),
                ("pause or resume", info.pause),
                ("change of read-only", info.readonly_changes),
            )
            for which, timestamp in (("first", times.first), ("latest", times.latest))
        ),
    )
    write_table(f"Partition {partition} of {stream}", ("Field", "Value"), rows)
