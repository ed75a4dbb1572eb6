"""Starts readers at their stored cursors, and stores their positions while they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio._runtime.supervisor import Child, wait_despite_cancellation
from liftbridge_aio.errors import InvalidRequest, LiftbridgeError, RequestTimeout, StreamReset
from liftbridge_aio.model import PartitionInfo, StartAt, StartPosition, StreamPartition
from liftbridge_aio.net.network import Network

from .core.plan import ReadingPlan
from .cursor_committer import CursorCommitter, LocatingStore
from .seekable_reader import SeekableReader


class DurableReader:
    """The cursor of one subscription.

    Args:
        committer: stores the positions.
        store: what they are stored in, which knows to which log a position belongs.
        network: its supervisor runs the task that stores them.
        interval: seconds between commits.
        active: the subscriptions of the client that store positions; this one is among them from
            `begin` until it is closed or stopped.
    """

    def __init__(
        self,
        committer: CursorCommitter,
        store: LocatingStore,
        network: Network,
        interval: float,
        active: set[DurableReader],
    ) -> None:
        self._committer = committer
        self._store = store
        self._active = active
        self._network = network
        self._interval = interval
        self._child: Child | None = None
        self._readers: dict[StreamPartition, SeekableReader] = {}

    async def set_starts(
        self,
        readers: Iterable[tuple[SeekableReader, Callable[[], int | None]]],
        timeout: float,
    ) -> None:
        """Set the start of readers to one behind their stored positions, and track these.

        Cancelling abandons the calls.

        Args:
            readers: each with a function that returns its last finished offset. One that has sought
                keeps its start.
            timeout: seconds for each call.

        Raises:
            StreamReset: the cursor belongs to a former log, or is behind the end of this one.
            LiftbridgeError: a cursor, or the end of its log, could not be read.
        """
        chosen = list(readers)

        async def one(each: tuple[SeekableReader, Callable[[], int | None]]) -> None:
            await self._start_from_cursor(*each, timeout)

        for stream in {reader.plan.stream for reader, _ in chosen}:
            await self._network.metadata.stream(stream, timeout, renew=True)
        await bounded_gather(chosen, one)

    async def _start_from_cursor(
        self, reader: SeekableReader, finished: Callable[[], int | None], timeout: float
    ) -> None:
        plan = reader.plan
        self._readers[StreamPartition(plan.stream, plan.partition)] = reader
        cursor = self._committer.cursor_id
        log = await self._store.locate(cursor, plan.stream, plan.partition, timeout)
        if log.former is not None and not reader.sought:
            raise StreamReset(
                f"the cursor {cursor!r} is at offset {log.former} of a former log: the stream was"
                " deleted and created again since; seek before reading, or use another cursor",
                stream=plan.stream,
                partition=plan.partition,
                offset=log.former,
            )
        stored = log.position
        if stored is not None:
            metadata = self._network.metadata
            await metadata.stream(plan.stream, timeout)
            info = await metadata.partition(plan.stream, plan.partition, timeout)
            if not reader.sought:
                self._check_end(plan, stored, info)
                reader.begin_at(StartAt.offset(stored + 1), log.created)
        kept = None if reader.sought else stored
        self._committer.keep(plan.stream, plan.partition, finished, kept, log)

    def _check_end(self, plan: ReadingPlan, stored: int, info: PartitionInfo) -> None:
        if stored > info.newest_offset:
            raise StreamReset(
                f"the cursor {self._committer.cursor_id!r} is at offset {stored}, but the log"
                f" ends at {info.newest_offset}: it was truncated or created again, or the cursor"
                " was set too high; set_cursor changes it",
                stream=plan.stream,
                partition=plan.partition,
                offset=stored,
            )

    async def begin(self) -> None:
        """Store the first positions, and start the task that commits.

        The next reader then starts where this one did, even if that was "new messages only" and
        none came. A reader whose position no retry can store ends with that error. Cancelling
        leaves the rest to `close`.

        Raises:
            ClientClosed: the client is not running.
            LiftbridgeError: a position could not be stored.
        """
        self._active.add(self)
        name = f"cursor:{self._committer.cursor_id}"
        self._child = self._network.supervisor.spawn(self._store_regularly, name=name)
        await self._committer.commit()

    async def _store_regularly(self) -> None:
        try:
            await self._committer.run(self._interval, self._fail)
        except Exception as error:
            for reader in self._readers.values():
                reader.current.broken(error)
            raise

    def _fail(self, place: StreamPartition, error: LiftbridgeError) -> None:
        reader = self._readers[place].current
        if not reader.buffer.ended:
            reader.failed(error, reader.position.last)

    async def check_target(self, plan: ReadingPlan) -> None:
        """Refuse a start behind the end of the log: stored, it would look like another log's.

        Cancelling abandons the call.

        Raises:
            InvalidRequest: the start is behind the next offset of the log.
            LiftbridgeError: the end of the log could not be read.
        """
        if plan.start.position is not StartPosition.OFFSET:
            return
        stream, partition = plan.stream, plan.partition
        metadata = self._network.metadata
        await metadata.stream(stream, plan.timeout)
        info = await metadata.partition(stream, partition, plan.timeout)
        if plan.start.value > info.newest_offset + 1:
            raise InvalidRequest(
                f"the log ends at {info.newest_offset}, and a cursor cannot be behind its end:"
                f" seek to offset {info.newest_offset + 1} at most, not {plan.start.value}",
                stream=stream,
                partition=partition,
            )

    def sought(self, stream: str, partition: int) -> None:
        """Allow the position of a partition to be lower, because its reader has sought."""
        self._committer.rewound(stream, partition)

    async def commit(self) -> None:
        """Store the positions now; see `CursorCommitter.commit`."""
        await self._committer.commit()

    async def close(self, timeout: float) -> LiftbridgeError | None:
        """Store the positions a last time, and stop. Cancelling takes effect after that.

        Returns:
            The error, if a position could not be stored.
        """
        errors: list[LiftbridgeError] = []

        async def store() -> None:
            try:
                await self._committer.commit()
            except LiftbridgeError as error:
                errors.append(error)

        try:
            in_time = await wait_despite_cancellation(store(), timeout)
        finally:
            self.stop()
        if not in_time:
            text = f"the cursor {self._committer.cursor_id!r} was not stored within {timeout:g} s"
            return RequestTimeout(text)
        return errors[0] if errors else None

    def stop(self) -> None:
        """Stop committing."""
        self._active.discard(self)
        if self._child is not None:
            self._child.cancel()
