"""A service notices that it is told to end, and whoever else handles the signal still does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from liftbridge_aio._runtime.stop_signal import on_stop_signals

BOTH = (signal.SIGTERM, signal.SIGINT)


class Server:
    """Handles signals as uvicorn does."""

    def __init__(self) -> None:
        self.handled: list[int] = []

    def handle(self, number: int, _: object) -> None:
        self.handled.append(number)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    before = {number: signal.signal(number, server.handle) for number in BOTH}
    yield server
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", BOTH)
async def test_a_signal_is_noticed_and_handled(server: Server, number: signal.Signals) -> None:
    stopping = asyncio.Event()
    with on_stop_signals(stopping.set):
        signal.raise_signal(number)
        assert server.handled == [number]
        async with asyncio.timeout(5):
            await stopping.wait()
    assert signal.getsignal(number) == server.handle


async def test_who_came_to_handle_signals_later_stays(server: Server) -> None:
    later = Server()
    with on_stop_signals(lambda: None):
        signal.signal(signal.SIGTERM, later.handle)
    assert signal.getsignal(signal.SIGTERM) == later.handle
    assert signal.getsignal(signal.SIGINT) == server.handle


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("nobody", [signal.SIG_DFL, signal.SIG_IGN])
async def test_a_signal_that_nobody_handles_is_left_alone(nobody: signal.Handlers) -> None:
    signal.signal(signal.SIGTERM, nobody)
    with on_stop_signals(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is nobody


async def test_signals_are_left_alone_outside_the_main_thread(server: Server) -> None:
    async def elsewhere() -> object:
        with on_stop_signals(lambda: None):
            return signal.getsignal(signal.SIGTERM)

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == server.handle
