"""Creating, deleting, pausing and opening streams: requests checked, sent, and made repeatable."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from .errors import (
    AckTimeout,
    ConnectionFailed,
    InvalidRequest,
    NotFound,
    PublishOutcomeUnknown,
    RequestTimeout,
    StreamExists,
    StreamReserved,
)
from .model import RESERVED_HEADERS, RESERVED_STREAMS, Ack, AckError, AckPolicy
from .net.connection import Connection
from .net.link import Purpose
from .options import StreamOptions
from .publish_status import PublishCode, publish_error
from .status import CallFailure, Code, Reach, StreamEnd, error_from, stream_end
from .wire import proto
from .wire.codec import ack_from_wire
from .wire.convert import create_stream_request
from .wire.rpc import (
    CREATE_STREAM,
    DELETE_STREAM,
    PAUSE_STREAM,
    PUBLISH_TO_SUBJECT,
    SET_STREAM_READONLY,
    SUBSCRIBE,
)

_INT32_MAX: Final = 2**31 - 1


async def create_stream(
    connection: Connection,
    name: str,
    subject: str,
    *,
    partitions: int,
    replication_factor: int,
    group: str | None,
    options: StreamOptions,
    exist_ok: bool,
    timeout: float,
) -> None:
    """Create a stream; see `Client.create_stream`. Cancelling may leave it created."""
    _check_name(name, forbid_reserved=True)
    problem = None
    if not valid_subject(subject):
        problem = f"{subject!r} is no NATS subject"
    elif not 1 <= partitions <= _INT32_MAX:
        # A negative number crashes the server (W30); 0 would silently mean 1.
        problem = f"partitions must be at least 1, not {partitions}"
    elif replication_factor != -1 and not 1 <= replication_factor <= _INT32_MAX:
        problem = f"replication_factor is at least 1, or -1 for all, not {replication_factor}"
    if problem is not None:
        raise InvalidRequest(problem, stream=name)
    request = create_stream_request(
        name,
        subject,
        partitions=partitions,
        replication_factor=replication_factor,
        group=group,
        options=options,
    )
    try:
        await connection.router.call_any(
            CREATE_STREAM, request, timeout, stream=name, on_repeat=proto.CreateStreamResponse()
        )
    except StreamExists:
        if not exist_ok:
            raise
    await connection.metadata.refresh([name])


async def delete_stream(connection: Connection, name: str, timeout: float) -> None:
    """Delete a stream; see `Client.delete_stream`. Cancelling may leave it deleted."""
    _check_name(name, forbid_reserved=True)
    await connection.router.call_any(
        DELETE_STREAM,
        proto.DeleteStreamRequest(name=name),
        timeout,
        stream=name,
        on_repeat=proto.DeleteStreamResponse(),
    )
    await connection.metadata.refresh([name])


async def pause_stream(
    connection: Connection,
    name: str,
    partitions: Sequence[int] | None,
    *,
    resume_all: bool,
    timeout: float,
) -> None:
    """Pause partitions; see `Client.pause_stream`. Cancelling may leave them paused."""
    _check_name(name)
    request = proto.PauseStreamRequest(
        name=name, partitions=_checked(name, partitions), resume_all=resume_all
    )
    await connection.router.call_any(PAUSE_STREAM, request, timeout, stream=name)


async def set_stream_readonly(
    connection: Connection,
    name: str,
    partitions: Sequence[int] | None,
    *,
    readonly: bool,
    timeout: float,
) -> None:
    """Set or clear the read-only flag; see `Client.set_stream_readonly`."""
    _check_name(name)
    request = proto.SetStreamReadonlyRequest(
        name=name, partitions=_checked(name, partitions), readonly=readonly
    )
    await connection.router.call_any(SET_STREAM_READONLY, request, timeout, stream=name)


async def resume_stream(
    connection: Connection, name: str, partitions: Sequence[int] | None, timeout: float
) -> None:
    """Resume partitions; see `Client.resume_stream`. Cancelling may leave some resumed."""
    _check_name(name)
    try:
        async with asyncio.timeout(timeout):
            info = await connection.metadata.stream(name, renew=True)
            for partition in _checked(name, partitions) or info.partitions:
                await _resume(connection, name, partition)
    except TimeoutError:
        text = f"not all partitions were resumed within {timeout:g} s"
        raise RequestTimeout(text, stream=name) from None


async def _resume(connection: Connection, stream: str, partition: int) -> None:
    """Resume one partition by subscribing to it: no other call of the wire does that."""
    attempt = 0
    while True:
        leader = connection.metadata.snapshot.leader(stream, partition)
        try:
            if leader is None:
                text = "the partition, or its leader, is not known"
                raise CallFailure(Code.NOT_FOUND, text)
            address = connection.router.address_of(leader)
            await connection.supervisor.call(
                _subscribe_and_leave, connection, address, stream, partition, name="resume"
            )
        except CallFailure as failure:
            end = stream_end(failure)
            if end is StreamEnd.STOP_BEFORE_START:
                return  # resumed; being read-only it has nothing new to offer
            attempt += 1
            again = end in _WORTH_ANOTHER_TRY
            if not again and not (end is StreamEnd.NOT_FOUND and attempt == 1):
                raise error_from(
                    SUBSCRIBE.name, failure, stream=stream, partition=partition
                ) from failure
            await asyncio.sleep(connection.router.delay(attempt))
            await connection.metadata.refresh([stream])
        else:
            return


_WORTH_ANOTHER_TRY: Final = frozenset(
    {StreamEnd.LOST, StreamEnd.NOT_LEADER, StreamEnd.PAUSED, StreamEnd.LOG_CLOSED}
)


async def _subscribe_and_leave(
    connection: Connection, address: str, stream: str, partition: int
) -> None:
    request = proto.SubscribeRequest(stream=stream, partition=partition, resume=True)
    link = await connection.pool.get(address, Purpose.SUBSCRIBE)
    async with link.open(SUBSCRIBE) as exchange:
        await exchange.send([bytes(request)], end=True)
        if await exchange.receive() is None:
            text = "the server ended the subscription at once"
            raise CallFailure(Code.UNAVAILABLE, text, Reach.UNKNOWN)


async def publish_to_subject(
    connection: Connection,
    subject: str,
    value: bytes,
    *,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    ack_policy: AckPolicy,
    ack_inbox: str | None,
    correlation_id: str | None,
    timeout: float,
) -> Ack | None:
    """Publish to a NATS subject; see `Client.publish_to_subject`."""
    if not valid_subject(subject) or "*" in subject or ">" in subject:
        text = f"{subject!r} is no NATS subject to publish to"
        raise InvalidRequest(text)
    if not (is_bytes(value) and (key is None or is_bytes(key))):
        raise InvalidRequest("keys and values are bytes; encode them first")
    if headers and not RESERVED_HEADERS.isdisjoint(headers):
        text = f"the server writes the headers {sorted(RESERVED_HEADERS)} itself (W5)"
        raise InvalidRequest(text)
    request = proto.PublishToSubjectRequest(
        subject=subject,
        value=value,
        key=key or b"",
        headers=dict(headers or {}),
        ack_policy=proto.AckPolicy(ack_policy),
        ack_inbox=ack_inbox or "",
        correlation_id=correlation_id or "",
    )
    try:
        # The deadline goes along: without one the server neither waits nor acks.
        reply = await connection.router.call_any(PUBLISH_TO_SUBJECT, request, timeout)
    except RequestTimeout as error:
        text = f"no ack for the message to subject {subject!r} within {timeout:g} s"
        raise AckTimeout(text) from error
    except ConnectionFailed as error:
        if error.reached_server:
            text = f"the link broke before the ack for subject {subject!r} came"
            raise PublishOutcomeUnknown(text) from error
        raise
    if ack_policy is AckPolicy.NONE or reply.ack is None:
        return None
    ack = ack_from_wire(reply.ack)
    if ack.ack_error is not AckError.OK:
        # A nack comes with the status OK here (W6).
        code = _NACK_CODES.get(ack.ack_error, PublishCode.UNKNOWN)
        text = f"the ack says {ack.ack_error.name}"
        raise publish_error(code, text).at(ack.stream)
    return ack


_NACK_CODES: Final = {
    AckError.INCORRECT_OFFSET: PublishCode.INCORRECT_OFFSET,
    AckError.TOO_LARGE: PublishCode.BAD_REQUEST,
    AckError.ENCRYPTION: PublishCode.ENCRYPTION_FAILED,
}


async def wait_for_metadata_leader(connection: Connection, timeout: float) -> None:
    """Wait until the cluster can change streams.

    A pause of a stream that does not exist answers "not found" once there is a leader, and changes
    nothing. Cancelling abandons the wait.

    Raises:
        LiftbridgeError: not within `timeout` seconds.
    """
    name = f"liftbridge-aio-ready-{secrets.token_hex(8)}"
    request = proto.PauseStreamRequest(name=name, partitions=[0])
    try:
        await connection.router.call_any(PAUSE_STREAM, request, timeout)
    except NotFound:
        return


def valid_subject(subject: str) -> bool:
    """Tell whether a server takes this as a NATS subject: tokens with dots between, no blanks."""
    return not any(blank in subject for blank in " \t\r\n") and all(subject.split("."))


def is_bytes(value: object) -> bool:
    """Tell whether a caller really passed bytes, whatever the types say."""
    return isinstance(value, bytes)


def _check_name(name: str, *, forbid_reserved: bool = False) -> None:
    if not name:
        raise InvalidRequest("a stream name must not be empty")
    if forbid_reserved and name in RESERVED_STREAMS:
        raise StreamReserved("internal streams belong to the server", stream=name)


def _checked(stream: str, partitions: Sequence[int] | None) -> list[int]:
    if partitions is None:
        return []
    chosen = list(partitions)
    if not chosen:
        text = "an empty list of partitions would mean all to the server; leave it out for all"
        raise InvalidRequest(text, stream=stream)
    for partition in chosen:
        if not 0 <= partition <= _INT32_MAX:
            text = "a partition is a number from 0 up"
            raise InvalidRequest(text, stream=stream, partition=partition)
    return chosen
