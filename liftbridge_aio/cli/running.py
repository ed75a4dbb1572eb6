"""Run the coroutine of a command, and end it by a signal or when nobody reads its output."""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, ParamSpec, TypeVar

from liftbridge_aio._runtime.early_interrupt import exit_when_interrupted, raise_when_interrupted
from liftbridge_aio.errors import LiftbridgeError

from .output import ask, failure_line, say, write_line

P = ParamSpec("P")
R = TypeVar("R")

# Modules that commands need and help does not.
CLIENT: Final = ("liftbridge_aio._client.parts",)
BROKER: Final = ("liftbridge_aio.broker",)
DEMO: Final = ("liftbridge_aio.broker", "liftbridge_aio.testing", *CLIENT)
ACTIVITY: Final = ("liftbridge_aio._client.activity",)
TABLES: Final = ("liftbridge_aio.cli.console",)


def in_event_loop(
    *modules: str,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, R]]:
    """Convert a coroutine function into a plain one that runs it in an event loop of its own.

    Of several errors in a task group, only the first is raised, as a command reports one.

    Args:
        modules: what the command needs and help does not. They are imported before the loop
            starts, as imports would block it for too long.
    """

    def decorate(command: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            exit_when_interrupted()
            try:
                for module in modules:
                    importlib.import_module(module)
                _trigger_deferred_imports()
            finally:
                raise_when_interrupted()
            try:
                return asyncio.run(command(*args, **kwargs))
            except ExceptionGroup as group:
                raise _first(group) from None

        return run

    return decorate


def _trigger_deferred_imports() -> None:
    """Use anyio and betterproto2 once: both import modules at their first use."""
    import anyio.lowlevel  # noqa: PLC0415 (help must not wait for it)

    from liftbridge_aio.wire import proto  # noqa: PLC0415 (help must not wait for it)

    anyio.run(anyio.lowlevel.checkpoint)  # its asyncio backend
    bytes(proto.FetchMetadataRequest())  # pydantic, if it is installed


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGINT and SIGTERM set, instead of what they do otherwise."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows, where Ctrl-C still interrupts
            loop.add_signal_handler(number, stop.set)
            caught.append(number)
    try:
        yield stop
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def while_output_is_read() -> AsyncIterator[None]:
    """End the body once the reading end of the pipe that is stdout is closed.

    Otherwise `… | head` would run until the next message arrives. Cancelling passes through.

    Raises:
        BrokenPipeError: the reading end was closed.
    """
    pipe = _stdout_pipe()
    if pipe is None:
        yield
        return
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:

            def unread() -> None:
                loop.remove_reader(pipe)
                limit.reschedule(loop.time())

            # The writing end of a pipe becomes readable only when the reading end is closed.
            loop.add_reader(pipe, unread)
            try:
                yield
            finally:
                loop.remove_reader(pipe)
    except TimeoutError:
        if not limit.expired():
            raise
        raise BrokenPipeError from None


async def wait_readable(descriptor: int) -> None:
    """Wait until a descriptor can be read. Cancelling ends the wait at once."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except (PermissionError, NotImplementedError):
        return  # a file is always readable; otherwise reads must block
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


async def confirmed(question: str) -> bool:
    """Ask on the terminal and return True for yes; True without asking if stdin is none.

    Cancelling ends the wait at once.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return True
    ask(question)
    await wait_readable(sys.stdin.fileno())
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


async def watched(show: Callable[[], Awaitable[int]], interval: float | None) -> int:
    """Show something, and again every `interval` seconds until cancelled; None: only once.

    On a terminal each time clears the screen. An error in between is written to stderr.

    Returns:
        The exit code.
    """
    if interval is None:
        return await show()
    while True:
        if sys.stdout.isatty():
            write_line("\x1b[H\x1b[2J")
        try:
            await show()
        except LiftbridgeError as error:
            say(f"error: {failure_line(error)}")
        await asyncio.sleep(interval)


@asynccontextmanager
async def progress_shown(count: Callable[[], int], total: int | None) -> AsyncIterator[None]:
    """Show progress on stderr while the body runs, if stderr is a terminal.

    Args:
        count: returns how many messages are done.
        total: how many there will be; None: not known.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from .console import show_progress  # noqa: PLC0415 (help must not wait for it)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(show_progress(count, total))
        try:
            yield
        finally:
            task.cancel()


def _stdout_pipe() -> int | None:
    """Return the descriptor of stdout if it is a pipe; nothing else shows whether it is read."""
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # it is not a file, or is closed
        return None
    return descriptor if stat.S_ISFIFO(mode) else None


def discard(futures: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel futures that are no longer awaited, and retrieve the errors of those that failed.

    asyncio would log the errors otherwise. Cancelling a publish removes it if it is still queued.
    """
    for future in futures:
        if not future.cancel() and not future.cancelled():
            future.exception()
