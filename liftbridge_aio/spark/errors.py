"""Errors of the Spark source and sink.

Spark shows users the text of an error and drops its type. So each text begins with a code that is
the same in all releases, and names stream, partition, offset and what to change.

    SparkSourceError
    ├── InvalidOption            [LIFTBRIDGE_INVALID_OPTION]       an option is wrong or missing
    ├── InvalidColumns           [LIFTBRIDGE_INVALID_COLUMNS]      columns that cannot be written
    ├── InvalidRow               [LIFTBRIDGE_INVALID_ROW]          a row that cannot be written
    ├── CheckpointMismatch       [LIFTBRIDGE_CHECKPOINT_MISMATCH]  offsets of other streams
    ├── DataLoss                 [LIFTBRIDGE_DATA_LOSS]            messages are gone
    ├── StreamMissing            [LIFTBRIDGE_STREAM_MISSING]       no such stream or partition
    ├── NoOffsetAtTime           [LIFTBRIDGE_NO_OFFSET_AT_TIME]    no message as new as the start
    ├── ReadStalled              [LIFTBRIDGE_READ_TIMEOUT]         nothing came within readTimeout
    ├── ReadFailed               [LIFTBRIDGE_READ_FAILED]          any other failure of reading
    ├── WriteFailed              [LIFTBRIDGE_WRITE_FAILED]         some rows were not acked
    ├── CommitFailed             [LIFTBRIDGE_COMMIT_FAILED]        a batch was not committed
    ├── BatchSuperseded          [LIFTBRIDGE_BATCH_SUPERSEDED]     a later batch is committed
    ├── BatchUnknown             [LIFTBRIDGE_BATCH_UNKNOWN]        a task has no query or batch id
    ├── BadRecord                [LIFTBRIDGE_BAD_RECORD]           a pipeline cannot parse a value
    └── ServersUnreachable       [LIFTBRIDGE_UNREACHABLE]          no server could be reached
"""

from __future__ import annotations

from typing import Final

from liftbridge_aio.errors import InvalidRequest, LiftbridgeError

TLS_HINT: Final = (
    "the options are liftbridge.tls, liftbridge.tlsCa, .tlsCert, .tlsKey and .tlsServerName, and "
    "the files are read by the driver and where tasks run"
)


NEW_QUERY_HINT: Final = (
    "give the query a new checkpointLocation and startingOffsets, and a new folder if it writes"
    " files"
)
"""In an old folder Spark skips the batches that it has of the former checkpoint."""


class SparkSourceError(LiftbridgeError):
    """Base of the errors that the Spark source and sink raise."""

    code: str = "LIFTBRIDGE_ERROR"
    """The code that begins the text, in brackets, for programs to search for."""

    def __str__(self) -> str:
        """Return code, problem, place and advice as one text."""
        return f"[{self.code}] {super().__str__()}"


class InvalidOption(SparkSourceError, InvalidRequest):
    """An option is missing, has an invalid value, or conflicts with another."""

    code = "LIFTBRIDGE_INVALID_OPTION"


class InvalidColumns(SparkSourceError, InvalidRequest):
    """The DataFrame has columns that cannot be written, or lacks one that must be there."""

    code = "LIFTBRIDGE_INVALID_COLUMNS"


class InvalidRow(SparkSourceError, InvalidRequest):
    """A row cannot be written: no value, too large, or no such stream or partition."""

    code = "LIFTBRIDGE_INVALID_ROW"


class CheckpointMismatch(SparkSourceError):
    """The checkpoint belongs to other streams or partitions than the query reads."""

    code = "LIFTBRIDGE_CHECKPOINT_MISMATCH"


class DataLoss(SparkSourceError):
    """Messages that the query has not read yet are gone from the log."""

    code = "LIFTBRIDGE_DATA_LOSS"


class StreamMissing(SparkSourceError):
    """A stream or partition does not exist, or no longer does."""

    code = "LIFTBRIDGE_STREAM_MISSING"


class NoOffsetAtTime(SparkSourceError):
    """No message is as new as the time to start at."""

    code = "LIFTBRIDGE_NO_OFFSET_AT_TIME"


class ReadStalled(SparkSourceError, TimeoutError):
    """No message of a range arrived within `readTimeout`."""

    code = "LIFTBRIDGE_READ_TIMEOUT"


class ReadFailed(SparkSourceError):
    """A range of offsets could not be read."""

    code = "LIFTBRIDGE_READ_FAILED"


class WriteFailed(SparkSourceError):
    """Some rows of a task were not acknowledged; Spark runs the task again."""

    code = "LIFTBRIDGE_WRITE_FAILED"


class CommitFailed(SparkSourceError):
    """The rows of a batch are not visible, or not in all partitions."""

    code = "LIFTBRIDGE_COMMIT_FAILED"


class BatchSuperseded(SparkSourceError):
    """A later batch of the query was committed, and this one never was."""

    code = "LIFTBRIDGE_BATCH_SUPERSEDED"


class BatchUnknown(SparkSourceError):
    """Spark does not tell a task which batch of which query it belongs to."""

    code = "LIFTBRIDGE_BATCH_UNKNOWN"


class BadRecord(SparkSourceError):
    """A source of a pipeline cannot parse a value; Spark itself raises it, in SQL."""

    code = "LIFTBRIDGE_BAD_RECORD"


class ServersUnreachable(SparkSourceError):
    """No server of the cluster could be reached in time."""

    code = "LIFTBRIDGE_UNREACHABLE"
