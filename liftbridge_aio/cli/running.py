"""How the coroutine of a command is run."""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_FIRST_USES: Final = "liftbridge_aio.cli.first_uses"

# What commands need and help does not.
CLIENT: Final = ("liftbridge_aio.client_parts", _FIRST_USES)
BROKER: Final = ("liftbridge_aio.broker", _FIRST_USES)
DEMO: Final = ("liftbridge_aio.cli.demo_scenario", *CLIENT)
ACTIVITY: Final = ("liftbridge_aio.activity",)
TABLES: Final = ("liftbridge_aio.cli.console",)


def in_event_loop(
    *modules: str,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, R]]:
    """Make a plain function of a coroutine function: it runs in an event loop of its own.

    Of several errors in a task group, only the first is raised: it is all that there is to say.

    Args:
        modules: what the command needs and help does not. They are imported before the loop runs,
            as that takes longer than anything should hold up a loop.
    """

    def decorate(command: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            for module in modules:
                importlib.import_module(module)
            try:
                return asyncio.run(command(*args, **kwargs))
            except ExceptionGroup as group:
                raise _first(group) from None

        return run

    return decorate


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
