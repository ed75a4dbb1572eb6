"""Decisions about consumer groups, taken by the node that leads the metadata. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    JoinConsumerGroup,
    LeaveConsumerGroup,
)

from .consumer_group import FIRST_EPOCH, ConsumerGroup
from .controller import Controller
from .failover import FailoverReports, group_quorum
from .node import Node

_NANOSECONDS: Final = 10**9


class GroupController:
    """Checks requests about groups, and proposes the operations."""

    def __init__(self, controller: Controller, coordinator_timeout: float) -> None:
        """Decide for a cluster.

        Args:
            controller: orders the operations.
            coordinator_timeout: seconds for which a report of a dead coordinator counts.
        """
        self._controller = controller
        self._reports: FailoverReports[ConsumerGroup] = FailoverReports(
            round(coordinator_timeout * _NANOSECONDS)
        )
        self._counted_by: Node | None = None

    def join_group(
        self, group: str, consumer: str, streams: Sequence[str], now: int
    ) -> tuple[str, int]:
        """Add a member to a group, or create the group with it.

        Returns:
            The group's coordinator and epoch.

        Raises:
            BrokerError: the consumer is a member already, a stream does not exist, or there is no
                metadata leader.
        """
        wanted = tuple(streams)
        groups = self._controller.leader().groups
        groups.check_join(group, consumer, wanted)
        found = groups.group(group)
        if found is not None:
            joined = JoinConsumerGroup(group=group, consumer=consumer, streams=wanted)
            epoch = self._controller.propose(joined, now)
            return found.coordinator, epoch
        coordinator = groups.choose_coordinator(self._controller.nodes)
        created = CreateConsumerGroup(
            group=group, coordinator=coordinator, consumer=consumer, streams=wanted
        )
        self._controller.propose(created, now)
        return coordinator, FIRST_EPOCH

    def leave_group(self, group: str, consumer: str, now: int, *, expired: bool = False) -> None:
        """Remove a member from a group; the last one deletes the group.

        Raises:
            BrokerError: there is no such group or member, or no metadata leader.
        """
        self._controller.leader().groups.check_leave(group, consumer)
        operation = LeaveConsumerGroup(group=group, consumer=consumer, expired=expired)
        self._controller.propose(operation, now)

    def report_coordinator(
        self, group: str, consumer: str, coordinator: str, epoch: int, now: int
    ) -> None:
        """Count a report that a coordinator is unreachable; choose another at the quorum.

        Raises:
            BrokerError: the group has no such coordinator, epoch or member, there is no other
                broker, or no metadata leader.
        """
        leader = self._controller.leader()
        if leader is not self._counted_by:  # each leader counts for itself
            self._reports.clear()
            self._counted_by = leader
        groups = leader.groups
        found = groups.check_report(group, consumer, coordinator, epoch)
        if not self._reports.add(found, consumer, group_quorum(len(found.members)), now):
            return
        others = [server_id for server_id in self._controller.nodes if server_id != coordinator]
        if not others:
            raise BrokerError(Code.FAILED_PRECONDITION, "No group coordinator candidates")
        chosen = groups.choose_coordinator(others)
        self._controller.propose(ChangeGroupCoordinator(group=group, coordinator=chosen), now)
