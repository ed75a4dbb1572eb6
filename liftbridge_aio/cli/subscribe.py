"""`liftbridge-aio subscribe`: write the messages of a partition, one line each."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from .arguments import parse_start, parse_stop
from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    OptionalInteger,
    Partition,
)
from .messages import message_json
from .output import readable, write_json, write_line
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
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Read one partition and write a line per message: offset, key, value.

    With --json a line is an object with every field; bytes that are not UTF-8 are in base64, in
    fields whose names end in _base64. Ctrl-C ends it. `tail` reads all partitions at once.

    For example:

        liftbridge-aio subscribe orders --partition 1
        liftbridge-aio subscribe orders --start earliest --stop latest
        liftbridge-aio subscribe orders --start -5m --count 10 --json
    """
    start_at = parse_start(start)
    stop_at = None if stop is None else parse_stop(stop)
    async with (
        while_output_is_read(),
        connection.client() as client,
        client.subscribe(stream, partition=partition, start=start_at, stop=stop_at) as messages,
    ):
        left = count
        async for message in messages:
            if as_json:
                write_json(message_json(message))
            else:
                key, value = readable(message.key), readable(message.value)
                write_line(f"{message.offset}\t{key}\t{value}")
            if left is not None:
                left -= 1
                if left == 0:
                    break
