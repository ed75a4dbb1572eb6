"""What code in a simulated world gets in place of clocks, chance and threads of this machine.

The world replaces functions where they are defined. Programs import many of them by name, as in
`from time import time`, so they are replaced in all loaded modules but those of the standard
library, whose threads go on as they are.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio.to_thread

from .world import World


def stand_ins(world: World) -> list[tuple[object, str, object]]:
    """Return attributes to replace, each with its stand-in."""
    chance = random.Random(f"{world.seed}:urandom")
    thread = threading.get_ident()
    sleep = time.sleep

    def pass_time(seconds: float) -> None:
        # Blocks the whole world, as it would block the event loop of a program.
        if threading.get_ident() == thread:
            world.loop._now += seconds
        else:
            sleep(seconds)

    async def run_here(func: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, partial(func, *args))

    handlers: dict[tuple[str, int], Any] = {}

    def get_handler(number: int) -> Any:
        return handlers.get((world.current_host, number), signal.SIG_DFL)

    def set_handler(number: int, handler: Any) -> Any:
        # Each process has handlers of its own, and none of them gets the signals of this one.
        previous = get_handler(number)
        handlers[world.current_host, number] = handler
        return previous

    replaced: list[tuple[object, str, object]] = [
        (os, "urandom", chance.randbytes),
        (random, "_urandom", chance.randbytes),
        (signal, "getsignal", get_handler),
        (signal, "signal", set_handler),
        (time, "perf_counter", world.loop.time),
        (time, "sleep", pass_time),
        (anyio.to_thread, "run_sync", run_here),
    ]
    by_id = {
        **{id(getattr(module, name)): stand_in for module, name, stand_in in replaced[2:]},
        id(time.time): world.time_of_day,
        id(time.time_ns): lambda: int(world.time_of_day() * 1e9),
        id(time.monotonic): world.loop.time,
    }
    return replaced + [
        (module, name, by_id[id(value)])
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] not in sys.stdlib_module_names
        for name, value in list(vars(module).items())
        if id(value) in by_id
    ]
