"""Creates, deletes, pauses and resumes streams: checks requests, sends them, retries safely."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, TypeVar

from liftbridge_aio._core.absence import Absence
from liftbridge_aio._core.arguments import (
    INT32_MAX,
    about,
    check_flags,
    check_optional_text,
    check_text,
    check_whole_number,
    partition_numbers,
)
from liftbridge_aio._core.names import group_problem, stream_name_problem, subject_problem
from liftbridge_aio._core.status import CallFailure, Code, Reach, StreamEnd, error_from, stream_end
from liftbridge_aio.errors import (
    InvalidRequest,
    LiftbridgeError,
    NotFound,
    PartitionNotFound,
    PermissionDenied,
    RequestTimeout,
    StreamExists,
    StreamNotFound,
    StreamReserved,
)
from liftbridge_aio.model import RESERVED_STREAMS
from liftbridge_aio.net.broker_connection import Purpose
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import StreamOptions
from liftbridge_aio.retry import wait_before_try
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.convert import create_stream_request
from liftbridge_aio.wire.rpc import (
    CREATE_STREAM,
    DELETE_STREAM,
    PAUSE_STREAM,
    SET_STREAM_READONLY,
    SUBSCRIBE,
    ReplyT,
    Rpc,
)

logger = logging.getLogger("liftbridge_aio.streams")

_LOOK: Final = 1.0
"""Seconds for a look at a stream that existed before, which only a warning depends on."""
_ChangeT = TypeVar("_ChangeT", proto.PauseStreamRequest, proto.SetStreamReadonlyRequest)


class StreamAdministration:
    """Implements the calls of `Client` that change streams."""

    def __init__(self, network: Network) -> None:
        self._network = network

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
            check_flags(exist_ok=exist_ok)
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
            await self._network.router.call_any(
                CREATE_STREAM,
                request,
                timeout,
                stream=name,
                reply_if_done=proto.CreateStreamResponse(),
            )
        except StreamExists:
            if not exist_ok:
                raise
            self._network.metadata.forget(name)
            await self._warn_of_other_partitions(name, partitions, min(timeout, _LOOK))
        except InvalidRequest as error:
            if "replicationFactor" in error.message:
                error.hint = "each copy needs a server of its own; -1 makes one on every server"
            raise
        self._network.metadata.forget(name)

    async def _warn_of_other_partitions(self, name: str, wanted: int, timeout: float) -> None:
        """Log a warning if a stream that existed has not as many partitions as were asked for."""
        with suppress(LiftbridgeError):  # the stream exists, which is all that was asked for
            count = len((await self._network.metadata.stream(name, timeout)).partitions)
            if count != wanted:
                logger.warning(
                    "the stream %r exists with %d partitions, not %d, and stays as it is",
                    name,
                    count,
                    wanted,
                )

    async def delete(self, name: str, timeout: float) -> None:
        """Delete a stream; see `Client.delete_stream`. Cancelling may leave it deleted."""
        _check_name(name, forbid_reserved=True)
        with _of_existing():
            await self._network.router.call_any(
                DELETE_STREAM,
                proto.DeleteStreamRequest(name=name),
                timeout,
                stream=name,
                reply_if_done=proto.DeleteStreamResponse(),
            )
        self._network.metadata.forget(name)

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
        with about(name):
            check_flags(resume_all=resume_all)
        chosen = _chosen(name, partitions)
        request = proto.PauseStreamRequest(name=name, partitions=chosen, resume_all=resume_all)
        await self._change(PAUSE_STREAM, request, timeout, name, chosen)

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
        with about(name):
            check_flags(readonly=readonly)
        chosen = _chosen(name, partitions)
        request = proto.SetStreamReadonlyRequest(name=name, partitions=chosen, readonly=readonly)
        await self._change(SET_STREAM_READONLY, request, timeout, name, chosen)

    async def _change(
        self,
        rpc: Rpc[_ChangeT, ReplyT],
        request: _ChangeT,
        timeout: float,
        stream: str,
        partitions: list[int],
    ) -> None:
        """Change partitions of a stream, if the metadata leader knows the stream.

        Without partition numbers, a server that does not know the stream (yet) refuses the call
        itself; with numbers, it passes it to the metadata leader.

        Raises:
            StreamNotFound: the metadata leader does not know the stream.
            LiftbridgeError: it could not be done in time.
        """
        call_any = self._network.router.call_any
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        attempt = 0
        while True:
            try:
                with _of_existing():
                    left = deadline - loop.time()
                    await call_any(rpc, request, left, stream=stream, partition=_only(partitions))
            except StreamNotFound as error:
                if partitions:
                    raise
                denial = error
            else:
                return
            impossible = replace(request, partitions=[INT32_MAX])
            with suppress(PartitionNotFound), _of_existing():
                await call_any(rpc, impossible, deadline - loop.time(), stream=stream)
            attempt += 1
            delay = self._network.router.delay(attempt)
            wait = wait_before_try(delay, deadline - loop.time())
            if wait is None:
                raise RequestTimeout(
                    f"the servers did not know the stream within {timeout:g} s", stream=stream
                ) from denial
            await asyncio.sleep(wait)

    async def resume(self, name: str, partitions: Sequence[int] | None, timeout: float) -> None:
        """Resume partitions; see `Client.resume_stream`. Cancelling may leave some resumed."""
        _check_name(name)
        chosen = _chosen(name, partitions)
        text = "not all partitions were resumed"
        async with self._network.bounded(timeout, text, call=SUBSCRIBE.name, stream=name):
            with _of_existing():
                info = await self._network.metadata.stream(name, timeout, renew=True)
            for partition in chosen or info.partitions:
                await self._resume(name, partition)

    async def _resume(self, stream: str, partition: int) -> None:
        """Resume one partition by subscribing to it; the API has no call for that."""
        network, loop = self._network, asyncio.get_running_loop()
        absence = Absence(network.not_found_timeout)
        attempt = 0
        while True:
            address: str | None = None
            try:
                address = self._leader_address(stream, partition)
                await self._network.supervisor.call(
                    _subscribe_and_leave,
                    self._network,
                    address,
                    stream,
                    partition,
                    name="resume",
                )
            except CallFailure as failure:
                end = stream_end(failure)
                if end is StreamEnd.STOP_BEFORE_START:
                    return  # resumed; it is read-only and has no new messages
                attempt += 1
                again = end in _WORTH_ANOTHER_TRY and not failure.tls_failed
                if end is StreamEnd.NOT_FOUND:
                    if address is not None:
                        absence.denied(loop.time(), network.pool.incarnation(address))
                    again = not absence.confirmed
                if not again:
                    raise error_from(
                        SUBSCRIBE.name, failure, stream=stream, partition=partition
                    ) from failure
                await asyncio.sleep(min(network.router.delay(attempt), absence.remaining))
                by = await network.metadata.refresh([stream])
                if stream not in network.metadata.snapshot.streams:
                    absence.denied(loop.time(), by)
            else:
                return

    def _leader_address(self, stream: str, partition: int) -> str:
        """Return the address of the leader, from metadata that was refreshed just now."""
        snapshot = self._network.metadata.snapshot
        leader = snapshot.leader(stream, partition)
        if leader is not None:
            return self._network.router.address_of(leader)
        if stream not in snapshot.streams:
            raise CallFailure(Code.NOT_FOUND, "no broker knows the stream")
        if snapshot.partition(stream, partition) is None:
            raise PartitionNotFound("no such partition", stream=stream, partition=partition)
        raise CallFailure(
            Code.UNAVAILABLE, "the leader of the partition is not known", Reach.NOT_SENT
        )

    async def wait_for_leader(self, timeout: float) -> None:
        """Wait until the cluster can change streams.

        Pauses a stream that does not exist, which fails with "not found" once there is a leader.
        If a policy of the servers forbids that call, this returns at once. Cancelling abandons the
        wait.

        Raises:
            LiftbridgeError: not within `timeout` seconds.
        """
        name = f"liftbridge-aio-ready-{secrets.token_hex(8)}"
        request = proto.PauseStreamRequest(name=name, partitions=[0])
        try:
            await self._network.router.call_any(PAUSE_STREAM, request, timeout)
        except (NotFound, PermissionDenied):
            return


_WORTH_ANOTHER_TRY: Final = frozenset(
    {StreamEnd.LOST, StreamEnd.NOT_LEADER, StreamEnd.PAUSED, StreamEnd.LOG_CLOSED}
)


async def _subscribe_and_leave(network: Network, address: str, stream: str, partition: int) -> None:
    request = proto.SubscribeRequest(stream=stream, partition=partition, resume=True)
    connection = await network.pool.get(address, Purpose.SUBSCRIBE)
    async with connection.open(SUBSCRIBE) as call:
        await call.send([bytes(request)], end=True)
        if await call.receive() is None:
            raise CallFailure(
                Code.UNAVAILABLE, "the server ended the subscription at once", Reach.UNKNOWN
            )


@contextmanager
def _of_existing() -> Iterator[None]:
    """Replace the hint of `StreamNotFound`, which says to create the stream."""
    try:
        yield
    except StreamNotFound as error:
        error.hint = "check its name; it may have been deleted already"
        raise


def _check_name(name: str, *, forbid_reserved: bool = False) -> None:
    check_text(name, "a stream name")
    problem = stream_name_problem(name)
    if problem is not None:
        raise InvalidRequest(problem, stream=name or None)
    if forbid_reserved and name in RESERVED_STREAMS:
        raise StreamReserved("internal streams are managed by the server", stream=name)


def _check_creation(
    subject: str, partitions: int, replication_factor: int, group: str | None
) -> None:
    check_text(subject, "a subject")
    check_optional_text(group, "a group")
    problem = subject_problem(subject) or group_problem(group or "")
    if problem is not None:
        raise InvalidRequest(problem)
    # A negative number crashes the server; 0 would silently mean 1.
    check_whole_number(partitions, "partitions", 1, INT32_MAX)
    if replication_factor != -1:
        check_whole_number(replication_factor, "replication_factor (or -1)", 1, INT32_MAX)
    if partitions > 1 and subject.endswith(".>"):
        # Partition n listens on "<subject>.<n>", for which NATS closes the server's connection.
        raise InvalidRequest(
            f"a subject that ends in '>' allows one partition only, not {partitions}"
        )


def _chosen(stream: str, partitions: object) -> list[int]:
    """Return the partitions of a request, checked; none means all, as it does on the wire."""
    if partitions is None:
        return []
    with about(stream):
        chosen = partition_numbers(partitions)
        if not chosen:
            raise InvalidRequest("an empty list of partitions would mean all; leave it out for all")
    return chosen


def _only(partitions: list[int]) -> int | None:
    """Return the partition that an error is about, if there is only one."""
    return partitions[0] if len(partitions) == 1 else None
