"""`liftbridge-aio tail`: the messages of a stream, all of its partitions at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Final

from cyclopts import Parameter, validators

from liftbridge_aio.client import Client
from liftbridge_aio.model import ALL_PARTITIONS, Message, StartAt
from liftbridge_aio.options import timer_seconds

from .arguments import LastMessages, parse_from, parse_until
from .connection import DEFAULT_CONNECTION, AsJson, Connection
from .messages import Grep, GrepField, message_json, message_line
from .output import json_line, write_lines
from .partition_states import fetch_streams
from .running import CLIENT, in_event_loop
from .unread_output import while_output_is_read

_AT_ONCE: Final = 4
"""Partitions whose last messages are looked for at a time, as these are held meanwhile."""

_LEAST_RATE: Final = 500
"""Messages in a second; who asks for more of them waits longer."""


@in_event_loop(*CLIENT, "liftbridge_aio.last_messages")
async def tail(
    stream: Annotated[str, Parameter(help="Stream to read.")],
    /,
    *,
    partition: Annotated[
        tuple[int, ...],
        Parameter(negative="", show_default=False, help="Only this one; may be repeated."),
    ] = (),
    begin: Annotated[
        str,
        Parameter(
            name="--from",
            allow_leading_hyphen=True,
            help="earliest, latest, new, an offset, a time (2026-11-21T09:00Z), -10m for ago, or "
            "last:n; for each partition.",
        ),
    ] = "last:10",
    until: Annotated[
        str | None,
        Parameter(help="latest, an offset of each partition, or a time, past or to come."),
    ] = None,
    follow: Annotated[
        bool, Parameter(help="Go on with what is published; else end at the newest message.")
    ] = True,
    count: Annotated[
        int | None, Parameter(validator=validators.Number(gte=1), help="End after n messages.")
    ] = None,
    grep: Annotated[
        str | None, Parameter(help="Only messages in which this regular expression is found.")
    ] = None,
    grep_in: Annotated[
        tuple[GrepField, ...],
        Parameter(negative="", help="Where to search it; may be repeated."),
    ] = ("value",),
    headers: Annotated[bool, Parameter(negative="", help="Show headers too.")] = False,
    resume: Annotated[bool, Parameter(negative="", help="Resume paused partitions.")] = False,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Read all partitions of a stream as one and write a line per message.

    A line is time, partition, offset, key and value, apart by tabs. With --json it is an object
    with every field; bytes that are no UTF-8 are in base64, under names that end in _base64. The
    order of each partition is kept, between partitions there is none. Ctrl-C ends it.

    For example:

        liftbridge-aio tail orders
        liftbridge-aio tail orders --from -10m --grep "bread|milk" --json
        liftbridge-aio tail orders --from earliest --no-follow
        liftbridge-aio tail orders --partition 0 --from last:100 --count 100
        liftbridge-aio tail orders --grep ^ann$ --grep-in key
    """
    start = parse_from(begin)
    end = parse_until(until, follow=follow, now=datetime.now(UTC))
    wanted = None if grep is None else Grep.parse(grep, grep_in)
    partitions = tuple(dict.fromkeys(partition)) or None
    left = count
    async with while_output_is_read(), connection.client() as client:
        starts: StartAt | Mapping[int, StartAt]
        if isinstance(start, LastMessages):
            starts = await _starts(client, stream, partitions, start.count, resume=resume)
        else:
            starts = start
        where = ALL_PARTITIONS if partitions is None else partitions
        async with (
            client.subscribe(stream, where, starts, end.stop, resume=resume) as messages,
            _ended_at(end.moment),  # only now: to say that there is no such stream takes its time
        ):
            async for batch in messages.batches():
                chosen = [
                    message
                    for message in batch
                    if end.covers(message) and (wanted is None or wanted.finds(message))
                ][:left]
                write_lines(_shown(message, headers=headers, as_json=as_json) for message in chosen)
                if left is not None:
                    left -= len(chosen)
                    if left == 0:
                        break


def _shown(message: Message, *, headers: bool, as_json: bool) -> str:
    return json_line(message_json(message)) if as_json else message_line(message, headers=headers)


async def _starts(
    client: Client, stream: str, partitions: tuple[int, ...] | None, count: int, *, resume: bool
) -> Mapping[int, StartAt]:
    """Find where the last messages of each partition begin."""
    if partitions is None:
        [info] = await fetch_streams(client, [stream])
        partitions = tuple(sorted(info.partitions))
    if resume:  # nothing can be read of a paused partition
        await client.resume_stream(stream, partitions)

    turn = asyncio.Semaphore(_AT_ONCE)
    limit = timer_seconds(client.options.call_timeout) + count / _LEAST_RATE

    async def find(partition: int) -> StartAt:
        async with turn:
            last = await client.last(stream, count, partition, timeout=limit)
        return StartAt.offset(last[0].offset) if last else StartAt.earliest()

    starts = await asyncio.gather(*map(find, partitions))
    return dict(zip(partitions, starts, strict=True))


@asynccontextmanager
async def _ended_at(moment: datetime | None) -> AsyncIterator[None]:
    """End what runs inside when a time has come."""
    wait = None if moment is None else max((moment - datetime.now(UTC)).total_seconds(), 0)
    try:
        async with asyncio.timeout(wait) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
