"""The context of a broker: its node, the controller, its clock and inboxes."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from dataclasses import replace

from liftbridge_aio.broker.cluster.controller import Controller
from liftbridge_aio.broker.cluster.incoming import Incoming
from liftbridge_aio.broker.cluster.node import Node
from liftbridge_aio.broker.cluster.subjects import partition_subject
from liftbridge_aio.model import Ack, BrokerInfo

from .clock import Clock


class BrokerContext:
    """A node and its controller, joined with what pure code lacks: time and randomness."""

    def __init__(self, node: Node, controller: Controller, clock: Clock, namespace: str) -> None:
        """Serve a node of a cluster.

        Args:
            node: the broker's state.
            controller: decides for the cluster.
            clock: the broker's clock.
            namespace: first token of the subjects of ack inboxes.
        """
        self.node = node
        self.controller = controller
        self.clock = clock
        self.namespace = namespace
        self.hidden_brokers: frozenset[str] = frozenset()
        """Ids of brokers that this one leaves out of metadata."""

    def inbox(self) -> str:
        """Return a new subject for acks."""
        return f"{self.namespace}.ack.{secrets.token_hex(11)}"

    def brokers(self) -> Sequence[BrokerInfo]:
        """Return the running brokers, each with the load that it counts itself."""
        return [
            replace(
                node.info,
                partition_count=node.loads.partition_count(server_id),
                leader_count=node.loads.leader_count(server_id),
            )
            for server_id, node in self.controller.nodes.items()
            if (node.is_running or node is self.node) and server_id not in self.hidden_brokers
        ]

    def publish(self, stream: str, number: int, incoming: Incoming) -> None:
        """Publish to a partition: resume it if it is paused, then publish to its subject.

        Raises:
            PublishRefused: the message was not stored.
            BrokerError: the partition cannot be resumed.
        """
        self.node.check_publish(stream, number, incoming.ack_policy)
        self.resume(stream, number)
        found = self.node.stream(stream)
        if found is not None:
            self.publish_to_subject(partition_subject(found.subject, number), incoming)

    def publish_to_subject(self, subject: str, incoming: Incoming) -> None:
        """Publish to a subject.

        Raises:
            PublishRefused: the message was not stored.
        """
        self.node.publish_to_subject(subject, incoming, self.clock.now_ns(), random.randrange)

    def resume(self, stream: str, number: int) -> None:
        """Resume the partitions that a publish or subscribe to an existing partition resumes.

        Raises:
            BrokerError: it cannot be resumed now.
        """
        self.controller.resume(stream, self.node.to_resume(stream, number), self.clock.now_ns())


class FirstAck:
    """The first ack of a message."""

    def __init__(self) -> None:
        """Create an empty holder of an ack; it belongs to the running event loop."""
        self._future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()

    def take(self, ack: Ack) -> None:
        """Take an ack; only the first one counts."""
        if not self._future.done():
            self._future.set_result(ack)

    async def wait(self) -> Ack:
        """Wait for the ack, without a limit. May be cancelled at any time."""
        return await self._future
