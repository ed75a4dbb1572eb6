"""The fault proxy, against plain TCP programs: its life, and faults that end connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

import pytest

from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio.testing import Direction, FaultProxy
from support.peers.tcp import BOUND, Dial, EchoServer, ended, eventually, exchange, reset_by_hand


async def test_bytes_pass_unchanged_both_ways_and_are_counted(
    dial: Dial, proxy: FaultProxy
) -> None:
    streams = await dial()
    data = bytes(range(256)) * 4096  # more than the buffers on the way hold
    assert await exchange(streams, data) == data
    statistics = proxy.statistics()
    assert statistics.connections == statistics.open_connections == 1
    assert statistics.bytes_to_target == statistics.bytes_to_clients == len(data)


async def test_an_end_of_one_side_reaches_the_other_and_lets_the_answer_through(
    dial: Dial, proxy: FaultProxy
) -> None:
    reader, writer = await dial()
    writer.write(b"last words")
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), BOUND) == b"last words"
    await eventually(lambda: proxy.statistics().open_connections == 0)


async def test_cut_ends_every_connection_and_keeps_listening(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    connections = [await dial() for _ in range(3)]
    for streams in connections:
        assert await exchange(streams, b"hello") == b"hello"
    await proxy.cut()
    assert proxy.statistics().open_connections == 0
    for reader, _ in connections:
        assert await ended(reader)
    await eventually(lambda: echo.ended == 3)
    assert await exchange(await dial(), b"again") == b"again"
    assert proxy.statistics().connections == 4


async def test_refusing_turns_new_connections_away_until_accepted_again(
    dial: Dial, proxy: FaultProxy
) -> None:
    before = await dial()
    assert await exchange(before, b"before") == b"before"
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await dial()
    assert await exchange(before, b"still here") == b"still here"
    address = proxy.address
    await proxy.accept()
    await proxy.accept()
    assert proxy.address == address
    assert await exchange(await dial(), b"after") == b"after"


async def test_frozen_links_stay_open_and_silent_and_lose_nothing_when_thawed(
    dial: Dial, proxy: FaultProxy
) -> None:
    reader, writer = await dial()
    assert await exchange((reader, writer), b"warm") == b"warm"
    proxy.freeze()
    late = await dial()
    writer.write(b"old")
    late[1].write(b"new")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(late[0].read(1), 0.1)
    assert proxy.statistics().bytes_to_target == len(b"warm")
    proxy.thaw()
    assert await asyncio.wait_for(reader.readexactly(3), BOUND) == b"old"
    assert await asyncio.wait_for(late[0].readexactly(3), BOUND) == b"new"


async def test_frozen_links_can_be_cut(dial: Dial, proxy: FaultProxy) -> None:
    reader, writer = await dial()
    assert await exchange((reader, writer), b"warm") == b"warm"
    proxy.freeze()
    await proxy.cut()
    assert await ended(reader)


async def test_a_side_that_does_not_read_stops_the_other_and_fills_no_memory(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    echo.reads.clear()
    reader, writer = await dial()
    size = 64 * 2**20  # no chain of socket buffers takes that much
    writer.write(bytes(size))
    await eventually(lambda: proxy.statistics().bytes_to_target > 0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writer.drain(), 0.5)
    assert proxy.statistics().bytes_to_target < size / 2

    echo.reads.set()
    received = 0
    async with asyncio.timeout(4 * BOUND):
        while received < size:
            received += len(await reader.read(2**20))
    assert proxy.statistics().bytes_to_clients == size


async def test_a_target_that_is_down_breaks_the_connection(unused_tcp_port: int) -> None:
    async with FaultProxy(f"127.0.0.1:{unused_tcp_port}") as proxy:
        reader, writer = await asyncio.open_connection(*parse_address(proxy.address))
        assert await ended(reader)
        await eventually(lambda: proxy.statistics().open_connections == 0)
        writer.close()


async def test_an_end_sent_to_a_target_that_is_gone_closes_the_connection(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    streams = await dial()
    assert await exchange(streams, b"hello") == b"hello"
    echo.writers[0].close()
    assert await streams[0].read() == b""
    proxy.delay(0.05)
    streams[1].write(b"last words")  # which the target answers with a reset
    streams[1].write_eof()  # due together with the bytes before
    await eventually(lambda: proxy.statistics().open_connections == 0)
    assert not told


async def test_an_end_sent_to_a_target_that_has_reset_closes_the_connection(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    streams = await dial()
    assert await exchange(streams, b"hello") == b"hello"
    proxy.freeze(Direction.TO_CLIENTS)  # so that it does not read, and sees no reset
    reset_by_hand(echo.writers[0])
    streams[1].write_eof()
    await eventually(lambda: proxy.statistics().open_connections == 0)
    assert await ended(streams[0])


async def test_closing_twice_from_another_task_leaves_no_task_and_no_connection(
    echo: EchoServer,
) -> None:
    before = asyncio.all_tasks()
    proxy = FaultProxy(echo.address)
    await asyncio.create_task(proxy.__aenter__())
    streams = await asyncio.open_connection(*parse_address(proxy.address))
    assert await exchange(streams, b"hello") == b"hello"
    await asyncio.gather(proxy.aclose(), asyncio.create_task(proxy.aclose()))
    await proxy.aclose()
    assert await ended(streams[0])
    assert proxy.statistics().open_connections == 0
    streams[1].close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*parse_address(proxy.address))
    await eventually(lambda: echo.ended == 1)
    assert asyncio.all_tasks() == before


@pytest.mark.skipif(sys.platform != "linux", reason="fills the queue of a port as Linux does")
async def test_closing_does_not_wait_for_a_target_that_never_answers() -> None:
    with contextlib.ExitStack() as sockets:
        target = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):  # more than the queue holds: the next one waits for ever
            waiting = sockets.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(target.getsockname())
        before = asyncio.all_tasks()
        async with FaultProxy(f"127.0.0.1:{target.getsockname()[1]}") as proxy:
            _, writer = await asyncio.open_connection(*parse_address(proxy.address))
            await eventually(lambda: proxy.statistics().open_connections == 1)
            await asyncio.wait_for(proxy.aclose(), BOUND)
        writer.close()
        assert asyncio.all_tasks() == before


async def test_a_proxy_may_close_without_being_entered_and_not_be_entered_twice(
    echo: EchoServer,
) -> None:
    await FaultProxy(echo.address).aclose()
    async with FaultProxy(echo.address) as proxy:
        with pytest.raises(RuntimeError, match="entered only once"):
            await proxy.__aenter__()


async def test_a_taken_port_is_an_error_and_leaves_nothing(
    proxy: FaultProxy, echo: EchoServer
) -> None:
    before = asyncio.all_tasks()
    taken = parse_address(proxy.address)[1]
    with pytest.raises(OSError, match="address already in use"):
        await FaultProxy(echo.address, port=taken).__aenter__()
    assert asyncio.all_tasks() == before


async def test_its_repr_says_how_it_stands(echo: EchoServer) -> None:
    proxy = FaultProxy(echo.address)
    assert "not started" in repr(proxy)
    async with proxy:
        assert " open " in repr(proxy)
        assert proxy.address in repr(proxy)
        proxy.freeze()
        assert "frozen" in repr(proxy)
        proxy.thaw()
        await proxy.refuse()
        assert "refusing" in repr(proxy)
    assert "closed" in repr(proxy)


async def test_reset_is_a_reset_at_both_ends_and_new_connections_come(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    streams = await dial()
    assert await exchange(streams, b"hello") == b"hello"
    await proxy.reset()
    assert proxy.statistics().open_connections == 0
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(streams[0].read(1), BOUND)
    await eventually(lambda: echo.errors == ["ConnectionResetError"])
    assert await exchange(await dial(), b"again") == b"again"


async def test_a_reset_by_one_program_is_passed_on_as_one(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    streams = await dial()
    assert await exchange(streams, b"hello") == b"hello"
    reset_by_hand(streams[1])
    await eventually(lambda: echo.errors == ["ConnectionResetError"])
    await eventually(lambda: proxy.statistics().open_connections == 0)


async def test_a_frozen_link_passes_a_reset_on_when_it_thaws(
    dial: Dial, proxy: FaultProxy, echo: EchoServer
) -> None:
    streams = await dial()
    assert await exchange(streams, b"hello") == b"hello"
    proxy.freeze()
    reset_by_hand(streams[1])
    assert proxy.statistics().open_connections == 1
    proxy.thaw()
    await eventually(lambda: echo.errors == ["ConnectionResetError"])
    await eventually(lambda: proxy.statistics().open_connections == 0)


async def test_healing_accepts_and_thaws_again(dial: Dial, proxy: FaultProxy) -> None:
    streams = await dial()
    assert await exchange(streams, b"hello") == b"hello"
    proxy.freeze()
    await proxy.refuse()
    await proxy.heal()
    assert await exchange(streams, b"again") == b"again"
    assert await exchange(await dial(), b"new") == b"new"


async def test_accepting_while_it_closes_leaves_no_port_open(echo: EchoServer) -> None:
    proxy = FaultProxy(echo.address)
    async with proxy:
        await proxy.refuse()
        accepting = asyncio.create_task(proxy.accept())
        await asyncio.sleep(0)
    await accepting
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*parse_address(proxy.address))


async def test_orders_may_be_given_before_it_listens(echo: EchoServer) -> None:
    proxy = FaultProxy(echo.address)
    proxy.freeze()
    async with proxy:
        reader, writer = await asyncio.open_connection(*parse_address(proxy.address))
        writer.write(b"held")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        await proxy.heal()
        assert await asyncio.wait_for(reader.readexactly(4), BOUND) == b"held"
        writer.close()
