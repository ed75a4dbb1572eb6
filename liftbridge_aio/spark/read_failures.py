"""What a failure of the client means to a query that reads: the client's errors in Spark's terms.

Spark keeps nothing but the text, so each says where it happened and which option changes it. Pure.
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

from .errors import (
    DataLoss,
    ReadFailed,
    ReadStalled,
    ServersUnreachable,
    SparkSourceError,
    StreamMissing,
)
from .offsets import StreamPartition

_MISSING_HINT: Final = (
    "create it, or change the option that names it; a stream that was deleted and created again "
    "needs a new checkpointLocation"
)
_RESET_HINT: Final = (
    "set startingOffsets and a new checkpointLocation to read it from a place of your choice, or "
    "failOnDataLoss=false to go on with what is there"
)

TLS_HINT: Final = (
    "the options are liftbridge.tls, liftbridge.tlsCa, .tlsCert, .tlsKey and .tlsServerName, and "
    "the files are read by the driver and where tasks run"
)


def read_failure(
    error: LiftbridgeError,
    servers: tuple[str, ...],
    place: StreamPartition | None = None,
    offset: int | None = None,
) -> SparkSourceError:
    """Turn an error of the client into one that a user of Spark can act upon.

    Args:
        error: what the client raised; one of ours is returned with its place filled in.
        servers: where the client was told to connect to.
        place: what was being read.
        offset: the next offset that was wanted.
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
                "the log is not the one that was being read",
                _RESET_HINT,
            )
        case SubscriptionLost():
            return (
                ReadFailed,
                f"the servers ({servers}) were away for longer than readTimeout",
                "start the query again once they are back, or raise the option readTimeout",
            )
        case PartitionPaused():
            return (
                ReadFailed,
                "the partition was paused while it was read",
                "resume it (Client.resume_stream) and start the query again",
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
                "check that they run and the option servers; readTimeout says for how long to try",
            )
        case RequestTimeout():
            return (
                ReadStalled,
                f"the servers ({servers}) did not answer in time",
                "check that they run, or raise the options readTimeout or liftbridge.callTimeout",
            )
        case _:
            return (
                ReadFailed,
                f"the servers ({servers}) refused",
                "see what they say, and start the query again",
            )
