"""What Ctrl-C does while handlers run."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from liftbridge_aio._runtime.stop_signal import stopped_by_signals


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_stops_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert before is signal.default_int_handler

    async def main() -> None:
        one, two = asyncio.Event(), asyncio.Event()
        with stopped_by_signals(one.set), stopped_by_signals(two.set):
            interrupt()
            await one.wait()
            await two.wait()
            interrupt()
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert signal.getsignal(signal.SIGINT) is before


def test_it_is_as_before_when_the_handlers_have_ended() -> None:
    async def main() -> None:
        for _ in range(2):
            stopped = asyncio.Event()
            with stopped_by_signals(stopped.set):
                interrupt()
                await stopped.wait()
        interrupt()
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


def test_it_stays_ignored_where_it_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def main() -> None:
        with stopped_by_signals(lambda: None):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    try:
        asyncio.run(main())
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
