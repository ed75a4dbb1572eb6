"""Whatever a server does, clients end in time, in order, and with errors of the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from liftbridge_aio import Client, ClientOptions, LiftbridgeError, StartAt
from liftbridge_aio.retry import Backoff
from support.faults import nothing_left_behind, within
from support.peers.hostile_scenes import SCENES, Effect, Scene
from support.peers.hostile_server import STORED, STREAM, HostileServer

OPTIONS: Final = ClientOptions(
    backoff=Backoff(initial=0.001, maximum=0.005),
    call_timeout=60.0,
    ack_timeout=60.0,
    health_timeout=60.0,
    connect_timeout=60.0,
    close_timeout=0.1,
    max_receive_bytes=2**20,
)

PARTS: Final = 3
PATIENCE: Final = 20.0
"""Seconds after which something hangs; no timeout of the client's is as short."""
FINE: Final = "as if nothing had been"

Use = Callable[[Client], Awaitable[Any]]


async def ask(client: Client) -> None:
    await client.fetch_partition_metadata(STREAM, 0)


async def publish(client: Client) -> None:
    ack = await client.publish(STREAM, b"x", partition=0)
    assert ack.offset == 7


async def read(client: Client) -> None:
    async with client.subscribe(STREAM, partition=0, start=StartAt.earliest()) as subscription:
        for offset in range(STORED):
            found = await anext(subscription)
            assert (found.offset, found.value) == (offset, b"%d" % offset)


USES: Final[dict[str, Use]] = {
    "FetchPartitionMetadata": ask,
    "PublishAsync": publish,
    "Subscribe": read,
}


async def outcome(use: Use, client: Client) -> str:
    """Return the outcome of a use of the client, which must end without the client's timeouts."""
    try:
        await within(PATIENCE, use(client))
    except LiftbridgeError as error:
        return type(error).__name__
    return FINE


async def play(scene: Scene, name: str, server: HostileServer, client: Client) -> str:
    """Have the server play a scene; tell how the use of the client ended."""
    use = USES[name]
    server.spoiled.clear()
    server.plans[name] = scene.play
    found = await outcome(use, client)
    [line] = server.spoiled
    if scene.effect is Effect.NONE:
        assert found == FINE
        await line.dismiss()  # its settings may have made it useless
    elif scene.effect is Effect.ENDS_LINK:
        await within(PATIENCE, line.gone.wait())
    assert await outcome(use, client) == FINE
    if name == "PublishAsync":
        await server.serving[name].dismiss()  # the next scene is to find a new session
    return found


async def play_all(name: str, scenes: dict[str, Scene]) -> None:
    """Have one client go through scenes, one after the other: it works after each of them."""
    server = HostileServer()
    async with server.listening():
        async with Client(server.address, options=OPTIONS) as client:
            for title, scene in scenes.items():
                try:
                    await play(scene, name, server, client)
                except BaseException as error:
                    error.add_note(f"in the scene {title!r} of {name}")
                    raise
        for line in server.lines:
            await within(PATIENCE, line.gone.wait())


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("data_path", ["lane", "plain"], indirect=True)
@pytest.mark.usefixtures("data_path")
async def test_scenes(part: int) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    scenes = {title: SCENES[title] for title in list(SCENES)[part::PARTS]}
    async with nothing_left_behind(), asyncio.TaskGroup() as plays:
        for name in USES:
            plays.create_task(play_all(name, scenes))
    assert not problems
