"""`liftbridge-aio subscribe`: write the messages of a partition, one line each."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from liftbridge_aio.model import Message

from .arguments import parse_start, parse_stop
from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    OptionalInteger,
    Partition,
)
from .output import readable
from .reading import (
    Acks,
    CommittedFlag,
    Format,
    OnMalformedFlag,
    committed_of,
    message_writer,
    reading_client,
)
from .running import CLIENT, in_event_loop, while_output_is_read


@in_event_loop(*CLIENT)
async def subscribe(
    stream: Annotated[str, Parameter(help="Stream to read.")],
    /,
    *,
    partition: Partition = 0,
    start: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="new, latest, earliest, an offset, a time (2026-11-21T09:00Z), or -5m for ago.",
        ),
    ] = "new",
    stop: Annotated[
        str | None, Parameter(help="latest, an offset or a past time. Default: no end.")
    ] = None,
    count: Annotated[
        OptionalInteger,
        Parameter(validator=validators.Number(gte=1), help="End after this many messages."),
    ] = None,
    committed: CommittedFlag = False,
    acks: Acks = False,
    on_malformed: OnMalformedFlag = "error",
    template: Format = None,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    r"""Read one partition and write a line per message: offset, key, value.

    With --json a line is an object with every field; bytes that are not UTF-8 are in base64, in
    fields whose names end in _base64. It waits through outages and reports them on stderr: 30
    seconds with --stop, otherwise for ever; --timeout limits both. Ctrl-C ends it. `tail` reads all
    partitions at once.

    For example:

        liftbridge-aio subscribe orders --partition 1
        liftbridge-aio subscribe orders --start earliest --stop latest
        liftbridge-aio subscribe orders --start -5m --count 10 --json
        liftbridge-aio subscribe orders --start earliest --committed
        liftbridge-aio subscribe orders --start earliest --format '%o %v\n'
    """
    start_at = parse_start(start)
    stop_at = None if stop is None else parse_stop(stop)
    shown = committed_of(committed, acks=acks, on_malformed=on_malformed)
    write = message_writer(template, as_json=as_json, line=_line)
    async with (
        while_output_is_read(),
        reading_client(connection) as client,
        client.subscribe(
            stream, partition=partition, start=start_at, stop=stop_at, committed=shown
        ) as messages,
    ):
        left = count
        async for message in messages:
            write([message])
            if left is not None:
                left -= 1
                if left == 0:
                    break


def _line(message: Message) -> str:
    return f"{message.offset}\t{readable(message.key)}\t{readable(message.value)}"
