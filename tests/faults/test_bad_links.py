"""Links that are slow, or that change and drop bytes: the client recovers or says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from faults.conftest import options_through
from liftbridge_aio import (
    Client,
    ClientOptions,
    LiftbridgeError,
    PublishOutcomeUnknown,
    RequestTimeout,
    Retry,
    StartAt,
)
from liftbridge_aio._core.addresses import format_address
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import (
    Direction,
    FaultKind,
    FaultProxy,
    FrameType,
    Part,
)
from support.faults import (
    BOUND,
    Options,
    Recorder,
    eventually,
    nothing_left_behind,
    take,
    within,
)
from support.servers.node import Server
from support.traffic import Traffic, flowing

pytestmark = pytest.mark.real_time

SETTINGS: Final = bytes.fromhex("000000040000000000")
WAYS: Final = [Direction.TO_TARGET, Direction.TO_CLIENTS]
SEEDS: Final = range(int(os.environ.get("LIFTBRIDGE_FAULT_SEEDS", "1")))
"""More seeds find more, and take longer."""
WATCHFUL: Final = {"health_interval": 0.3, "health_timeout": 0.2, "call_timeout": 2.0}
"""Options with which a link that hangs is noticed soon."""


@contextlib.asynccontextmanager
async def no_stray_errors() -> AsyncIterator[None]:
    """Nothing reaches the event loop's handler of errors, where nobody would see it."""
    loop = asyncio.get_running_loop()
    before, seen = loop.get_exception_handler(), []
    loop.set_exception_handler(lambda _, context: seen.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(before)
    assert not seen


def done(proxy: FaultProxy, kind: FaultKind) -> int:
    """Return how many times the proxy has applied this fault to a connection."""
    return sum(fault.kind is kind and fault.connection is not None for fault in proxy.faults)


async def rising(count: Callable[[], int], before: int | None = None, bound: float = BOUND) -> None:
    """Wait until `count` is above `before`, which is what it is now if not given."""
    floor = count() if before is None else before
    await eventually(lambda: count() > floor, bound)


@contextlib.asynccontextmanager
async def streaming(client: Client, direct: Client, stream: str) -> AsyncIterator[Traffic]:
    """Messages flow in a new stream."""
    await direct.create_stream(stream)
    async with flowing(client, stream, witness=direct, timeout=1.0) as flow:
        yield flow


@pytest.mark.parametrize("direction", WAYS, ids=str)
@pytest.mark.parametrize("reset", [False, True], ids=["ended", "reset"])
async def test_frames_that_stop_in_the_middle(
    server: Server,
    proxy: FaultProxy,
    options: Options,
    stream_name: str,
    direction: Direction,
    reset: bool,
) -> None:
    async with (
        no_stray_errors(),
        nothing_left_behind(),
        Client(server.address) as direct,
        Client(proxy.address, options=options(**WATCHFUL)) as client,
        streaming(client, direct, stream_name) as flow,
    ):
        for number in range(1, 9):
            proxy.truncate(direction, frames=[FrameType.DATA] * (number % 2) or None, reset=reset)
            await rising(lambda: done(proxy, FaultKind.TRUNCATE), number - 1)
            await rising(lambda: len(flow.acked))
    assert {type(error) for error in flow.unknown.values()} <= {PublishOutcomeUnknown}
    assert not flow.refused
    assert not flow.lost


async def test_late_bytes_and_a_subscription_that_resumes(
    proxy: FaultProxy, client: Client, direct: Client, stream_name: str
) -> None:
    proxy.delay(0.02, jitter=0.02)
    async with streaming(client, direct, stream_name) as flow:
        for _ in range(3):
            await proxy.cut()
            await rising(lambda: len(flow.read))
    assert not flow.lost


async def test_a_delay_that_comes_and_goes_loses_no_link(
    proxy: FaultProxy, client: Client, direct: Client, stream_name: str, recorder: Recorder
) -> None:
    async with streaming(client, direct, stream_name) as flow:
        for seconds in (0.05, 0.0, 0.1, 0.01):
            proxy.delay(seconds, jitter=seconds)
            await rising(lambda: len(flow.read))
        await proxy.heal()
    assert not recorder.down
    assert not flow.unknown
    assert not flow.refused


async def test_a_narrow_link_delivers_all_and_slows_only(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str, recorder: Recorder
) -> None:
    """Half a second's worth of bytes; signs of life come through in time."""
    await direct.create_stream(stream_name)
    values = [bytes([number]) * 1000 for number in range(100)]
    await direct.publish_many(stream_name, values)
    async with Client(proxy.address, options=options(health_interval=0.1)) as client:
        proxy.throttle(200_000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with client.subscribe(stream_name, start=StartAt.earliest()) as subscription:
            messages = await take(subscription, len(values))
        assert 0.3 < loop.time() - began < 8.0
        assert [message.value for message in messages] == values
        acks = await within(BOUND, client.publish_many(stream_name, values))
        assert [ack.offset for ack in acks if ack is not None] == list(range(100, 200))
    assert not recorder.down


async def test_frames_of_an_unknown_type_are_ignored() -> None:
    """As RFC 9113 wants it (section 5.5): the server is slow to answer, not gone."""
    unknown = bytes.fromhex("000004bb0000000000") + b"what"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SETTINGS + unknown)
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    address = format_address(*listening.sockets[0].getsockname())
    async with no_stray_errors(), nothing_left_behind():
        client = Client(address, options=ClientOptions(close_timeout=0.5))
        with pytest.raises(RequestTimeout):
            await client.connect(timeout=0.3)
    listening.close()


@contextlib.asynccontextmanager
async def damaged(broker: EmbeddedBroker, seed: int) -> AsyncIterator[tuple[FaultProxy, Client]]:
    async with (
        no_stray_errors(),
        nothing_left_behind(),
        FaultProxy(broker.address, seed=seed) as proxy,
        Client(proxy.address, options=options_through(proxy, Recorder(), **WATCHFUL)) as client,
    ):
        yield proxy, client


FRAMING: Final[dict[str, dict[str, Any]]] = {
    "headers of frames": {"parts": [Part.LENGTH, Part.FLAGS], "rate": 0.05},
    "HPACK": {"frames": [FrameType.HEADERS], "parts": [Part.PAYLOAD], "rate": 0.2},
    "flags of DATA": {"frames": [FrameType.DATA], "parts": [Part.FLAGS], "rate": 0.05},
    "control frames": {
        "frames": [FrameType.SETTINGS, FrameType.PING, FrameType.WINDOW_UPDATE, FrameType.GOAWAY],
        "parts": [Part.FLAGS, Part.PAYLOAD],
        "rate": 0.2,
    },
    "DATA": {"frames": [FrameType.DATA], "parts": [Part.PAYLOAD], "rate": 0.01},
    "anything": {"rate": 0.01},
}


@pytest.mark.parametrize("where", FRAMING)
@pytest.mark.parametrize("direction", WAYS, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
async def test_flipped_bits_end_in_errors_of_the_tree_and_the_client_recovers(
    broker: EmbeddedBroker, where: str, direction: Direction, seed: int
) -> None:
    """Values may arrive wrong, as nothing protects them; that is not what is asked here."""
    async with damaged(broker, seed) as (proxy, client):
        await client.create_stream("s")
        flow = Traffic(client, "s", timeout=1.0)
        async with asyncio.timeout(4 * BOUND), asyncio.TaskGroup() as group:
            group.create_task(flow.publish())
            tailing = group.create_task(flow.tail())
            for _ in range(5):
                flipped = done(proxy, FaultKind.FLIP)
                proxy.flip(direction, times=1, **FRAMING[where])
                for _ in range(3):  # calls bring new headers
                    with contextlib.suppress(LiftbridgeError):
                        await client.fetch_metadata(timeout=1.0)
                with contextlib.suppress(TimeoutError):
                    await rising(lambda: done(proxy, FaultKind.FLIP), flipped, bound=0.5)
            await proxy.heal()
            assert done(proxy, FaultKind.FLIP)
            flow.stop()
            tailing.cancel()
        await proxy.reset()  # a damaged HPACK table stays damaged for as long as its connection
        await within(BOUND, client.publish("s", b"well again", retry=Retry()))
