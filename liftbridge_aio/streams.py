"""Creating, deleting, pausing and opening streams: requests checked, sent, and made repeatable."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from .arguments import INT32_MAX, about, check_text, check_type, check_whole_number
from .errors import (
    InvalidRequest,
    LiftbridgeError,
    NotFound,
    PermissionDenied,
    RequestTimeout,
    StreamExists,
    StreamReserved,
)
from .model import RESERVED_STREAMS
from .names import group_problem, stream_name_problem, subject_problem
from .net.connection import Connection
from .net.link import Purpose
from .options import StreamOptions
from .status import CallFailure, Code, Reach, StreamEnd, error_from, stream_end
from .wire import proto
from .wire.convert import create_stream_request
from .wire.rpc import (
    CREATE_STREAM,
    DELETE_STREAM,
    PAUSE_STREAM,
    SET_STREAM_READONLY,
    SUBSCRIBE,
)


class StreamAdministration:
    """Changes streams; the calls of `Client` of the same names say more."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
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
        with about(name):
            _check_creation(subject, partitions, replication_factor, group)
        request = create_stream_request(
            name,
            subject,
            partitions=partitions,
            replication_factor=replication_factor,
            group=group,
            options=options,
        )
        try:
            await self._connection.router.call_any(
                CREATE_STREAM, request, timeout, stream=name, on_repeat=proto.CreateStreamResponse()
            )
        except StreamExists:
            if not exist_ok:
                raise
        self._connection.metadata.forget(name)

    async def delete(self, name: str, timeout: float) -> None:
        """Delete a stream; see `Client.delete_stream`. Cancelling may leave it deleted."""
        _check_name(name, forbid_reserved=True)
        await self._connection.router.call_any(
            DELETE_STREAM,
            proto.DeleteStreamRequest(name=name),
            timeout,
            stream=name,
            on_repeat=proto.DeleteStreamResponse(),
        )
        self._connection.metadata.forget(name)

    async def pause(
        self,
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
        await self._connection.router.call_any(
            PAUSE_STREAM, request, timeout, stream=name, partition=_only(partitions)
        )

    async def set_readonly(
        self,
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
        await self._connection.router.call_any(
            SET_STREAM_READONLY, request, timeout, stream=name, partition=_only(partitions)
        )

    async def resume(self, name: str, partitions: Sequence[int] | None, timeout: float) -> None:
        """Resume partitions; see `Client.resume_stream`. Cancelling may leave some resumed."""
        _check_name(name)
        try:
            async with asyncio.timeout(timeout):
                info = await self._connection.metadata.stream(name, renew=True)
                for partition in _checked(name, partitions) or info.partitions:
                    await self._resume(name, partition)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            text = f"not all partitions were resumed within {timeout:g} s"
            raise RequestTimeout(text, stream=name) from None

    async def _resume(self, stream: str, partition: int) -> None:
        """Resume one partition by subscribing to it: no other call of the wire does that."""
        attempt = 0
        while True:
            leader = self._connection.metadata.snapshot.leader(stream, partition)
            try:
                if leader is None:
                    text = "the partition, or its leader, is not known"
                    raise CallFailure(Code.NOT_FOUND, text)
                address = self._connection.router.address_of(leader)
                await self._connection.supervisor.call(
                    _subscribe_and_leave,
                    self._connection,
                    address,
                    stream,
                    partition,
                    name="resume",
                )
            except CallFailure as failure:
                end = stream_end(failure)
                if end is StreamEnd.STOP_BEFORE_START:
                    return  # resumed; being read-only it has nothing new to offer
                attempt += 1
                again = end in _WORTH_ANOTHER_TRY and not failure.insecure
                if not again and not (end is StreamEnd.NOT_FOUND and attempt == 1):
                    raise error_from(
                        SUBSCRIBE.name, failure, stream=stream, partition=partition
                    ) from failure
                await asyncio.sleep(self._connection.router.delay(attempt))
                await self._connection.metadata.refresh([stream])
            else:
                return

    async def wait_for_leader(self, timeout: float) -> None:
        """Wait until the cluster can change streams.

        A pause of a stream that does not exist answers "not found" once there is a leader, and
        changes nothing. A policy of the servers may forbid the question, which leaves it open.
        Cancelling abandons the wait.

        Raises:
            LiftbridgeError: not within `timeout` seconds.
        """
        name = f"liftbridge-aio-ready-{secrets.token_hex(8)}"
        request = proto.PauseStreamRequest(name=name, partitions=[0])
        try:
            await self._connection.router.call_any(PAUSE_STREAM, request, timeout)
        except (NotFound, PermissionDenied):
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


def _check_name(name: str, *, forbid_reserved: bool = False) -> None:
    check_text(name, "a stream name")
    problem = stream_name_problem(name)
    if problem is not None:
        raise InvalidRequest(problem, stream=name or None)
    if forbid_reserved and name in RESERVED_STREAMS:
        raise StreamReserved("internal streams belong to the server", stream=name)


def _check_creation(
    subject: str, partitions: int, replication_factor: int, group: str | None
) -> None:
    check_text(subject, "a subject")
    check_text(group or "", "a group")
    problem = subject_problem(subject) or group_problem(group or "")
    if problem is not None:
        raise InvalidRequest(problem)
    # A negative number crashes the server (W30); 0 would silently mean 1.
    check_whole_number(partitions, "partitions", 1, INT32_MAX)
    if replication_factor != -1:
        check_whole_number(replication_factor, "replication_factor (or -1)", 1, INT32_MAX)
    if partitions > 1 and subject.endswith(".>"):
        # Partition n listens on "<subject>.<n>", and NATS hangs up on the server for that.
        text = f"a subject that ends in '>' is for one partition, not {partitions}"
        raise InvalidRequest(text)


def _checked(stream: str, partitions: Sequence[int] | None) -> list[int]:
    if partitions is None:
        return []
    with about(stream):
        check_type(partitions, (Iterable,), "partitions come as a list")
    chosen = list(partitions)
    if not chosen:
        text = "an empty list of partitions would mean all to the server; leave it out for all"
        raise InvalidRequest(text, stream=stream)
    for partition in chosen:
        with about(stream, partition):
            check_whole_number(partition, "a partition", 0, INT32_MAX)
    return chosen


def _only(partitions: Sequence[int] | None) -> int | None:
    """The partition that an error is about, where there is just one."""
    return partitions[0] if partitions is not None and len(partitions) == 1 else None
