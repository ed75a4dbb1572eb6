"""Errors of the Spark room.

Spark carries the text of an error to the user and drops its type. So each text begins with a code
that stays the same over releases, and goes on with stream, partition, offset and what to change.

    SparkSourceError
    ├── InvalidOption            [LIFTBRIDGE_INVALID_OPTION]       an option makes no sense
    ├── InvalidColumns           [LIFTBRIDGE_INVALID_COLUMNS]      columns that cannot be written
    ├── InvalidRow               [LIFTBRIDGE_INVALID_ROW]          a row that cannot be written
    ├── CheckpointMismatch       [LIFTBRIDGE_CHECKPOINT_MISMATCH]  offsets of something else
    ├── DataLoss                 [LIFTBRIDGE_DATA_LOSS]            messages are gone
    ├── StreamMissing            [LIFTBRIDGE_STREAM_MISSING]       no such stream or partition
    ├── NoOffsetAtTime           [LIFTBRIDGE_NO_OFFSET_AT_TIME]    nothing as new as asked for
    ├── ReadStalled              [LIFTBRIDGE_READ_TIMEOUT]         nothing came within readTimeout
    ├── ReadFailed               [LIFTBRIDGE_READ_FAILED]          any other failure of reading
    ├── WriteFailed              [LIFTBRIDGE_WRITE_FAILED]         some rows were not acked
    └── ServersUnreachable       [LIFTBRIDGE_UNREACHABLE]          no server could be reached
"""

from __future__ import annotations

from liftbridge_aio.errors import InvalidRequest, LiftbridgeError


class SparkSourceError(LiftbridgeError):
    """Something went wrong between Spark and Liftbridge."""

    code: str = "LIFTBRIDGE_ERROR"
    """Begins the text, in brackets; the only thing that survives Spark to be looked for."""

    def __str__(self) -> str:
        """Say the code, what happened, where, and what to do."""
        return f"[{self.code}] {super().__str__()}"


class InvalidOption(SparkSourceError, InvalidRequest):
    """An option has a value that makes no sense, is missing, or does not go with another."""

    code = "LIFTBRIDGE_INVALID_OPTION"


class InvalidColumns(SparkSourceError, InvalidRequest):
    """The DataFrame has columns that cannot be written, or lacks one that must be there."""

    code = "LIFTBRIDGE_INVALID_COLUMNS"


class InvalidRow(SparkSourceError, InvalidRequest):
    """A row cannot be written: no value, too large, or a target that makes no sense."""

    code = "LIFTBRIDGE_INVALID_ROW"


class CheckpointMismatch(SparkSourceError):
    """The offsets in the checkpoint belong to something else than what is read now."""

    code = "LIFTBRIDGE_CHECKPOINT_MISMATCH"


class DataLoss(SparkSourceError):
    """Messages that the query has not read yet are gone from the log."""

    code = "LIFTBRIDGE_DATA_LOSS"


class StreamMissing(SparkSourceError):
    """A stream or partition that was asked for does not exist, or does not any more."""

    code = "LIFTBRIDGE_STREAM_MISSING"


class NoOffsetAtTime(SparkSourceError):
    """No message is as new as the time at which the reading should start."""

    code = "LIFTBRIDGE_NO_OFFSET_AT_TIME"


class ReadStalled(SparkSourceError, TimeoutError):
    """A range of offsets gave no message for so long that the task gave up."""

    code = "LIFTBRIDGE_READ_TIMEOUT"


class ReadFailed(SparkSourceError):
    """A range of offsets could not be read."""

    code = "LIFTBRIDGE_READ_FAILED"


class WriteFailed(SparkSourceError):
    """Some rows of a task were not acknowledged; Spark runs the task again."""

    code = "LIFTBRIDGE_WRITE_FAILED"


class ServersUnreachable(SparkSourceError):
    """No server of the cluster could be reached in time."""

    code = "LIFTBRIDGE_UNREACHABLE"
