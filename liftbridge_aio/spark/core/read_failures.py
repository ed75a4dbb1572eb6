"""Convert errors of the client into those of a query that reads. Pure.

Spark keeps only the text, so each text names the place and the option to change.
"""

from __future__ import annotations

from typing import Final

from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    NotFound,
    PartitionPaused,
    RequestTimeout,
    StreamReset,
    SubscriptionLost,
    TLSFailed,
)
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.errors import (
    NEW_QUERY_HINT,
    TLS_HINT,
    DataLoss,
    ReadFailed,
    ReadStalled,
    ServersUnreachable,
    SparkSourceError,
    StreamMissing,
)
from liftbridge_aio.transactions.errors import MalformedAck, NewerFormat, TransactionTruncated

_MISSING_HINT: Final = (
    "create it, or change the option that names it; if it was deleted and created again, "
    f"{NEW_QUERY_HINT}"
)
_MALFORMED_HINT: Final = "find out who wrote it, or set onMalformed=skip to continue without it"
_RESET_HINT: Final = (
    f"to read it from where you choose, {NEW_QUERY_HINT}; or set failOnDataLoss=false to continue "
    "with what is stored"
)


def read_failure(
    error: LiftbridgeError,
    servers: tuple[str, ...],
    place: StreamPartition | None = None,
    offset: int | None = None,
) -> SparkSourceError:
    """Convert an error of the client into one that tells users of Spark what to do.

    Args:
        error: what the client raised; a `SparkSourceError` is returned with its place filled in.
        servers: the addresses in the options.
        place: the partition that was read.
        offset: the next offset to read.
    """
    if place is not None:
        error.at(place.stream, place.partition, offset)
    if isinstance(error, SparkSourceError):
        return error
    kind, text, hint = _meaning(error, ",".join(servers))
    failure = kind(
        f"{text}: {error.message}",
        stream=error.stream,
        partition=error.partition,
        offset=offset if error.offset is None else error.offset,
    )
    failure.hint = hint
    failure.__cause__ = error
    return failure


def _meaning(error: LiftbridgeError, servers: str) -> tuple[type[SparkSourceError], str, str]:
    match error:
        case NotFound():
            return (
                StreamMissing,
                "the stream or partition does not exist",
                _MISSING_HINT,
            )
        case StreamReset():
            return (
                DataLoss,
                "the stream was created again or truncated while it was read",
                _RESET_HINT,
            )
        case TransactionTruncated():
            return (
                DataLoss,
                "the beginning of a transaction is no longer in the log",
                "keep messages longer (retention), or set failOnDataLoss=false to read the rest",
            )
        case MalformedAck() | NewerFormat():
            malformed = isinstance(error, MalformedAck)
            hint = _MALFORMED_HINT if malformed else error.hint
            return ReadFailed, "an ack of transactions cannot be read", hint
        case SubscriptionLost():
            return (
                ReadFailed,
                f"the servers ({servers}) were unreachable for longer than readTimeout",
                "restart the query when they are available, or raise the option readTimeout",
            )
        case PartitionPaused():
            return (
                ReadFailed,
                "the partition was paused while it was read",
                "resume it (Client.resume_stream) and restart the query",
            )
        case TLSFailed():
            return (
                ServersUnreachable,
                f"TLS with the servers ({servers}) failed",
                f"{error.hint}; {TLS_HINT}",
            )
        case ConnectionFailed():
            return (
                ServersUnreachable,
                f"no server of {servers} could be reached",
                "check the option servers, and that they run; readTimeout limits the retries",
            )
        case RequestTimeout():
            return (
                ReadStalled,
                f"the servers ({servers}) did not answer in time",
                "check that they run, or raise the option readTimeout",
            )
        case _:
            return (
                ReadFailed,
                f"the servers ({servers}) refused the read",
                "correct what they report, and restart the query",
            )
