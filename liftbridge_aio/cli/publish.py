"""`liftbridge-aio publish`: messages from the command line or from stdin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from liftbridge_aio.model import Ack, AckPolicy

from .abandoning import abandon
from .arguments import BadArgument, encode_argument, parse_headers
from .connection import DEFAULT_CONNECTION, AsJson, Connection
from .output import write_json, write_line
from .running import CLIENT, in_event_loop
from .stdin import stdin_lines

_Pending: TypeAlias = "asyncio.Queue[asyncio.Future[Ack | None] | None]"
"""Acks in the order of publishing; None ends them."""

_STDIN: Final = "-"
_BATCH: Final = 100


@in_event_loop(*CLIENT)
async def publish(
    stream: Annotated[str, Parameter(help="Stream to publish to.")],
    /,
    *values: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True, help="One message each; a single - takes the lines of stdin."
        ),
    ],
    key: Annotated[str | None, Parameter(help="Key of the messages.")] = None,
    header: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="name=value; may be repeated."),
    ] = (),
    partition: Annotated[
        int | None, Parameter(help="Partition; left out, the key chooses it, else it is 0.")
    ] = None,
    ack_policy: Annotated[
        Literal["leader", "all", "none"], Parameter(help="When the server confirms.")
    ] = "leader",
    expected_offset: Annotated[
        int | None,
        Parameter(help="Offset the first message must get; the others follow (needs OCC)."),
    ] = None,
    create: Annotated[
        bool, Parameter(negative="", help="Create the stream if there is none.")
    ] = False,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Publish messages and write one line per ack.

    A line is the offset and the subject on which the message arrived.

    For example:

        liftbridge-aio publish orders "first" "second" --key ann
        liftbridge-aio publish orders - --ack-policy all
        liftbridge-aio publish orders "1 bread" --header type=order --json
    """
    headers = parse_headers(header)
    policy = AckPolicy[ack_policy.upper()]
    pending: _Pending = asyncio.Queue()
    async with connection.client() as client:
        try:
            async with asyncio.TaskGroup() as group:
                if create:
                    await client.create_stream(stream, exist_ok=True)
                group.create_task(_report(pending, as_json=as_json))
                count = 0
                async for value in _messages(values):
                    future = await client.publish_async(
                        stream,
                        value,
                        key=None if key is None else encode_argument(key),
                        headers=headers,
                        partition=partition,
                        ack_policy=policy,
                        expected_offset=None
                        if expected_offset is None
                        else expected_offset + count,
                    )
                    pending.put_nowait(future)  # bounded by the client's in-flight window
                    count += 1
                    if count % _BATCH == 0:
                        await asyncio.sleep(0)  # so that acks come out although stdin never waits
                pending.put_nowait(None)
        finally:
            abandon(_left(pending))


async def _messages(values: Sequence[str]) -> AsyncIterator[bytes]:
    if not values:
        message = "nothing to publish; give values, or - for the lines of stdin"
        raise BadArgument(message)
    if tuple(values) == (_STDIN,):
        async for line in stdin_lines():
            yield line
        return
    for value in values:
        yield encode_argument(value)


async def _report(pending: _Pending, *, as_json: bool) -> None:
    """Write the acks in the order of publishing, each as soon as it is there."""
    while (future := await pending.get()) is not None:
        ack = await future
        if ack is None:  # with ack policy none there is nothing to say
            continue
        if as_json:
            fields = asdict(ack)
            fields["ack_policy"] = ack.ack_policy.name.lower()
            fields["ack_error"] = ack.ack_error.name.lower()
            write_json(fields)
        else:
            write_line(f"{ack.offset}\t{ack.msg_subject}")


def _left(pending: _Pending) -> Iterator[asyncio.Future[Ack | None]]:
    while not pending.empty():
        future = pending.get_nowait()
        if future is not None:
            yield future
