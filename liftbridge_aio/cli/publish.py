"""`liftbridge-aio publish`: publish messages from the command line, stdin or a file."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter, validators

from liftbridge_aio.errors import InvalidRequest, MessageTooLarge
from liftbridge_aio.model import Ack, AckPolicy, Partitioner
from liftbridge_aio.partitioner import by_key, round_robin

from .arguments import BadArgument, encode_argument, parse_headers
from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags, OptionalInteger
from .output import write_json, write_line
from .running import CLIENT, discard, in_event_loop, progress_shown, wait_readable

_BATCH: Final = 100
_CHUNK: Final = 65_536
"""Bytes that are read at once."""


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
    file: Annotated[
        Path | None, Parameter(help="Publish the lines of this file, one message each.")
    ] = None,
    key: Annotated[str | None, Parameter(help="Key of the messages.")] = None,
    key_separator: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="Text between key and value in each line or value; without it there is no key.",
        ),
    ] = None,
    header: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="name=value; may be repeated."),
    ] = (),
    partition: Annotated[
        OptionalInteger,
        Parameter(help="Partition. Default: chosen by the key; without a key, each in turn."),
    ] = None,
    count: Annotated[
        OptionalInteger,
        Parameter(
            validator=validators.Number(gte=1),
            help="End after this many messages; values are repeated until then.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        Parameter(validator=validators.Number(gt=0), help="Most messages per second."),
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

    A line has partition, offset and subject of the message. Progress is shown on stderr if that is
    a terminal and the lines go elsewhere.

    For example:

        liftbridge-aio publish orders "first" "second" --key ann
        liftbridge-aio publish orders - --ack-policy all
        liftbridge-aio publish orders --file orders.txt --key-separator :
        liftbridge-aio publish orders "1 bread" --header type=order --count 100 --rate 20 --json
    """
    if (bool(values), stdin, file is not None).count(True) != 1:
        raise BadArgument(
            "give what to publish: either values, or - for the lines of stdin, or --file"
        )
    if key is not None and key_separator is not None:
        raise BadArgument("give either --key or --key-separator, not both")
    if key_separator == "":
        raise BadArgument("the separator of key and value must not be empty")
    if partition is None and key is None and expected_offset is not None:
        partition = 0
    headers = parse_headers(header)
    policy = AckPolicy[ack_policy.upper()]
    split = partial(_split, encode_argument(key_separator)) if key_separator else _without_key
    acks = _Acks()
    progress = progress_shown(lambda: acks.count, count or len(values) or None)
    if stdin and sys.stdin is None:
        raise OSError("stdin is closed, so it has no lines to publish")
    with nullcontext(sys.stdin) if file is None else file.open() as lines:
        async with (
            connection.client(partitioner=_by_key_or_in_turn()) as client,
            nullcontext() if sys.stdout.isatty() else progress,
        ):
            if values:
                texts = _encoded(values, repeat=count is not None)
            else:
                longest = client.options.max_message_bytes + len(key_separator or "")
                texts = _read_lines(lines.fileno(), longest)
            if create:
                await client.create_stream(stream, exist_ok=True)

            async def publish_text(text: bytes, number: int) -> asyncio.Future[Ack | None]:
                key_of_text, value = split(text)
                return await client.publish_async(
                    stream,
                    value,
                    key=key_of_text if key is None else encode_argument(key),
                    headers=headers,
                    partition=partition,
                    ack_policy=policy,
                    expected_offset=None if expected_offset is None else expected_offset + number,
                )

            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(acks.write(as_json=as_json))
                    refused = await _publish_each(_paced(texts, rate), publish_text, acks, count)
                    acks.expect(None)
            finally:
                acks.discard()
    if refused is not None:
        number, error = refused
        error.message = f"{'value' if values else 'line'} {number + 1}: {error.message}"
        error.stream = stream
        raise error


