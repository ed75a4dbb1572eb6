"""The same load with the same faults on both paths of messages: equal histories, and sound ones."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    Retry,
    StartAt,
    StreamOptions,
)
from liftbridge_aio.testing import (
    FaultProxy,
    Guarantee,
    History,
    PlannedFault,
    check_history,
    plan_faults,
)
from support.faults import BOUND, QUICK, nothing_left_behind
from support.servers.node import Server
from support.traffic import flowing

pytestmark = pytest.mark.real_time

DATA_PATHS: Final = ["lane"]

MESSAGES: Final = 600
Given = list[tuple[int, bytes]]
"""Offsets and values, as a reader was given them."""

FEWEST: Final = 1000
SEEDS: Final = (1, 7)


def options_through(proxy: FaultProxy, *, data_lane: bool, ack_timeout: float) -> ClientOptions:
    """Options that lead every link through the proxy, and soon find out that one is dead."""
    return ClientOptions(
        address_map=lambda _: proxy.address,
        backoff=QUICK,
        health_interval=0.5,
        health_timeout=0.5,
        data_lane=data_lane,
        ack_timeout=ack_timeout,
    )


def plan(seed: int) -> list[PlannedFault]:
    return plan_faults(seed, 8, max_lasts=0.15, max_pause=0.08)


async def publish_numbers(client: Client, stream: str, history: History) -> None:
    """One after the other, each stored exactly once: what the log holds must not depend on luck."""
    for number in range(MESSAGES):
        value = b"%d" % number
        history.sent(value, partition=0)
        await client.publish(stream, value, expected_offset=number, retry=Retry(attempts=100))
        history.acked(value, partition=0)


async def tail(
    client: Client, stream: str, history: History, into: list[tuple[int, bytes]]
) -> None:
    async with client.subscribe(stream, start=StartAt.earliest()) as subscription:
        async for message in subscription:
            history.delivered(message.value, partition=0, offset=message.offset, reader="tail")
            into.append((message.offset, message.value))
            if len(into) == MESSAGES:
                return


async def run(
    server: Server, stream: str, seed: int, *, data_lane: bool
) -> list[tuple[int, bytes]]:
    """Return the messages delivered to a reader during publishes on a faulty network."""
    history = History(clock=asyncio.get_running_loop().time)
    given: Given = []
    async with FaultProxy(server.address, seed=seed) as proxy:
        options = options_through(proxy, data_lane=data_lane, ack_timeout=1.0)
        async with Client(proxy.address, options=options) as client:
            await client.create_stream(
                stream, options=StreamOptions(optimistic_concurrency_control=True)
            )
            async with asyncio.timeout(2 * BOUND), asyncio.TaskGroup() as tasks:
                tasks.create_task(publish_numbers(client, stream, history))
                tasks.create_task(tail(client, stream, history, given))
                await proxy.play(plan(seed))
    history.finished(partition=0, reader="tail")
    check_history(history, Guarantee.EXACTLY_ONCE).raise_for_defects()
    return given


@pytest.mark.parametrize("seed", SEEDS)
async def test_both_paths_have_the_same_history(
    server: Server, stream_name: str, seed: int
) -> None:
    lane = await run(server, f"{stream_name}-lane", seed, data_lane=True)
    plain = await run(server, f"{stream_name}-plain", seed, data_lane=False)
    assert lane == plain == [(number, b"%d" % number) for number in range(MESSAGES)]


@pytest.mark.parametrize("data_lane", [True, False], ids=["lane", "plain"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_pipelined_load_has_a_sound_history(
    server: Server, stream_name: str, seed: int, *, data_lane: bool
) -> None:
    """Hundreds in flight at any fault, and a reader beside them."""
    async with nothing_left_behind(), FaultProxy(server.address, seed=seed) as proxy:
        options = options_through(proxy, data_lane=data_lane, ack_timeout=2.0)
        async with Client(proxy.address, options=options) as client:
            await client.create_stream(stream_name)
            async with flowing(client, stream_name, publishers=200) as flow:
                await proxy.play(plan(seed))
                await flow.more(FEWEST)
        assert not flow.lost
