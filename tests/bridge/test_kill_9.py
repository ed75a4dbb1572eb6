"""Bridges that are killed again and again lose nothing, and double what they may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

import pytest

from liftbridge_aio import StreamOptions
from support.bridges import Ends, Forks, eventually

KILLS: Final = 10
LONGEST: Final = 0.3
"""Seconds that a bridge copies before it is killed, at most."""
PAUSE: Final = 0.004
"""Seconds between two messages."""
SHORT: Final = ("--message-timeout", "1s")

Publish = Callable[[bytes], Awaitable[None]]
Arriving = AbstractAsyncContextManager[list[bytes]]


@pytest.mark.timeout(300)
async def test_kills_lose_nothing_and_double_only_what_they_may(ends: Ends) -> None:
    """All directions at once, as each waits most of the time."""
    stan, nsq, to_stan, to_nsq, original, mirror = (
        replace(ends, name=f"{ends.name}-{direction}")
        for direction in ("stan", "nsq", "to-stan", "to-nsq", "original", "mirror")
    )
    checked = StreamOptions(optimistic_concurrency_control=True)
    for each in (stan, nsq, to_stan, to_nsq, original, mirror):
        await ends.lift.create_stream(each.name, options=checked)
    async with asyncio.TaskGroup() as group:
        runs = [
            group.create_task(killed(Forks(*urls, *SHORT), publish, arriving))
            for urls, publish, arriving in (
                ((stan.stan_url, stan.lift_url), stan.to_channel, stan.arriving_in_stream()),
                ((nsq.nsq_url, nsq.lift_url), nsq.to_topic, nsq.arriving_in_stream()),
                (
                    (to_stan.lift_url, to_stan.stan_url),
                    to_stan.to_stream,
                    to_stan.arriving_in_channel(),
                ),
                (
                    (to_nsq.lift_url, to_nsq.nsq_url),
                    to_nsq.to_stream,
                    to_nsq.arriving_in_topic(),
                ),
                (
                    (original.lift_url, mirror.lift_url),
                    original.to_stream,
                    mirror.arriving_in_stream(),
                ),
            )
        ]
    names = ("stan >", "nsq >", "> stan", "> nsq", "mirror")
    for run, name in zip(runs, names, strict=True):
        published, arrived = run.result()
        assert set(arrived) == set(published), name
        if name in {"stan >", "mirror"}:
            assert arrived == published, name
        print(name, len(published), "messages", len(arrived) - len(published), "doubled")  # noqa: T201


async def killed(
    forks: Forks, publish: Publish, arriving: Arriving
) -> tuple[list[bytes], list[bytes]]:
    """Kill bridges while messages are published; return these, and those that have arrived."""
    published: list[bytes] = []
    enough = asyncio.Event()

    async def publish_on() -> None:
        while not enough.is_set():
            value = b"%d" % len(published)
            await publish(value)
            published.append(value)
            await asyncio.sleep(PAUSE)

    async with forks, arriving as arrived, asyncio.TaskGroup() as group:
        group.create_task(publish_on())
        await forks.kill_often(KILLS, arrived, LONGEST)
        enough.set()
        await forks.start("--once")
        assert await forks.ended() == 0
        await eventually(lambda: set(published) <= set(arrived))
    return published, arrived
