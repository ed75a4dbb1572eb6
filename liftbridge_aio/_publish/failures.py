"""The errors of publishes that no server has refused, and their texts."""

from __future__ import annotations

from liftbridge_aio._core.absence import Absence
from liftbridge_aio._core.status import CallFailure, error_from
from liftbridge_aio.errors import (
    AckTimeout,
    LiftbridgeError,
    NotLiftbridge,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
    StreamNotFound,
)
from liftbridge_aio.wire.rpc import PUBLISH_ASYNC


def no_ack() -> AckTimeout:
    """Return the error of a message that was not acked in time."""
    return AckTimeout(
        "no ack came in time; the leader may be gone, the partition read-only, or too few replicas"
        " in sync for AckPolicy.ALL"
    )


def not_written(absence: Absence | None, down_by: CallFailure | None) -> LiftbridgeError:
    """Return the error of a message that could not be written in time.

    Args:
        absence: what brokers said about its stream, if they did not know it.
        down_by: why the broker of its session is down, if it is.
    """
    if absence is not None and absence.denied_by:
        text = f"no broker knew the stream, asked for {absence.seconds:.1f} s"
        if not absence.interrupted:
            return StreamNotFound(text)
        return PublishTimeout(f"the servers went away meanwhile, and since then {text}")
    if down_by is not None and down_by.unusable is NotLiftbridge:
        return error_from(PUBLISH_ASYNC.name, down_by)
    why = "" if down_by is None else f" ({down_by.text})"
    return PublishTimeout(f"no server could be reached in time{why}")


def no_such_stream(absence: Absence, text: str) -> StreamNotFound:
    """Return the error of a message to a stream that no broker knows; `text` is a server's."""
    return StreamNotFound(f"{text} (asked for {absence.seconds:.1f} s)")


def connection_lost(address: str, failure: CallFailure) -> PublishOutcomeUnknown:
    """Return the error of a message that was written to a connection that broke before its ack."""
    text = f"the connection to {address} broke before the ack came: {failure.text}"
    error = PublishOutcomeUnknown(text)
    error.__cause__ = failure
    return error


def unacked_lost(address: str, count: int, failure: CallFailure) -> PublishOutcomeUnknown:
    """Return the error of messages with ack policy NONE on a connection that broke."""
    return PublishOutcomeUnknown(
        f"{count} messages with ack policy NONE were written to {address} before the connection"
        f" broke: {failure.text}"
    )


def not_trusted(failure: CallFailure) -> PublishNotSent:
    """Return the error of a message where TLS failed at every server."""
    error = PublishNotSent(f"TLS failed at every server: {failure.text}")
    error.__cause__ = error_from(PUBLISH_ASYNC.name, failure)
    return error


def client_fault(error: Exception) -> PublishOutcomeUnknown:
    """Return the error of a message that a fault of the client befell."""
    fault = PublishOutcomeUnknown(f"publishing failed by a fault of the client: {error!r}")
    fault.__cause__ = error
    return fault
