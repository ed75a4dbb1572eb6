"""`liftbridge-aio tail`: write the messages of all partitions of a stream, one line each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Final

from cyclopts import Parameter, validators

from liftbridge_aio._client.client import Client
from liftbridge_aio.model import ALL_PARTITIONS, Message, StartAt
from liftbridge_aio.options import timer_seconds

from .arguments import LastMessages, parse_from, parse_until
from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    Integers,
    OptionalInteger,
)
from .messages import Grep, GrepField, message_json, message_line
from .output import json_line, write_lines
from .partition_states import fetch_streams
from .running import CLIENT, in_event_loop, while_output_is_read

_AT_ONCE: Final = 4
"""Partitions whose last messages are read concurrently, as all of them are in memory."""

_LEAST_RATE: Final = 500
"""Messages per second by which the timeout for reading the last messages grows."""


@in_event_loop(*CLIENT, "liftbridge_aio._subscribe.log_start")
async def tail(
    stream: Annotated[str, Parameter(help="Stream to read.")],
    /,
    *,
    partition: Annotated[
        Integers,
        Parameter(negative="", show_default=False, help="Only this partition; may be repeated."),
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
        Parameter(help="latest, an offset for each partition, or a past or future time."),
    ] = None,
    follow: Annotated[
        bool, Parameter(help="Wait for new messages; otherwise end at the newest one.")
    ] = True,
    count: Annotated[
        OptionalInteger,
        Parameter(validator=validators.Number(gte=1), help="End after this many messages."),
    ] = None,
    grep: Annotated[
        str | None, Parameter(help="Only messages that match this regular expression.")
    ] = None,
    grep_in: Annotated[
        tuple[GrepField, ...],
        Parameter(negative="", help="Parts of messages to search; may be repeated."),
    ] = ("value",),
    headers: Annotated[bool, Parameter(negative="", help="Show headers too.")] = False,
    resume: Annotated[bool, Parameter(negative="", help="Resume paused partitions.")] = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Read all partitions of a stream as one and write a line per message.

    A line has time, partition, offset, key and value, separated by tabs. With --json it is an
    object with every field; bytes that are not UTF-8 are in base64, in fields whose names end in
    _base64. Messages of a partition are in order, those of different partitions are not. Ctrl-C
    ends it.

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
            _ended_at(
                end.moment
            ),  # only now, as it takes a while to learn that a stream is missing
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
    """Return where the last messages of each partition begin."""
    if partitions is None:
        [info] = await fetch_streams(client, [stream])
        partitions = tuple(sorted(info.partitions))

    turn = asyncio.Semaphore(_AT_ONCE)
    limit = timer_seconds(client.options.call_timeout) + count / _LEAST_RATE

    async def find(partition: int) -> StartAt:
        async with turn:
            last = await client.last(stream, count, partition, resume=resume, timeout=limit)
        return StartAt.offset(last[0].offset) if last else StartAt.earliest()

    starts = await asyncio.gather(*map(find, partitions))
    return dict(zip(partitions, starts, strict=True))


@asynccontextmanager
async def _ended_at(moment: datetime | None) -> AsyncIterator[None]:
    """End the body at a time."""
    wait = None if moment is None else max((moment - datetime.now(UTC)).total_seconds(), 0)
    try:
        async with asyncio.timeout(wait) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
