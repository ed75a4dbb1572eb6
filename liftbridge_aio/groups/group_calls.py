"""The gRPC calls of a consumer group, each made once without retries.

Any broker forwards joins, leaves and reports to the metadata leader. Assignments can be fetched
only from the coordinator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from liftbridge_aio._core.status import (
    CallFailure,
    Code,
    GroupRefusal,
    Reach,
    error_from,
    group_refusal,
)
from liftbridge_aio.errors import StreamNotFound
from liftbridge_aio.model import BrokerInfo, Metadata, StreamPartition
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.convert import metadata_from_wire
from liftbridge_aio.wire.rpc import (
    FETCH_CONSUMER_GROUP_ASSIGNMENTS,
    FETCH_METADATA,
    JOIN_CONSUMER_GROUP,
    LEAVE_CONSUMER_GROUP,
    REPORT_CONSUMER_GROUP_COORDINATOR,
    ReplyT,
    RequestT,
    Rpc,
)

from .core.group_plan import Assignment
from .core.steps import (
    Answer,
    Call,
    Done,
    Fetch,
    Fetched,
    Join,
    Joined,
    Leave,
    Locate,
    Located,
    Refused,
    Report,
)

_NS: Final = 1_000_000_000
_CHANGE_LIMIT: Final = 3.0
"""Timeout of a join, a leave or a report, which go through the Raft log of the cluster."""
_LOCATE_LIMIT: Final = 0.5
"""Timeout of metadata calls, because a server with a dead peer waits until the deadline for it.

