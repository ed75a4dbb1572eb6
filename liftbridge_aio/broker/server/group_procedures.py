"""The four procedures of consumer groups, as one broker answers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from liftbridge_aio.broker.cluster.group_liveness import GroupLiveness
from liftbridge_aio.broker.cluster.groups import ConsumerGroups
from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.wire import proto

from .clock import Clock

_NANOSECONDS: Final = 10**9


class GroupDecisions(Protocol):
    """Decides about groups for the whole cluster; each method raises BrokerError."""

    def join_group(
        self, group: str, consumer: str, streams: Sequence[str], now: int
    ) -> tuple[str, int]:
        """Add a member, and return the group's coordinator and epoch."""

    def leave_group(self, group: str, consumer: str, now: int) -> None:
        """Remove a member from a group."""

    def report_coordinator(
        self, group: str, consumer: str, coordinator: str, epoch: int, now: int
    ) -> None:
        """Count a report that a coordinator is unreachable."""


class GroupProcedures:
    """Answers calls. None of them waits, so cancellation has no effect."""

    def __init__(
        self,
        groups: ConsumerGroups,
        liveness: GroupLiveness,
        decisions: GroupDecisions,
        clock: Clock,
        *,
        consumer_timeout: float,
        coordinator_timeout: float,
    ) -> None:
        """Answer for a broker.

        Args:
            groups: the groups that the broker knows.
            liveness: the heartbeat deadlines of the members that it coordinates.
            decisions: decides for the whole cluster.
            clock: the broker's clock.
            consumer_timeout: seconds without a heartbeat after which members are expelled, as
                announced to them.
            coordinator_timeout: seconds after which members may report their coordinator, as
                announced to them.
        """
        self._groups = groups
        self._liveness = liveness
        self._decisions = decisions
        self._clock = clock
        self._consumer_timeout = consumer_timeout
        self._coordinator_timeout = coordinator_timeout

    async def join(
        self, request: proto.JoinConsumerGroupRequest, _call: object
    ) -> proto.JoinConsumerGroupResponse:
        """Add a member; the coordinator in the reply may learn of it a moment later."""
        _check_ids(request.group_id, request.consumer_id)
        if not request.streams:
            raise BrokerError(Code.INVALID_ARGUMENT, "No streams provided")
        coordinator, epoch = self._decisions.join_group(
            request.group_id, request.consumer_id, request.streams, self._clock.now_ns()
        )
        return proto.JoinConsumerGroupResponse(
            coordinator=coordinator,
            epoch=epoch,
            consumer_timeout=round(self._consumer_timeout * _NANOSECONDS),
            coordinator_timeout=round(self._coordinator_timeout * _NANOSECONDS),
        )

    async def leave(
        self, request: proto.LeaveConsumerGroupRequest, _call: object
    ) -> proto.LeaveConsumerGroupResponse:
        """Remove a member."""
        _check_ids(request.group_id, request.consumer_id)
        self._decisions.leave_group(request.group_id, request.consumer_id, self._clock.now_ns())
        return proto.LeaveConsumerGroupResponse()

    async def fetch_assignments(
        self, request: proto.FetchConsumerGroupAssignmentsRequest, _call: object
    ) -> proto.FetchConsumerGroupAssignmentsResponse:
        """Return a member's partitions; only a successful call is a heartbeat."""
        _check_ids(request.group_id, request.consumer_id)
        assignments = self._groups.fetch_assignments(
            request.group_id, request.consumer_id, request.epoch
        )
        self._liveness.record_heartbeat(request.group_id, request.consumer_id, self._clock.now_ns())
        return proto.FetchConsumerGroupAssignmentsResponse(
            epoch=request.epoch,
            assignments=[
                proto.PartitionAssignment(stream=stream, partitions=list(partitions))
                for stream, partitions in assignments.items()
            ],
        )

    async def report_coordinator(
        self, request: proto.ReportConsumerGroupCoordinatorRequest, _call: object
    ) -> proto.ReportConsumerGroupCoordinatorResponse:
        """Count a report of a member that cannot reach its coordinator."""
        _check_ids(request.group_id, request.consumer_id)
        if not request.coordinator:
            raise BrokerError(Code.INVALID_ARGUMENT, "No coordinator provided")
        self._decisions.report_coordinator(
            request.group_id,
            request.consumer_id,
            request.coordinator,
            request.epoch,
            self._clock.now_ns(),
        )
        return proto.ReportConsumerGroupCoordinatorResponse()


def _check_ids(group: str, consumer: str) -> None:
    if not group:
        raise BrokerError(Code.INVALID_ARGUMENT, "No groupId provided")
    if not consumer:
        raise BrokerError(Code.INVALID_ARGUMENT, "No consumerId provided")
