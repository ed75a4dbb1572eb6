"""The calls of one consumer group."""

from __future__ import annotations

from typing import Final

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire, eventually

NOT_A_MEMBER: Final = End(
    Status.FAILED_PRECONDITION, "consumer is not a member of the consumer group"
)
NO_GROUP: Final = End(Status.NOT_FOUND, "consumer group does not exist")
OTHER_EPOCH: Final = End(
    Status.FAILED_PRECONDITION, "client-provided group epoch differs from broker group epoch"
)
NO_STREAM: Final = End(Status.FAILED_PRECONDITION, "stream does not exist")
NO_CANDIDATES: Final = End(Status.FAILED_PRECONDITION, "No group coordinator candidates")

Assignments = dict[str, list[int]]


class Group:
    """A group on a server, which knows nothing of it before somebody joins."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.name = name
        self._wire = wire

    def _join(self, consumer: str, streams: tuple[str, ...]) -> proto.JoinConsumerGroupRequest:
        return proto.JoinConsumerGroupRequest(
            group_id=self.name, consumer_id=consumer, streams=list(streams)
        )

    async def join(self, consumer: str, *streams: str) -> proto.JoinConsumerGroupResponse:
        """Add a member."""
        try:
            return await self._wire.call(rpc.JOIN_CONSUMER_GROUP, self._join(consumer, streams))
        except GRPCError as error:  # the call was repeated, as the answer to the first was lost
            if "already a member" not in (error.message or ""):
                raise
            found = await self.metadata()
            return proto.JoinConsumerGroupResponse(found.coordinator, found.epoch)

    async def join_refusal(self, consumer: str, *streams: str) -> End:
        """Return the status of a join that must fail."""
        return await self._wire.refusal(rpc.JOIN_CONSUMER_GROUP, self._join(consumer, streams))

    def _leave(self, consumer: str) -> proto.LeaveConsumerGroupRequest:
        return proto.LeaveConsumerGroupRequest(group_id=self.name, consumer_id=consumer)

    async def leave(self, *consumers: str) -> None:
        """Take members out."""
        for consumer in consumers:
            await self._wire.call(rpc.LEAVE_CONSUMER_GROUP, self._leave(consumer))

    async def leave_refusal(self, consumer: str) -> End:
        """Return the status of a leave that must fail."""
        return await self._wire.refusal(rpc.LEAVE_CONSUMER_GROUP, self._leave(consumer))

    def _fetch(self, consumer: str, epoch: int) -> proto.FetchConsumerGroupAssignmentsRequest:
        return proto.FetchConsumerGroupAssignmentsRequest(
            group_id=self.name, consumer_id=consumer, epoch=epoch
        )

    async def fetch(self, consumer: str, epoch: int) -> Assignments:
        """Return the assignments of a member; asking for them is its heartbeat."""
        reply = await self._wire.call(
            rpc.FETCH_CONSUMER_GROUP_ASSIGNMENTS, self._fetch(consumer, epoch)
        )
        assert reply.epoch == epoch
        assignments = {one.stream: one.partitions for one in reply.assignments}
        assert len(assignments) == len(reply.assignments)
        return assignments

    async def fetch_refusal(self, consumer: str, epoch: int) -> End:
        """Return the status of a fetch of assignments that must fail."""
        return await self._wire.refusal(
            rpc.FETCH_CONSUMER_GROUP_ASSIGNMENTS, self._fetch(consumer, epoch)
        )

    async def shares(self, *consumers: str) -> dict[str, Assignments]:
        """Return the current assignments of these members."""
        epoch = await self.epoch()
        return {consumer: await self.fetch(consumer, epoch) for consumer in consumers}

    def _report(
        self, consumer: str, coordinator: str, epoch: int
    ) -> proto.ReportConsumerGroupCoordinatorRequest:
        return proto.ReportConsumerGroupCoordinatorRequest(
            group_id=self.name, consumer_id=consumer, coordinator=coordinator, epoch=epoch
        )

    async def report(self, consumer: str, coordinator: str, epoch: int) -> None:
        """Say that the coordinator cannot be reached."""
        request = self._report(consumer, coordinator, epoch)
        await self._wire.call(rpc.REPORT_CONSUMER_GROUP_COORDINATOR, request)

    async def report_refusal(self, consumer: str, coordinator: str, epoch: int) -> End:
        """Return the status of a report that must fail."""
        request = self._report(consumer, coordinator, epoch)
        return await self._wire.refusal(rpc.REPORT_CONSUMER_GROUP_COORDINATOR, request)

    async def metadata(self) -> proto.ConsumerGroupMetadata:
        """Return the server's metadata of the group."""
        [found] = await group_metadata(self._wire, self.name)
        return found

    async def exists(self) -> bool:
        """Return True if the server knows the group."""
        return (await self.metadata()).error is not proto.ConsumerGroupMetadataError.UNKNOWN_GROUP

    async def epoch(self) -> int:
        """Its epoch now."""
        return (await self.metadata()).epoch

    async def epoch_after(self, earlier: int) -> int:
        """Its next epoch, once there is one."""

        async def changed() -> bool:
            return await self.epoch() > earlier

        await eventually(changed)
        return await self.epoch()


async def group_metadata(wire: Wire, *names: str) -> list[proto.ConsumerGroupMetadata]:
    """Return the server's metadata of groups."""
    request = proto.FetchMetadataRequest(groups=list(names))
    return (await wire.call(rpc.FETCH_METADATA, request, timeout=None)).group_metadata