async def _publish_each(
    texts: AsyncIterator[bytes],
    publish: Callable[[bytes, int], Awaitable[asyncio.Future[Ack | None]]],
    acks: _Acks,
    count: int | None,
) -> tuple[int, InvalidRequest] | None:
    """Publish texts until there were `count`.

    Returns:
        The number of the text that was refused, and the error, so that the acks of those before it
        are written before it is raised; None if all were sent.
    """
    number = 0
    try:
        async for text in texts:
            acks.expect(await publish(text, number))  # bounded by the client's in-flight window
            number += 1
            if number == count:
                break
            if number % _BATCH == 0:
                await asyncio.sleep(0)  # so that acks are written if nothing waits
    except InvalidRequest as error:
        return number, error
    return None


class _Acks:
    """Writes the acks in the order of publishing, each as soon as it arrives."""

    def __init__(self) -> None:
        self._pending: asyncio.Queue[asyncio.Future[Ack | None] | None] = asyncio.Queue()
        self.count = 0
        """Publishes that succeeded."""

    def expect(self, future: asyncio.Future[Ack | None] | None) -> None:
        """Add a publish; None: there are no more."""
        self._pending.put_nowait(future)

    async def write(self, *, as_json: bool) -> None:
        """Write the acks until there are no more. Cancelling loses no publish.

        Raises:
            LiftbridgeError: a publish failed.
        """
        while (future := await self._pending.get()) is not None:
            ack = await future
            self.count += 1
            if ack is None:  # with ack policy none there are no acks
                continue
            if as_json:
                fields = {"partition": ack.partition, **asdict(ack)}
                fields["ack_policy"] = ack.ack_policy.name.lower()
                fields["ack_error"] = ack.ack_error.name.lower()
                write_json(fields)
            else:
                write_line(f"{ack.partition}\t{ack.offset}\t{ack.msg_subject}")

    def discard(self) -> None:
        """Cancel what is left."""
        left = [self._pending.get_nowait() for _ in range(self._pending.qsize())]
        discard(future for future in left if future is not None)


def _by_key_or_in_turn() -> Partitioner:
    """Choose by the key; without one, each partition in turn, the first one at random."""
    in_turn = round_robin(start=random.randrange(2**16))  # noqa: S311 (it is no secret)

    def choose(stream: str, key: bytes | None, value: bytes, partition_count: int) -> int:
        chooser = in_turn if key is None else by_key
        return chooser(stream, key, value, partition_count)

    return choose


def _split(separator: bytes, text: bytes) -> tuple[bytes | None, bytes]:
    key, found, value = text.partition(separator)
    return (key, value) if found else (None, text)


def _without_key(text: bytes) -> tuple[None, bytes]:
    return None, text


async def _encoded(values: Sequence[str], *, repeat: bool) -> AsyncIterator[bytes]:
    encoded = [encode_argument(value) for value in values]
    for value in itertools.cycle(encoded) if repeat else encoded:
        yield value


async def _paced(texts: AsyncIterator[bytes], rate: float | None) -> AsyncIterator[bytes]:
    """Yield texts, at most `rate` per second."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    async for text in texts:
        if rate is not None:
            await asyncio.sleep(due - loop.time())
            due = max(due, loop.time() - 1) + 1 / rate  # a stall is made up for, within a second
        yield text


async def _read_lines(descriptor: int, longest: int) -> AsyncIterator[bytes]:
    r"""Yield the lines of a file without their `\n`, which the last one may lack.

    Reads without a thread, and without making a terminal non-blocking. Cancelling ends the wait at
    once.

    Raises:
        MessageTooLarge: a line has more than `longest` bytes; no more of it is read.
    """
    begun: list[bytes] = []
    """The parts of a line whose end is not read yet."""
    size = 0
    while True:
        await wait_readable(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            for line in lines:
                yield line
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > longest:
            raise MessageTooLarge(f"it has more than {longest} bytes without a line end")
    if size:
        yield b"".join(begun)