Doubled as long as calls exceed it.
"""


class GroupCalls:
    """Makes the calls of one group and converts their outcome for `Membership`."""

    def __init__(self, group: str, streams: Sequence[str], network: Network) -> None:
        self._group = group
        self._streams = list(streams)
        self._network = network
        self._brokers: dict[str, BrokerInfo] = {}
        self._turn = itertools.count()
        self._unlocated = 0

    async def make(self, call: Call, limit: float) -> Answer:
        """Make a call and return its answer; failures are returned as `Refused`.

        Cancelling abandons it; the server may or may not have executed it.

        Args:
            call: the call.
            limit: the timeout of calls to the coordinator, in seconds.

        Raises:
            ClientClosed: the client was closed.
        """
        try:
            return await self._made(call, limit)
        except CallFailure as failure:
            return _refused(call, failure)

    async def _made(self, call: Call, limit: float) -> Answer:
        match call:
            case Join():
                return await self._join(call)
            case Leave():
                leave = proto.LeaveConsumerGroupRequest(
                    group_id=self._group, consumer_id=call.consumer
                )
                await self._any(LEAVE_CONSUMER_GROUP, leave)
                return Done()
            case Fetch():
                return await self._fetch(call, limit)
            case Locate():
                return await self._locate(call, limit)
            case Report():
                report = proto.ReportConsumerGroupCoordinatorRequest(
                    group_id=self._group,
                    consumer_id=call.consumer,
                    coordinator=call.coordinator,
                    epoch=call.epoch,
                )
                await self._any(REPORT_CONSUMER_GROUP_COORDINATOR, report, but=call.coordinator)
                return Done()

    async def _join(self, call: Join) -> Joined | Refused:
        found = _creation_times(await self._fetch_metadata(await self._living_address(None)))
        # A join that names a deleted stream is refused, and the member would be lost for those that
        # exist. The first join names all: a stream that never existed is an error of the user.
        named = [each for each in self._streams if each in found] if call.again else self._streams
        if not named:
            gone = StreamNotFound("no stream of the group exists")
            return Refused(GroupRefusal.NO_STREAM, gone)
        request = proto.JoinConsumerGroupRequest(
            group_id=self._group, consumer_id=call.consumer, streams=named
        )
        try:
            reply = await self._any(JOIN_CONSUMER_GROUP, request)
        except CallFailure as failure:
            refused = _refused(call, failure)
            if call.again and refused.why is GroupRefusal.NO_STREAM:
                refused = replace(refused, why=GroupRefusal.LOST)  # it was found just before
            return replace(refused, found=bool(found))
        return Joined(
            reply.coordinator,
            reply.epoch,
            reply.consumer_timeout / _NS,
            reply.coordinator_timeout / _NS,
            {stream: found.get(stream, -1) for stream in self._streams},
        )

    async def _fetch(self, call: Fetch, limit: float) -> Fetched:
        address = self._address(call.coordinator)
        if address is None:
            raise CallFailure(
                Code.UNAVAILABLE,
                f"the address of the coordinator {call.coordinator!r} is not known",
                Reach.NOT_SENT,
            )
        request = proto.FetchConsumerGroupAssignmentsRequest(
            group_id=self._group, consumer_id=call.consumer, epoch=call.epoch
        )
        reply = await self._once(address, FETCH_CONSUMER_GROUP_ASSIGNMENTS, request, limit)
        return Fetched(_partitions(reply.assignments))

    async def _locate(self, call: Locate, limit: float) -> Located:
        address = self._address(call.coordinator) if call.answers else None
        if address is None:
            address = await self._living_address(but=call.coordinator)
        answer = await self._fetch_metadata(address, limit)
        found = answer.groups.get(self._group)
        if found is None:
            raise CallFailure(Code.NOT_FOUND, f"no broker knows the group {self._group!r}")
        return Located(found.coordinator, found.epoch, _creation_times(answer))

    async def _fetch_metadata(self, address: str, limit: float = _CHANGE_LIMIT) -> Metadata:
        request = proto.FetchMetadataRequest(streams=self._streams, groups=[self._group])
        # A server with a dead peer waits for it until this deadline, and answers the next call from
        # what it has received by then.
        limit = min(_LOCATE_LIMIT * 2.0 ** min(self._unlocated, 10), max(limit, _LOCATE_LIMIT))
        self._unlocated += 1
        reply = await self._once(address, FETCH_METADATA, request, limit)
        self._unlocated = 0
        answer, _, _ = metadata_from_wire(reply)
        self._brokers.update(answer.brokers)
        return answer

    # Choice of the broker

    async def _any(
        self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, but: str | None = None
    ) -> ReplyT:
        return await self._once(await self._living_address(but), rpc, request, _CHANGE_LIMIT)

    async def _living_address(self, but: str | None) -> str:
        """Return the next address whose health check succeeds; the next one if none does."""
        addresses = self._candidates(but)
        first = next(self._turn)
        for number in range(len(addresses)):
            address = addresses[(first + number) % len(addresses)]
            if await self._network.router.is_alive(address):
                return address
        return addresses[first % len(addresses)]

    def _candidates(self, but: str | None) -> list[str]:
        addresses = sorted(self._network.router.addresses())
        avoided = None if but is None else self._address(but)
        return [address for address in addresses if address != avoided] or addresses

    def _address(self, broker: str) -> str | None:
        known = self._network.metadata.snapshot.brokers.get(broker) or self._brokers.get(broker)
        return None if known is None else self._network.router.address_of(known)

    async def _once(
        self, address: str, rpc: Rpc[RequestT, ReplyT], request: RequestT, limit: float
    ) -> ReplyT:
        return await self._network.router.call_once(address, rpc, request, limit)


def _refused(call: Call, failure: CallFailure) -> Refused:
    return Refused(
        group_refusal(failure),
        error_from(_NAMES[type(call)], failure),
        unknown=failure.may_have_acted or failure.unanswered_by_raft,
    )


def _creation_times(answer: Metadata) -> dict[str, int]:
    return {name: info.creation_timestamp for name, info in answer.streams.items()}


def _partitions(assignments: Iterable[proto.PartitionAssignment]) -> Assignment:
    return frozenset(
        StreamPartition(one.stream, partition)
        for one in assignments
        for partition in one.partitions
    )


_NAMES: Final[dict[type[Call], str]] = {
    Join: JOIN_CONSUMER_GROUP.name,
    Leave: LEAVE_CONSUMER_GROUP.name,
    Fetch: FETCH_CONSUMER_GROUP_ASSIGNMENTS.name,
    Locate: FETCH_METADATA.name,
    Report: REPORT_CONSUMER_GROUP_COORDINATOR.name,
}
