"""`liftbridge-aio streams`: create, show, change and delete streams."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import StreamExists
from liftbridge_aio.model import ACTIVITY_STREAM, CURSORS_STREAM, StreamInfo
from liftbridge_aio.options import StreamOptions

from .arguments import DURATION_HELP, parse_duration
from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    Integer,
    Interval,
    Off,
    OptionalInteger,
    ResumeAll,
    StreamName,
    Watch,
    Yes,
)
from .output import moment, say, shown, write_json, write_table
from .partition_states import fetch_states, fetch_streams, say_what_failed
from .running import CLIENT, TABLES, confirmed, in_event_loop, watched

_DURATIONS: Final = frozenset(
    {"retention_max_age", "cleaner_interval", "segment_max_age", "auto_pause_time"}
)


Partitions = Annotated[
    tuple[Integer, ...],
    Parameter(name="--partition", negative="", help="One partition; may be repeated. None: all."),
]
_INTERNAL: Final = frozenset({ACTIVITY_STREAM, CURSORS_STREAM})


def _flag(text: str) -> Parameter:
    return Parameter(help=text)


def _duration(text: str) -> Parameter:
    return Parameter(help=f"{text} ({DURATION_HELP}).")


@Parameter(name="*", group="Options of the stream (default: the server's)")
@dataclass(frozen=True, kw_only=True)
class StreamFlags:
    """A flag for each field of `StreamOptions`; durations are text."""

    retention_max_bytes: Annotated[
        OptionalInteger, _flag("Most bytes of a partition's log; 0: no limit.")
    ] = None
    retention_max_messages: Annotated[
        OptionalInteger, _flag("Most messages of a partition's log; 0: no limit.")
    ] = None
    retention_max_age: Annotated[
        str | None, _duration("Age at which segments are deleted; 0: never")
    ] = None
    cleaner_interval: Annotated[
        str | None, _duration("Interval between runs of the log cleaner")
    ] = None
    segment_max_bytes: Annotated[OptionalInteger, _flag("Most bytes of a segment file.")] = None
    segment_max_age: Annotated[
        str | None, _duration("Age at which a segment is closed; 0: only by size")
    ] = None
    compact_max_goroutines: Annotated[
        OptionalInteger, _flag("Concurrency of compaction in the server.")
    ] = None
    compact_enabled: Annotated[bool | None, _flag("Keep only the newest message of each key.")] = (
        None
    )
    auto_pause_time: Annotated[
        str | None, _duration("Time without messages after which a partition pauses; 0: never")
    ] = None
    auto_pause_disable_if_subscribers: Annotated[
        bool | None, _flag("Do not pause a partition that has subscribers.")
    ] = None
    min_isr: Annotated[
        OptionalInteger, _flag("Least number of in-sync replicas to commit a message.")
    ] = None
    optimistic_concurrency_control: Annotated[
        bool | None, _flag("Check the expected offset of publishes.")
    ] = None
    encryption: Annotated[bool | None, _flag("Encrypt stored values.")] = None

    def options(self) -> StreamOptions:
        """Return the options.

        Raises:
            BadArgument: a duration is invalid.
            InvalidRequest: another value is invalid.
        """
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name in _DURATIONS:
                value = parse_duration(value)
            values[field.name] = value
        return StreamOptions(**values)


DEFAULT_FLAGS: Final = StreamFlags()
"""No flag given."""


app = App(name="streams", help="List, create, show, pause and delete streams.")


@app.command(name="list")
@in_event_loop(*CLIENT, *TABLES)
async def list_streams(
    *,
    internal: Annotated[
        bool, Parameter(negative="", help="List the servers' internal streams too.")
    ] = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """List the streams.

    For example:

        liftbridge-aio streams list
        liftbridge-aio streams list --internal --json
    """
    async with connection.client() as client:
        streams = [
            stream
            for stream in await fetch_streams(client)
            if internal or stream.name not in _INTERNAL
        ]
    if as_json:
        write_json([_overview(stream) for stream in streams])
        return
    rows = [
        (stream.name, stream.subject, len(stream.partitions), moment(stream.creation_timestamp))
        for stream in streams
    ]
    write_table("Streams", ("Name", "Subject", "Partitions", "Created"), rows)


@app.command
@in_event_loop(*CLIENT)
async def create(
    stream: StreamName,
    /,
    *,
    subject: Annotated[
        str | None, Parameter(help="NATS subject, may have wildcards. Default: the name.")
    ] = None,
    partitions: Annotated[
        Integer, Parameter(help="Number of partitions, which cannot be changed later.")
    ] = 1,
    replication_factor: Annotated[
        Integer,
        Parameter(allow_leading_hyphen=True, help="Copies of each partition; -1: all brokers."),
    ] = 1,
    group: Annotated[str | None, Parameter(help="NATS queue group that shares the load.")] = None,
    exist_ok: Annotated[
        bool, Parameter(negative="", help="Succeed if the stream exists already.")
    ] = False,
    as_json: AsJson = False,
    options: StreamFlags = DEFAULT_FLAGS,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Create a stream.

    For example:

        liftbridge-aio streams create orders --partitions 3
        liftbridge-aio streams create prices --subject "prices.*"
        liftbridge-aio streams create users --replication-factor 3 --min-isr 2
        liftbridge-aio streams create logs --retention-max-age 7d
    """
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
        wanted = partitions
        if not created:
            [info] = await fetch_streams(client, [stream])
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
    elif created:
        say(f"stream {stream} is created")
    else:
        differs = f", with {partitions} partitions, not {wanted}" if partitions != wanted else ""
        say(f"stream {stream} exists already{differs}")


