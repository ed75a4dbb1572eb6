"""Reading that is taken up where it was left: subscriptions and the keeper of their cursors."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .cursor_keeper import CursorKeeper, Place
from .errors import InvalidRequest, LiftbridgeError, RequestTimeout, StreamReset
from .for_each import for_each
from .model import PartitionInfo, StartPosition
from .net.connection import Connection
from .net.supervisor import Child, wait_despite_cancellation
from .reading_plan import ReadingPlan
from .seekable_reading import SeekableReading


class DurableReading:
    """Begins readings where a cursor stands, and keeps the cursor where their reader is.

    Args:
        keeper: of the cursor.
        connection: whose supervisor runs the task that stores positions.
        interval: seconds from one time of storing to the next.
    """

    def __init__(self, keeper: CursorKeeper, connection: Connection, interval: float) -> None:
        self._keeper = keeper
        self._connection = connection
        self._interval = interval
        self._child: Child | None = None
        self._readings: dict[Place, SeekableReading] = {}

    async def take_up(
        self,
        readings: Iterable[tuple[SeekableReading, Callable[[], int | None]]],
        timeout: float,
    ) -> None:
        """Have readings that have not begun begin behind what is stored, and keep their positions.

        Cancelling abandons the questions.

        Args:
            readings: each with a function that tells how far its reader is done. One that was sent
                elsewhere stays there.
            timeout: seconds for each question.

        Raises:
            StreamReset: the cursor stands behind the end of the log, which is another one, then.
            LiftbridgeError: a cursor, or the end of its log, could not be asked for.
        """

        async def one(each: tuple[SeekableReading, Callable[[], int | None]]) -> None:
            await self._take_up(*each, timeout)

        await for_each(readings, one)

    async def _take_up(
        self, reading: SeekableReading, finished: Callable[[], int | None], timeout: float
    ) -> None:
        plan = reading.plan
        self._readings[Place(plan.stream, plan.partition)] = reading
        stored = await self._keeper.fetch(plan.stream, plan.partition)
        if stored is not None:
            metadata = self._connection.metadata
            await metadata.stream(plan.stream)
            info = await metadata.partition(plan.stream, plan.partition, timeout)
            if not reading.sought:
                self._check_end(plan, stored, info)
                reading.begin_at(stored + 1)
        kept = None if reading.sought else stored
        self._keeper.keep(plan.stream, plan.partition, finished, kept)

    def _check_end(self, plan: ReadingPlan, stored: int, info: PartitionInfo) -> None:
        if stored > info.newest_offset:
            text = (
                f"the cursor {self._keeper.cursor_id!r} stands at offset {stored}, but the log"
                f" ends at {info.newest_offset}: it was truncated or created anew, or somebody set"
                " the cursor there; set_cursor puts it elsewhere"
            )
            raise StreamReset(text, stream=plan.stream, partition=plan.partition, offset=stored)

    async def begin(self) -> None:
        """Store first positions, and go on storing what moves.

        A reading whose position cannot be stored for good ends with the error.

        With a first position stored, who comes next begins where this reader began, even if that
        was "new messages only" and none came. Cancelling leaves the rest to `close`.

        Raises:
            ClientClosed: the client is not running.
            LiftbridgeError: a position could not be stored.
        """
        name = f"cursor:{self._keeper.cursor_id}"
        self._child = self._connection.supervisor.spawn(
            self._keeper.run, self._interval, self._fail, name=name
        )
        await self._keeper.commit()

    def _fail(self, place: Place, error: LiftbridgeError) -> None:
        reading = self._readings[place].current
        if not reading.feed.ended:
            reading.failed(error, reading.position.last)

    async def check_target(self, plan: ReadingPlan) -> None:
        """Refuse to go behind the end of a log: what is stored there would look like another log's.

        Cancelling abandons the question.

        Raises:
            InvalidRequest: the start is an offset behind the next one to come.
            LiftbridgeError: the end of the log could not be asked for.
        """
        if plan.start.position is not StartPosition.OFFSET:
            return
        stream, partition = plan.stream, plan.partition
        metadata = self._connection.metadata
        await metadata.stream(stream)
        info = await metadata.partition(stream, partition, plan.timeout)
        if plan.start.value > info.newest_offset + 1:
            text = (
                f"the log ends at {info.newest_offset}, and a cursor cannot stand behind its end:"
                f" offset {plan.start.value} is none to go to"
            )
            raise InvalidRequest(text, stream=stream, partition=partition)

    def sought(self, stream: str, partition: int) -> None:
        """Take note that a reading was sent elsewhere: its position may fall."""
        self._keeper.rewound(stream, partition)

    async def commit(self) -> None:
        """Store now how far the reader is done; see `CursorKeeper.commit`."""
        await self._keeper.commit()

    async def close(self, timeout: float) -> LiftbridgeError | None:
        """Store a last time, and no more by itself. Cancelling takes effect after that.

        Returns:
            Why a position could not be stored.
        """
        errors: list[LiftbridgeError] = []

        async def store() -> None:
            try:
                await self._keeper.commit()
            except LiftbridgeError as error:
                errors.append(error)

        try:
            in_time = await wait_despite_cancellation(store(), timeout)
        finally:
            self.stop()
        if not in_time:
            text = f"the cursor {self._keeper.cursor_id!r} was not stored within {timeout:g} s"
            return RequestTimeout(text)
        return errors[0] if errors else None

    def stop(self) -> None:
        """Store no more by itself."""
        if self._child is not None:
            self._child.cancel()
