"""`liftbridge-aio publish`: publish messages from the command line or from stdin."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from liftbridge_aio.model import Ack, AckPolicy

from .arguments import BadArgument, encode_argument, parse_headers
from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags, OptionalInteger
from .output import write_json, write_line
from .running import CLIENT, discard, in_event_loop

_Pending: TypeAlias = "asyncio.Queue[asyncio.Future[Ack | None] | None]"
"""Acks in the order of publishing, then None."""

_BATCH: Final = 100
_CHUNK: Final = 65_536
"""Bytes of stdin that are read at once."""


@in_event_loop(*CLIENT)
async def publish(
    stream: Annotated[str, Parameter(help="Stream to publish to.")],
    /,
    *values: Annotated[
        str, Parameter(help="One message each; those that begin with a hyphen come after --.")
    ],
    stdin: Annotated[
        bool,
        Parameter(
            name="-",
            negative="",
            show_default=False,
            help="Publish the lines of stdin, one message each.",
        ),
    ] = False,
    key: Annotated[str | None, Parameter(help="Key of the messages.")] = None,
    header: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="name=value; may be repeated."),
    ] = (),
    partition: Annotated[
        OptionalInteger, Parameter(help="Partition. Default: chosen by the key, else 0.")
    ] = None,
    ack_policy: Annotated[
        Literal["leader", "all", "none"], Parameter(help="When the server acks.")
    ] = "leader",
    expected_offset: Annotated[
        OptionalInteger,
        Parameter(
            help="Offset that the first message must get; the others follow. For streams with"
            " optimistic concurrency control."
        ),
    ] = None,
    create: Annotated[
        bool, Parameter(negative="", help="Create the stream if it does not exist.")
    ] = False,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> None:
    """Publish messages and write one line per ack.

    A line has the offset and the subject of the message.

    For example:

        liftbridge-aio publish orders "first" "second" --key ann
        liftbridge-aio publish orders - --ack-policy all
        liftbridge-aio publish orders "1 bread" --header type=order --json
    """
    if bool(values) == stdin:
        message = "nothing to publish; give values, or - for the lines of stdin"
        if stdin:
            message = "give either values or - for the lines of stdin, not both"
        raise BadArgument(message)
    messages = _stdin_lines() if stdin else _encoded(values)
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
                async for value in messages:
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
                        await asyncio.sleep(0)  # so that acks are written though stdin never waits
                pending.put_nowait(None)
        finally:
            discard(_left(pending))


async def _encoded(values: Sequence[str]) -> AsyncIterator[bytes]:
    for value in values:
        yield encode_argument(value)


async def _report(pending: _Pending, *, as_json: bool) -> None:
    """Write the acks in the order of publishing, each as soon as it arrives."""
    while (future := await pending.get()) is not None:
        ack = await future
        if ack is None:  # with ack policy none there are no acks
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


async def _stdin_lines() -> AsyncIterator[bytes]:
    r"""Yield the lines of stdin without their `\n`, which the last one may lack.

    Reads without a thread, and without making the terminal non-blocking. Cancelling ends the wait
    at once.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while True:
        await _wait_readable(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except (PermissionError, NotImplementedError):
        return  # a file is always readable; otherwise reads must block
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
