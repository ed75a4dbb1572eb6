"""`liftbridge-aio tail`: write the messages of all partitions of a stream, one line each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from liftbridge_aio._client.client import Client
from liftbridge_aio.model import Message, StartAt
from liftbridge_aio.options import timer_seconds

from .arguments import BadArgument, LastMessages, Until, parse_from, parse_until
from .connection import (
    DEFAULT_CONNECTION,
    AsJson,
    ConnectionFlags,
    Integers,
    OptionalInteger,
    not_empty,
)
from .messages import Grep, GrepField, message_line
from .partition_states import fetch_streams
from .reading import (
    Acks,
    CommittedFlag,
    Format,
    MessageWriter,
    OnMalformedFlag,
    committed_of,
    message_writer,
    reading_client,
)
from .running import CLIENT, in_event_loop, while_output_is_read

if TYPE_CHECKING:
    from liftbridge_aio.groups.consumer_group import ConsumerGroup
    from liftbridge_aio.transactions.reading import ReadCommitted

_AT_ONCE: Final = 4
"""Partitions whose last messages are read concurrently, as all of them are in memory."""

_LEAST_RATE: Final = 500
"""Messages per second by which the timeout for reading the last messages grows."""


@in_event_loop(
    *CLIENT, "liftbridge_aio._subscribe.log_start", "liftbridge_aio.groups.consumer_group"
)
async def tail(
    stream: Annotated[str, Parameter(help="Stream to read.")],
    /,
    *,
    partition: Annotated[
        Integers,
        Parameter(negative="", show_default=False, help="Only this partition; may be repeated."),
    ] = (),
    group: Annotated[
        str | None,
        Parameter(
            validator=not_empty,
            help="Read as a member of this consumer group, which stores what was written as read.",
        ),
    ] = None,
    begin: Annotated[
        str | None,
        Parameter(
            name="--from",
            allow_leading_hyphen=True,
            help="earliest, latest, new, an offset, a time (2026-11-21T09:00Z), -10m for ago, or "
            "last:n; for each partition. Default: last:10; for a group that has no position: new.",
        ),
    ] = None,
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
    unpause: Annotated[bool, Parameter(negative="", help="Resume paused partitions.")] = False,
    committed: CommittedFlag = False,
    acks: Acks = False,
    on_malformed: OnMalformedFlag = "error",
    template: Format = None,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    r"""Read all partitions of a stream as one and write a line per message.

    A line has time, partition, offset, key and value, separated by tabs. With --json it is an
    object with every field; bytes that are not UTF-8 are in base64, in fields whose names end in
    _base64. Messages of a partition are in order, those of different partitions are not. It waits
    through outages and reports them on stderr: 30 seconds if the reading has an end, otherwise for
    ever; --timeout limits both. Ctrl-C ends it.

    For example:

        liftbridge-aio tail orders
        liftbridge-aio tail orders --from -10m --grep "bread|milk" --json
        liftbridge-aio tail orders --from earliest --no-follow --format '%p %o %k %v\n'
        liftbridge-aio tail orders --partition 0 --from last:100 --count 100
        liftbridge-aio tail orders --grep ^ann$ --grep-in key
        liftbridge-aio tail orders --group audit --from earliest
    """
    start = parse_from(begin or ("new" if group else "last:10"))
    end = parse_until(until, follow=follow, now=datetime.now(UTC))
    wanted = None if grep is None else Grep.parse(grep, grep_in)
    partitions = tuple(dict.fromkeys(partition)) or None
    shown = committed_of(committed, acks=acks, on_malformed=on_malformed)
    write = message_writer(template, as_json=as_json, line=partial(message_line, headers=headers))

    def is_wanted(message: Message) -> bool:
        return end.covers(message) and (wanted is None or wanted.finds(message))

    async with while_output_is_read(), reading_client(connection) as client:
        if group is not None:
            if partitions or end != Until() or isinstance(start, LastMessages):
                raise BadArgument(
                    "--group goes without --partition, --until, --no-follow and last:n"
                )
            member = client.group(group, [stream], start=start, unpause=unpause, committed=shown)
            await _read_as_member(member, is_wanted, write, count)
            return
        if partitions is None:
            [info] = await fetch_streams(client, [stream])
            partitions = tuple(sorted(info.partitions))
        starts: StartAt | Mapping[int, StartAt]
        if isinstance(start, LastMessages):
            starts = await _starts(client, stream, partitions, start.count, shown, unpause=unpause)
        else:
            starts = start
        left = count
        async with (
            client.subscribe(
                stream,
                partition=partitions,
                start=starts,
                stop=end.stop,
                unpause=unpause,
                committed=shown,
            ) as messages,
            _ended_at(
                end.moment
            ),  # only now, as it takes a while to learn that a stream is missing
        ):
            async for batch in messages.batches():
                chosen = [message for message in batch if is_wanted(message)][:left]
                write(chosen)
                if left is not None:
                    left -= len(chosen)
                    if left == 0:
                        break


async def _read_as_member(
    member: ConsumerGroup,
    is_wanted: Callable[[Message], bool],
    write: MessageWriter,
    count: int | None,
) -> None:
    """Write messages until there were so many; what was written is committed."""
    left = count
    async with member:
        async for message in member:
            if is_wanted(message):
                write([message])
                if left is not None:
                    left -= 1
                    if left == 0:
                        await member.commit(message)
                        break


async def _starts(
    client: Client,
    stream: str,
    partitions: tuple[int, ...],
    count: int,
    committed: bool | ReadCommitted,
    *,
    unpause: bool,
) -> Mapping[int, StartAt]:
    """Return where the last messages of each partition begin."""
    turn = asyncio.Semaphore(_AT_ONCE)
    limit = timer_seconds(client.options.call_timeout) + count / _LEAST_RATE

    async def find(partition: int) -> StartAt:
        async with turn:
            last = await client.last(
                stream,
                n=count,
                partition=partition,
                unpause=unpause,
                committed=committed,
                timeout=limit,
            )
            if not last:
                return StartAt.earliest()
            at = StartAt.offset(last[0].offset)
            if committed is False:
                return at
            # It may be one of the last of a transaction, which is shown behind its offset.
            async with client.read(
                stream, start=at, partition=partition, unpause=unpause, committed=committed
            ) as reading:
                before = reading.checkpoint()
                async for message in reading:
                    if message.offset == at.value:
                        break
                    before = reading.checkpoint()
        return before

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
