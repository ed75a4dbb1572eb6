"""`liftbridge-aio streams`: make streams, look at them, delete them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App, Parameter

from liftbridge_aio.client import Client
from liftbridge_aio.errors import StreamExists, StreamNotFound
from liftbridge_aio.model import PartitionInfo, StreamInfo

from .connection import DEFAULT_CONNECTION, AsJson, Connection
from .output import say, write_json, write_table
from .running import CLIENT, TABLES, in_event_loop
from .stream_flags import DEFAULT_FLAGS, StreamFlags

app = App(name="streams", help="List, create, describe and delete streams.")

StreamName = Annotated[str, Parameter(help="Name of the stream.")]


@app.command(name="list")
@in_event_loop(*CLIENT, *TABLES)
async def list_streams(
    *, as_json: AsJson = False, connection: Connection = DEFAULT_CONNECTION
) -> None:
    """List the streams."""
    async with connection.client() as client:
        metadata = await client.fetch_metadata()
    streams = sorted(metadata.streams.values(), key=lambda stream: stream.name)
    if as_json:
        write_json([_overview(stream) for stream in streams])
        return
    rows = [
        (stream.name, stream.subject, len(stream.partitions), _when(stream)) for stream in streams
    ]
    write_table("Streams", ("Name", "Subject", "Partitions", "Created"), rows)


@app.command
@in_event_loop(*CLIENT)
async def create(
    stream: StreamName,
    /,
    *,
    subject: Annotated[
        str | None, Parameter(help="NATS subject, wildcards allowed; left out: the name.")
    ] = None,
    partitions: Annotated[int, Parameter(help="Number of partitions; fixed for ever.")] = 1,
    replication_factor: Annotated[
        int, Parameter(allow_leading_hyphen=True, help="Copies of each partition; -1: all brokers.")
    ] = 1,
    group: Annotated[str | None, Parameter(help="NATS queue group that shares the load.")] = None,
    exist_ok: Annotated[
        bool, Parameter(negative="", help="Be content if it exists already.")
    ] = False,
    as_json: AsJson = False,
    options: StreamFlags = DEFAULT_FLAGS,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Create a stream."""
    stream_options = options.options()
    async with connection.client() as client:
        try:
            await client.create_stream(
                stream,
                subject=subject,
                partitions=partitions,
                replication_factor=replication_factor,
                group=group,
                options=stream_options,
            )
            created = True
        except StreamExists:
            if not exist_ok:
                raise
            created = False
        if not created and as_json:
            info = await _fetch(client, stream)
            subject, partitions = info.subject, len(info.partitions)
    if as_json:
        write_json(
            {
                "name": stream,
                "subject": subject or stream,
                "partitions": partitions,
                "created": created,
            }
        )
    else:
        say(f"stream {stream} is created" if created else f"stream {stream} exists already")


@app.command
@in_event_loop(*CLIENT)
async def delete(
    stream: StreamName, /, *, as_json: AsJson = False, connection: Connection = DEFAULT_CONNECTION
) -> None:
    """Delete a stream and all its messages."""
    async with connection.client() as client:
        await client.delete_stream(stream)
    if as_json:
        write_json({"name": stream, "deleted": True})
    else:
        say(f"stream {stream} is deleted")


@app.command
@in_event_loop(*CLIENT, *TABLES)
async def describe(
    stream: StreamName, /, *, as_json: AsJson = False, connection: Connection = DEFAULT_CONNECTION
) -> None:
    """Show a stream and its partitions, as their leaders know them."""
    async with connection.client() as client:
        info = await _fetch(client, stream)
        partitions = await asyncio.gather(
            *(client.fetch_partition_metadata(stream, number) for number in sorted(info.partitions))
        )
    if as_json:
        write_json(_overview(info) | {"partitions": [asdict(state) for state in partitions]})
        return
    columns = ("Partition", "Leader", "In sync", "High watermark", "Newest", "State")
    rows = [
        (
            state.id,
            state.leader,
            f"{len(state.isr)}/{len(state.replicas)}",
            state.high_watermark,
            state.newest_offset,
            _state(state),
        )
        for state in partitions
    ]
    title = f"{info.name} on subject {info.subject}, created {_when(info)}"
    write_table(title, columns, rows)


async def _fetch(client: Client, stream: str) -> StreamInfo:
    metadata = await client.fetch_metadata([stream])
    info = metadata.streams.get(stream)
    if info is None:
        message = "stream not found"
        raise StreamNotFound(message, stream=stream)
    return info


def _overview(stream: StreamInfo) -> dict[str, Any]:
    return {
        "name": stream.name,
        "subject": stream.subject,
        "partitions": sorted(stream.partitions),
        "creation_timestamp": stream.creation_timestamp,
        "creation_time": _when(stream),
    }


def _when(stream: StreamInfo) -> str:
    return stream.creation_time.isoformat(timespec="seconds")


def _state(partition: PartitionInfo) -> str:
    words = [
        word
        for word, holds in (("paused", partition.paused), ("read-only", partition.readonly))
        if holds
    ]
    return ", ".join(words) or "open"