@app.command
@in_event_loop(*CLIENT)
async def delete(
    stream: StreamName,
    /,
    *,
    yes: Yes = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Delete a stream and all its messages. Asks first if stdin is a terminal.

    For example:

        liftbridge-aio streams delete orders
        liftbridge-aio streams delete orders --yes
    """
    if not yes and not await confirmed(f"delete stream {stream} and all its messages?"):
        say("nothing is deleted")
        return 1
    async with connection.client() as client:
        await client.delete_stream(stream)
    if as_json:
        write_json({"name": stream, "deleted": True})
    else:
        say(f"stream {stream} is deleted")
    return 0


@app.command(name=("show", "describe"))
@in_event_loop(*CLIENT, *TABLES)
async def show(
    stream: StreamName,
    /,
    *,
    watch: Watch = False,
    interval: Interval = "2s",
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Show a stream and its partitions, as their leaders know them.

    The exit code is 1 if a leader does not answer. `partitions list` and `partitions show` show
    more of the partitions.

    For example:

        liftbridge-aio streams show orders
        liftbridge-aio streams show orders --json
        liftbridge-aio streams show orders --watch
    """
    every = parse_duration(interval) if watch else None
    async with connection.client() as client:
        return await watched(lambda: _show(client, stream, as_json=as_json), every)


async def _show(client: Client, stream: str, *, as_json: bool) -> int:
    """Fetch and show a stream; return the exit code."""
    [info] = await fetch_streams(client, [stream])
    states = await fetch_states(client, [info])
    if as_json:
        write_json(_overview(info) | {"partitions": [state.as_json() for state in states]})
        return say_what_failed(states)
    columns = ("Partition", "Leader", "In sync", "High watermark", "Newest", "State")
    rows = [
        (
            state.info.id,
            state.info.leader or "none",
            f"{len(state.info.isr)}/{len(state.info.replicas)}",
            shown(state.high_watermark),
            shown(state.newest_offset),
            state.words(),
        )
        for state in states
    ]
    created = moment(info.creation_timestamp)
    write_table(f"{info.name} on subject {info.subject}, created {created}", columns, rows)
    return say_what_failed(states)


@app.command
@in_event_loop(*CLIENT)
async def pause(
    stream: StreamName,
    /,
    *,
    partition: Partitions = (),
    resume_all: ResumeAll = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Pause a stream, or some of its partitions, until something is published to them.

    For example:

        liftbridge-aio streams pause orders --resume-all
        liftbridge-aio streams pause orders --partition 0 --partition 2
    """
    async with connection.client() as client:
        await client.pause_stream(stream, _named(partition), resume_all=resume_all)
    _say_changed(
        stream, partition, "paused", {"paused": True, "resume_all": resume_all}, as_json=as_json
    )


@app.command
@in_event_loop(*CLIENT)
async def resume(
    stream: StreamName,
    /,
    *,
    partition: Partitions = (),
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Resume the paused partitions of a stream, or some of them, without publishing to them.

    For example:

        liftbridge-aio streams resume orders
        liftbridge-aio streams resume orders --partition 2
    """
    async with connection.client() as client:
        await client.resume_stream(stream, _named(partition))
    _say_changed(stream, partition, "resumed", {"paused": False}, as_json=as_json)


@app.command
@in_event_loop(*CLIENT)
async def readonly(
    stream: StreamName,
    /,
    *,
    partition: Partitions = (),
    off: Off = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Make a stream, or some of its partitions, read-only, or writable again.

    Subscriptions to read-only partitions end after the newest message.

    For example:

        liftbridge-aio streams readonly orders
        liftbridge-aio streams readonly orders --partition 1 --off
    """
    async with connection.client() as client:
        await client.set_stream_readonly(stream, _named(partition), readonly=not off)
    state = "writable" if off else "read-only"
    _say_changed(stream, partition, state, {"readonly": not off}, as_json=as_json)


def _named(partitions: tuple[int, ...]) -> list[int] | None:
    """Return the partitions of the flags, each once; None: all."""
    return list(dict.fromkeys(partitions)) or None


def _say_changed(
    stream: str, partitions: tuple[int, ...], state: str, change: dict[str, bool], *, as_json: bool
) -> None:
    named = _named(partitions)
    if as_json:
        write_json({"name": stream, **({"partitions": named} if named else {}), **change})
    elif named is None:
        say(f"stream {stream} is {state}")
    elif len(named) == 1:
        say(f"partition {named[0]} of {stream} is {state}")
    else:
        say(f"partitions {', '.join(map(str, named))} of {stream} are {state}")


def _overview(stream: StreamInfo) -> dict[str, Any]:
    return {
        "name": stream.name,
        "subject": stream.subject,
        "partitions": sorted(stream.partitions),
        "creation_timestamp": stream.creation_timestamp,
        "creation_time": moment(stream.creation_timestamp),
    }
