"""A member of a group that tells what it does: as a task, or as a program of its own.

As a program it writes what it tells as JSON, one value per line, and leaves when its input ends:

    python_member.py ADDRESS[,ADDRESS…] GROUP CONSUMER COMMIT_SECONDS STREAM…
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from liftbridge_aio import Client, ClientOptions, StartAt

OPTIONS: Final = ClientOptions(health_interval=1.0, health_timeout=1.0, connect_timeout=2.0)
JOIN_TIMEOUT: Final = 30.0
NOT_A_MEMBER: Final = -1
LOOK_INTERVAL: Final = 0.05
"""Seconds from one look at the member's share to the next."""


async def take_part(
    addresses: Sequence[str],
    group_name: str,
    streams: Sequence[str],
    consumer_id: str,
    commit_interval: float,
    tell: Callable[[dict[str, Any]], None],
) -> None:
    """Be a member of a group until cancelled, which makes it leave in order.

    Args:
        addresses: The brokers.
        group_name: The id of the group.
        streams: What is read, from the earliest message or the position of the group on.
        consumer_id: The member's name.
        commit_interval: Seconds from one commit to the next.
        tell: Takes what happens, in the words of the member in Go.
    """

    def say(event: str, **details: Any) -> None:
        tell({"event": event, "at": time.time_ns(), **details})

    async with (
        Client(*addresses, options=OPTIONS) as client,
        client.group(
            group_name,
            streams,
            consumer_id=consumer_id,
            start=StartAt.earliest(),
            commit_interval=commit_interval,
            timeout=JOIN_TIMEOUT,
        ) as group,
    ):

        async def look() -> None:
            known = None
            while True:
                if known != (known := (group.epoch, group.assignment)):
                    assignments = [
                        {"stream": stream, "partitions": [partition]}
                        for stream, partition in group.assignment
                    ]
                    epoch = NOT_A_MEMBER if group.epoch is None else group.epoch
                    say("assigned", epoch=epoch, assignments=assignments)
                await asyncio.sleep(LOOK_INTERVAL)

        looking = asyncio.create_task(look())
        try:
            async for message in group:
                say(
                    "handled",
                    stream=message.stream,
                    partition=message.partition,
                    offset=message.offset,
                    value=message.value.decode(),
                )
        finally:
            looking.cancel()


async def _main(arguments: Sequence[str]) -> None:
    addresses, group_name, consumer_id, commit_interval, *streams = arguments

    def tell(told: dict[str, Any]) -> None:
        print(json.dumps(told), flush=True)  # noqa: T201 - it is what the program is for

    taking_part = asyncio.create_task(
        take_part(
            addresses.split(","), group_name, streams, consumer_id, float(commit_interval), tell
        )
    )
    ending = asyncio.create_task(_input_ended())
    await asyncio.wait([taking_part, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    taking_part.cancel()
    with suppress(asyncio.CancelledError):
        await taking_part


async def _input_ended() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
