"""Faults of the proxy that hold until they are undone, against plain TCP programs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio.testing import (
    Direction,
    FaultKind,
    FaultProxy,
    FaultRecord,
    FrameType,
    Part,
)
from support.peers.http2_streams import SETTINGS, frame
from support.peers.tcp import BOUND, Dial, EchoServer, ended, eventually, exchange, reset_by_hand

QUIET = 0.1
"""Seconds in which nothing comes."""


async def silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), QUIET)
    except TimeoutError:
        return True
    return False


async def seconds_for(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> float:
    began = asyncio.get_running_loop().time()
    assert await exchange(streams, b"ping") == b"ping"
    return asyncio.get_running_loop().time() - began


# Half open


@pytest.mark.parametrize("direction", [Direction.TO_TARGET, Direction.TO_CLIENTS])
async def test_one_direction_may_freeze_alone(
    dial: Dial, proxy: FaultProxy, echo: EchoServer, direction: Direction
) -> None:
    reader, writer = await dial()
    assert await exchange((reader, writer), b"warm") == b"warm"
    proxy.freeze(direction)
    writer.write(b"held")
    assert await silent(reader)
    assert echo.received == (4 if direction is Direction.TO_TARGET else 8)
    proxy.thaw(direction)
    assert await asyncio.wait_for(reader.readexactly(4), BOUND) == b"held"


async def test_swallowed_bytes_meet_no_resistance_and_the_link_dies_of_healing(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    reader, writer = await dial()
    assert await exchange((reader, writer), b"warm") == b"warm"
    idle = await dial()
    assert await exchange(idle, b"idle") == b"idle"
    proxy.swallow()
    late = await dial()
    size = 16 * 2**20
    for each in (writer, late[1]):
        each.write(bytes(size))
        await asyncio.wait_for(each.drain(), BOUND)
    await eventually(lambda: proxy.statistics().swallowed_bytes == 2 * size)
    assert proxy.statistics().held_bytes == 0
    assert proxy.statistics().open_connections == 3
    assert echo.received == 8
    await proxy.heal()
    for stream in (reader, late[0]):
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(stream.read(1), BOUND)
    assert await exchange(idle, b"idle") == b"idle"
    assert await exchange(await dial(), b"again") == b"again"


async def test_a_link_that_lost_bytes_stays_dead_when_only_thawed(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    reader, writer = await dial()
    assert await exchange((reader, writer), b"warm") == b"warm"
    proxy.swallow(Direction.TO_TARGET)
    writer.write(b"lost")
    await eventually(lambda: proxy.statistics().swallowed_bytes == 4)
    proxy.thaw()
    writer.write(b"too")
    await eventually(lambda: proxy.statistics().swallowed_bytes == 7)
    assert echo.received == 4
    echo.writers[0].write(b"back")
    assert await asyncio.wait_for(reader.readexactly(4), BOUND) == b"back"


@pytest.mark.parametrize("end", ["eof", "reset"])
async def test_the_end_of_one_program_is_swallowed_too(
    dial: Dial, proxy: FaultProxy, echo: EchoServer, end: str
) -> None:
    _, writer = streams = await dial()
    assert await exchange(streams, b"warm") == b"warm"
    proxy.swallow()
    if end == "eof":
        writer.close()
    else:
        reset_by_hand(writer)
    await eventually(
        lambda: any(f.kind is FaultKind.SWALLOW and f.connection for f in proxy.faults)
    )
    assert proxy.statistics().open_connections == 1
    assert echo.ended == 0
    await proxy.heal()
    await eventually(lambda: echo.errors == ["ConnectionResetError"])
    assert proxy.statistics().open_connections == 0


@pytest.mark.parametrize(
    "fault",
    [
        lambda proxy: proxy.freeze(),
        lambda proxy: proxy.swallow(),
        lambda proxy: proxy.delay(60.0),
        lambda proxy: proxy.throttle(1),
        lambda proxy: proxy.truncate(Direction.BOTH, times=None),
    ],
    ids=["freeze", "swallow", "delay", "throttle", "truncate"],
)
async def test_closing_is_bounded_whatever_stalls(
    echo: EchoServer, fault: Callable[[FaultProxy], None]
) -> None:
    before = asyncio.all_tasks()
    echo.reads.clear()
    async with FaultProxy(echo.address) as proxy:
        _, writer = await asyncio.open_connection(*parse_address(proxy.address))
        writer.write(bytes(2**20))
        await eventually(lambda: proxy.statistics().open_connections == 1)
        fault(proxy)
        late = await asyncio.open_connection(*parse_address(proxy.address))
        late[1].write(bytes(2**20))
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        await proxy.aclose()
        assert asyncio.get_running_loop().time() - began < 5.0
    assert proxy.statistics().open_connections == 0
    assert proxy.statistics().held_bytes == 0
    for each in (writer, late[1]):
        each.transport.abort()
    echo.reads.set()
    await eventually(lambda: asyncio.all_tasks() == before)


# Slow


@pytest.mark.virtual_time
async def test_a_delay_holds_each_way_and_heals(dial: Dial, proxy: FaultProxy) -> None:
    streams = await dial()
    assert await seconds_for(streams) < 0.5
    proxy.delay(0.5)
    assert 1.0 <= await seconds_for(streams) < 3.0
    proxy.delay(0.5, direction=Direction.TO_TARGET)
    proxy.delay(0.0, direction=Direction.TO_CLIENTS)
    assert 0.5 <= await seconds_for(streams) < 1.0
    proxy.delay(60.0)
    streams[1].write(b"held")
    await eventually(lambda: proxy.statistics().held_bytes == 4)
    await proxy.heal()
    assert await asyncio.wait_for(streams[0].readexactly(4), BOUND) == b"held"
    assert await seconds_for(streams) < 0.5


async def test_a_delay_keeps_order_and_throughput(dial: Dial, proxy: FaultProxy) -> None:
    reader, writer = await dial()
    proxy.delay(0.05, jitter=0.05)
    data = b"".join(number.to_bytes(4, "big") for number in range(2**18))
    began = asyncio.get_running_loop().time()
    for start in range(0, len(data), 10_000):
        writer.write(data[start : start + 10_000])
        await asyncio.sleep(0)
    assert await asyncio.wait_for(reader.readexactly(len(data)), BOUND) == data
    assert 0.1 <= asyncio.get_running_loop().time() - began < 10


async def test_the_end_of_a_stream_is_delayed_as_its_bytes_are(
    dial: Dial, proxy: FaultProxy
) -> None:
    reader, writer = await dial()
    proxy.delay(0.05)
    writer.write(b"last words")
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), BOUND) == b"last words"
    await eventually(lambda: proxy.statistics().open_connections == 0)


async def test_a_delayed_link_holds_no_more_than_told(echo: EchoServer) -> None:
    async with FaultProxy(echo.address, delayed_bytes=300_000) as proxy:
        proxy.delay(60.0)
        _, writer = await asyncio.open_connection(*parse_address(proxy.address))
        writer.write(bytes(64 * 2**20))
        await eventually(lambda: proxy.statistics().held_bytes >= 300_000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.2)
        assert proxy.statistics().held_bytes < 300_000 + 2**18
        writer.transport.abort()


@pytest.mark.virtual_time
async def test_throttled_to_a_rate_and_no_slower(dial: Dial, proxy: FaultProxy) -> None:
    reader, writer = await dial()
    proxy.throttle(200_000, Direction.TO_CLIENTS)
    size = 80_000
    began = asyncio.get_running_loop().time()
    writer.write(bytes(size))
    await asyncio.wait_for(reader.readexactly(size), BOUND)
    assert 0.3 <= asyncio.get_running_loop().time() - began < 4
    writer.write(bytes(size))
    proxy.throttle(None)
    assert len(await asyncio.wait_for(reader.readexactly(size), 0.2)) == size


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
async def test_nonsense_is_refused(proxy: FaultProxy, value: float) -> None:
    with pytest.raises(ValueError, match="delay"):
        proxy.delay(value)
    with pytest.raises(ValueError, match="delay"):
        proxy.delay(1.0, jitter=value)
    with pytest.raises(ValueError, match="bytes per second"):
        proxy.throttle(value)
    with pytest.raises(ValueError, match="rate"):
        proxy.flip(Direction.BOTH, rate=value)
    with pytest.raises(ValueError, match="times"):
        proxy.flip(Direction.BOTH, times=0)
    with pytest.raises(ValueError, match="times"):
        proxy.truncate(Direction.BOTH, times=-1)
    with pytest.raises(ValueError, match="delayed_bytes"):
        FaultProxy(proxy.address, delayed_bytes=0)
    assert proxy.faults == ()


# Damage

STREAM = frame(SETTINGS, b"") + b"".join(
    frame(FrameType.DATA, bytes(50), stream=1) for _ in range(20)
)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_truncated_stream_ends_within_a_frame(
    dial: Dial, proxy: FaultProxy, echo: EchoServer, reset: bool
) -> None:
    proxy.truncate(Direction.TO_CLIENTS, frames=[FrameType.DATA], reset=reset)
    reader, writer = await dial()
    writer.write(STREAM)
    received = b""
    try:
        async with asyncio.timeout(BOUND):
            while data := await reader.read(1000):
                received += data
    except ConnectionResetError:
        assert reset
    assert STREAM.startswith(received)
    assert 13 <= len(received) < 9 + 59
    [done] = [fault for fault in proxy.faults if fault.connection]
    assert (done.kind, done.direction) == (FaultKind.TRUNCATE, Direction.TO_CLIENTS)
    assert (done.connection, done.position) == (1, len(received))
    await eventually(lambda: echo.ended == 1)
    await eventually(lambda: proxy.statistics().open_connections == 0)
    again = await dial()
    assert await exchange(again, STREAM) == STREAM


async def damaged_by(seed: int, echo: EchoServer, pieces: int) -> tuple[bytes, list[FaultRecord]]:
    async with FaultProxy(echo.address, seed=seed) as proxy:
        proxy.flip(Direction.TO_CLIENTS, times=None, rate=0.05, frames=[0], parts=[Part.PAYLOAD])
        reader, writer = await asyncio.open_connection(*parse_address(proxy.address))
        received = b""
        for start in range(0, len(STREAM), pieces):
            received += await exchange((reader, writer), STREAM[start : start + pieces])
        writer.close()
        return received, [fault for fault in proxy.faults if fault.connection]


async def test_the_same_seed_flips_the_same_bits_and_tells_which(echo: EchoServer) -> None:
    received, faults = await damaged_by(7, echo, pieces=1000)
    assert (received, faults) == await damaged_by(7, echo, pieces=13)
    assert (received, faults) != await damaged_by(8, echo, pieces=1000)
    wrong = [n for n, (a, b) in enumerate(zip(STREAM, received, strict=True)) if a != b]
    assert wrong == [fault.position for fault in faults]
    assert len(wrong) > 20
    assert "payload of a DATA frame of 59 bytes" in str(faults[0])


async def test_open_connections_are_damaged_too_until_healed(dial: Dial, proxy: FaultProxy) -> None:
    streams = await dial()
    assert await exchange(streams, b"plain") == b"plain"
    proxy.flip(Direction.TO_TARGET, times=None, rate=1.0)
    assert await exchange(streams, b"plain") != b"plain"
    await proxy.heal()
    assert await exchange(streams, b"plain") == b"plain"


async def test_what_was_done_is_told_in_order(dial: Dial, proxy: FaultProxy) -> None:
    streams = await dial()
    proxy.flip(Direction.TO_TARGET, rate=1.0)
    assert await exchange(streams, b"plain") != b"plain"
    await proxy.cut()
    assert await ended(streams[0])
    kinds = [(fault.kind, fault.connection) for fault in proxy.faults]
    assert kinds == [(FaultKind.FLIP, None), (FaultKind.FLIP, 1), (FaultKind.CUT, None)]
    assert [fault.seconds for fault in proxy.faults] == sorted(f.seconds for f in proxy.faults)
    lines = [str(fault) for fault in proxy.faults]
    assert "ordered, to target, flip" in lines[0]
    assert "connection 1, to target, flip at byte 0: bit" in lines[1]
    assert "ordered, both, cut" in lines[2]
