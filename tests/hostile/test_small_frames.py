"""Peers that send frames of a byte, or of nothing: they take no room, and nobody waits for them."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

import pytest

from hostile.test_hostile_floods import MIB, connected, request, resident
from liftbridge_aio import Client, ClientOptions, LiftbridgeError, StartAt
from liftbridge_aio.broker import EmbeddedBroker
from support.faults import eventually, within
from support.peers.hostile_server import STREAM, Call, HostileServer, Line
from support.peers.http2_bytes import (
    DATA,
    PADDED,
    PING,
    PREFACE,
    SETTINGS_ACK,
    frame,
    message,
    settings,
)
from support.raw import Wire

ROOM: Final = 12 * MIB
"""By how much the process may grow; it was some seventy times what came."""
FRAMES: Final = 40_000
CALL: Final = 1
LAST: Final = b"the last"
"""The payload of the ping ack that follows all frames."""
BOUND: Final = 30.0

SMALL: Final = {
    "padding alone": frame(DATA, PADDED, CALL, b"\0"),
    "single bytes": frame(DATA, 0, CALL, b"\0"),
}


@pytest.mark.parametrize("small", SMALL.values(), ids=list(SMALL))
async def test_the_broker_has_room_and_time_for_others(
    broker: EmbeddedBroker, wire: Wire, small: bytes
) -> None:
    begun = message(b"", length=2**21)  # all of it is waited for
    await wire.publish("s", b"before")
    gc.collect()
    before = resident()
    reader, writer = await asyncio.open_connection(sock=connected(broker))
    writer.write(PREFACE + settings() + SETTINGS_ACK + request(CALL, "PublishAsync"))
    writer.write(frame(DATA, 0, CALL, begun) + small * FRAMES + frame(PING, 0, 0, LAST))
    answered = asyncio.create_task(reader.readuntil(LAST))
    try:
        listener = broker._listener
        assert listener is not None
        await eventually(lambda: any(one._unprocessed for one in listener.connections), BOUND)
        await wire.publish("s", b"meanwhile")
        assert not answered.done()
        await within(BOUND, answered)
        assert resident() - before < ROOM
    finally:
        answered.cancel()
        writer.transport.abort()


@pytest.mark.parametrize("procedure", ["FetchPartitionMetadata", "PublishAsync", "Subscribe"])
@pytest.mark.parametrize("data_lane", [True, False], ids=["lane", "plain"])
async def test_the_client_has_room_for_them(procedure: str, *, data_lane: bool) -> None:
    async def play(line: Line, call: Call) -> bool:
        await line.accept(call)
        for _ in range(2 * FRAMES // 500):
            await line.say(frame(DATA, PADDED, call.number, b"\0") * 500)
        await line.say(frame(PING, 0, 0, LAST))
        return False

    async def use(client: Client) -> None:
        if procedure == "FetchPartitionMetadata":
            await client.fetch_partition_metadata(STREAM, 0)
        elif procedure == "PublishAsync":
            await client.publish(STREAM, b"x", partition=0)
        else:
            async with client.subscribe(
                STREAM, partition=0, start=StartAt.earliest()
            ) as subscription:
                await anext(subscription)

    server = HostileServer()
    options = ClientOptions(data_lane=data_lane, ack_timeout=BOUND, close_timeout=0.1)
    async with server.listening(), Client(server.address, options=options) as client:
        gc.collect()
        before = resident()
        server.plans[procedure] = play
        using = asyncio.create_task(use(client))
        await eventually(lambda: any(line.pongs for line in server.spoiled), BOUND)
        assert resident() - before < ROOM
        using.cancel()
        with pytest.raises((asyncio.CancelledError, LiftbridgeError)):
            await using
