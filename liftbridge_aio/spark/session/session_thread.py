"""A local Spark session for programs with an event loop; blocking calls run in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from .local_session import local_session
from .query_progress import QueryFailed, query_failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class SessionThread:
    """A Spark session with a thread of its own; use it as an async context manager.

    Args:
        name: shown by Spark's own tools.
        folder: for everything that Spark writes.
        master: where tasks run, as Spark writes it.
        settings: further `spark.…` settings.
    """

    def __init__(
        self, name: str, folder: Path, *, master: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._folder = folder
        self._master = master
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._stack = ExitStack()
        self._session: SparkSession

    async def __aenter__(self) -> Self:
        """Start Spark, which takes seconds. Cancelling waits for the start, and ends it.

        Raises:
            JavaNotFound: there is no Java to run Spark on.
            SparkDidNotStart: Spark failed to start.
        """
        try:
            await self._run(self._start)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End Spark and all running queries."""
        await self._end()

    async def call(self, work: Callable[[SparkSession], T]) -> T:
        """Run a function with the session, after earlier ones, and return its result.

        Cancelling does not stop the function, so each should take seconds at most.

        Raises:
            QueryFailed: Spark raised an error, or its Java process ended.
        """
        from pyspark.errors import PySparkException  # noqa: PLC0415 - optional

        try:
            return await self._run(lambda: work(self._session))
        except PySparkException as error:
            raise query_failed(error) from error
        except Exception as error:
            failure = _java_failure(error)
            if failure is None:
                raise
            raise failure from error

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _start(self) -> None:
        session = local_session(
            self._name, self._folder, master=self._master, settings=self._settings
        )
        self._session = self._stack.enter_context(session)

    async def _end(self) -> None:
        """Wait for running functions, then end the session; cancelling does not interrupt this."""
        ended = asyncio.ensure_future(self._run(self._stack.close))
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:
                cancelled = error
        self._thread.shutdown(wait=False)
        ended.result()
        if cancelled is not None:
            raise cancelled


def _java_failure(error: Exception) -> QueryFailed | None:
    """Convert an error of py4j, pyspark's bridge to Java; None for any other error."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    if isinstance(error, ConnectionError) or "py4j.protocol.Py4JNetworkError" in kinds:
        return QueryFailed(f"Spark's Java process ended or does not respond: {error}")
    if "py4j.protocol.Py4JError" in kinds:  # the second line names the exception in Java
        return QueryFailed(" ".join(str(error).splitlines()[:2]))
    return None
