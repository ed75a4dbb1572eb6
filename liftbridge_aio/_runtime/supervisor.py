"""One task that owns the task group in which all tasks of a client run.

A group held open across `__aenter__` and `__aexit__` must be left by the task that entered it,
which a pytest fixture or a web framework's hooks do not guarantee. Here the group lives in a task
of its own; any task may spawn into it and stop it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

import anyio

from liftbridge_aio._runtime.event_loop import begun_later
from liftbridge_aio.errors import ClientClosed, ConnectionFailed, LiftbridgeError

logger = logging.getLogger("liftbridge_aio.tasks")

_UNUSED_TIMEOUT: Final = 1.0
"""Seconds within which a supervisor without children stops."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def wait_despite_cancellation(work: Coroutine[Any, Any, object], timeout: float) -> bool:
    """Wait for work that ends soon, at most `timeout` seconds, even if cancelled meanwhile.

    A cancellation, asyncio's or anyio's, takes effect after that: a close that is cut short would
    leave tasks behind.

    Returns:
        True if it ended in time.
    """
    task = asyncio.ensure_future(work)
    deadline = asyncio.get_running_loop().time() + timeout
    cancelled = False
    with anyio.CancelScope(shield=True):
        while not task.done():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                task.cancel()
                break
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError:
                cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return task.done() and not task.cancelled()


class Child:
    """A running child of the supervisor."""

    __slots__ = ("__dict__", "_cancelled", "_ending", "_scope", "task")
    # It has attributes beside these in a simulated world only, which numbers all children.

    task: asyncio.Task[None]
    """Set by the supervisor as soon as it is created."""

    def __init__(self, ending: Callable[[], bool]) -> None:
        self._scope: anyio.CancelScope | None = None
        """Made by the task: outside of one, as in callbacks, anyio cannot make it."""
        self._cancelled = False
        self._ending = ending

    def cancel(self) -> None:
        """Request cancellation of the child and return at once. No effect if it has ended."""
        if self.task.done():
            return  # a scope describes in text by which task it is cancelled, which costs
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    @property
    def done(self) -> bool:
        """True if the child has ended."""
        return self.task.done()

    async def wait(self) -> None:
        """Wait until the child has ended. Cancelling the wait leaves the child alone."""
        await asyncio.wait({self.task})

    async def run(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        """Run the child's function; its exceptions do not reach the group."""
        try:
            with anyio.CancelScope() as self._scope:
                if self._cancelled:
                    self._scope.cancel()
                await function()
        except asyncio.CancelledError:
            # A cancellation from elsewhere must not end the whole group: grpclib cancels tasks that
            # wait on a broken call. The task ends here in any case.
            if not self._ending():
                logger.warning("the task %s was cancelled from outside", name, exc_info=True)
        except Exception as error:
            # A child whose wait is over in the moment of its cancellation goes on to its next one,
            # and may find that the supervisor starts nothing any more.
            if isinstance(error, ClientClosed) and self._ending():
                return
            # A child passes its errors to the next call that reads or publishes; what arrives here
            # is a bug, which must be visible but not end the user's block.
            logger.exception("the task %s failed", name)


class Supervisor:
    """Owns the task group.

    It is asyncio's: calls end and start new ones in callbacks of the event loop, where a group of
    anyio cannot start a task beside `sniffio`.

    Args:
        name: prefix of its tasks' names.
        owner: the owner of the tasks, as named in errors.
    """

    def __init__(self, name: str, owner: str = "the client") -> None:
        self.name = name
        self._owner = owner
        self._task: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._children: set[Child] = set()
        self._stopping: asyncio.Event = asyncio.Event()

    @property
    def running(self) -> bool:
        """True if children can be spawned."""
        return self._group is not None and not self._ending

    @property
    def _ending(self) -> bool:
        """True if children are being cancelled because the supervisor stops."""
        return self._stopping.is_set() or self._task is None or self._task.cancelling() > 0

    async def start(self) -> None:
        """Start the owner task and wait until its group is open.

        Cancelling the wait stops the supervisor again, and its task has ended then.
        """
        opened = asyncio.Event()
        self._task = asyncio.create_task(self._own(opened), name=f"{self.name}:supervisor")
        try:
            await opened.wait()
        except BaseException:
            await self.stop(_UNUSED_TIMEOUT)
            raise

    async def _own(self, opened: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                opened.set()
                try:
                    await self._stopping.wait()
                finally:
                    self._stopping.set()
                    for child in self._children:
                        child.cancel()
        finally:
            self._group = None

    def spawn(
        self, function: Callable[[Unpack[Ts]], Awaitable[None]], *args: *Ts, name: str
    ) -> Child:
        """Run `function(*args)` in the group.

        Raises:
            ClientClosed: the supervisor is not running.
        """
        # Also while the loop shuts down: a child that is started by a cancelled one would be
        # cancelled too and start the next, for ever.
        if self._group is None or self._ending:
            is_closed = self._task is not None or self._stopping.is_set()
            raise ClientClosed(f"{self._owner} is {'closed' if is_closed else 'not connected yet'}")
        child, name = Child(lambda: self._ending), f"{self.name}:{name}"
        work = begun_later(child.run(lambda: function(*args), name))
        child.task = self._group.create_task(work, name=name)
        self._children.add(child)
        child.task.add_done_callback(lambda _: self._children.discard(child))
        return child

    async def call(
        self, function: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts, name: str
    ) -> T:
        """Run `function(*args)` in a child and return its result, or raise its error.

        grpclib cancels the task that waits for a broken call; a child keeps that from the
        caller. Cancelling this call cancels the child.

        Raises:
            ClientClosed: the supervisor is not running, or stopped meanwhile.
            ConnectionFailed: something else cancelled the child, as grpclib does at times.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                value = await function(*args)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(value)

        def ended(_: asyncio.Task[None]) -> None:
            if not result.done():
                result.set_exception(self._cancelled_error(name))

        child = self.spawn(work, name=name)
        child.task.add_done_callback(ended)
        try:
            return await result
        finally:
            child.cancel()
            # Retrieve an exception that nobody will, so that asyncio does not log it.
            if result.done() and not result.cancelled():
                result.exception()

    def _cancelled_error(self, name: str) -> LiftbridgeError:
        if self._ending:
            return ClientClosed(f"{self._owner} was closed during {name}")
        return ConnectionFailed(f"{name} failed: its task was cancelled from outside the client")

    async def stop(self, timeout: float) -> bool:
        """Cancel all children and wait for them, at most `timeout` seconds.

        May be called from any task and any number of times. Cancelling the wait does not undo
        the stop.

        Returns:
            True if all children have ended.
        """
        self._stopping.set()
        if self._task is None:
            return True
        return await wait_despite_cancellation(asyncio.wait({self._task}), timeout)
