"""One broker's place in its cluster: how its service learns of things and gets things done."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from dataclasses import replace

from liftbridge_aio.model import Ack, BrokerInfo

from .clock import Clock
from .controller import Controller
from .incoming import Incoming
from .node import Node
from .subjects import partition_subject


class Member:
    """A node, those who decide for it, and what only the outside knows: time, chance and names."""

    def __init__(self, node: Node, controller: Controller, clock: Clock, namespace: str) -> None:
        """Put a node into a cluster.

        Args:
            node: the broker's own state.
            controller: decides what happens in the cluster.
            clock: the broker's clock.
            namespace: first part of the subjects on which acks are asked for.
        """
        self.node = node
        self.controller = controller
        self.clock = clock
        self.namespace = namespace
        self.hidden_brokers: frozenset[str] = frozenset()
        """Brokers that are missing from what this one tells of the cluster (W29)."""

    def inbox(self) -> str:
        """Make a fresh subject for acks."""
        return f"{self.namespace}.ack.{secrets.token_hex(11)}"

    def brokers(self) -> Sequence[BrokerInfo]:
        """Describe the brokers that run, each with the loads that it counts itself."""
        return [
            replace(
                node.info,
                partition_count=node.loads.kept(server_id),
                leader_count=node.loads.led(server_id),
            )
            for server_id, node in self.controller.nodes.items()
            if node.is_running and server_id not in self.hidden_brokers
        ]

    def publish(self, stream: str, number: int, incoming: Incoming) -> None:
        """Publish to a partition: wake it where it is paused, then send to its subject.

        Raises:
            PublishRefused: the message is stored nowhere.
            BrokerError: the partition cannot be woken.
        """
        self.node.check_publish(stream, number, incoming.ack_policy)
        self.resume(stream, number)
        found = self.node.stream(stream)
        if found is not None:
            self.deliver(partition_subject(found.subject, number), incoming)

    def deliver(self, subject: str, incoming: Incoming) -> None:
        """Publish to a subject.

        Raises:
            PublishRefused: the message is stored nowhere.
        """
        self.node.deliver(subject, incoming, self.clock.now_ns(), random.randrange)

    def resume(self, stream: str, number: int) -> None:
        """Wake what a publish or subscribe to an existing partition wakes.

        Raises:
            BrokerError: it cannot be woken now.
        """
        self.controller.resume(stream, self.node.asleep(stream, number), self.clock.now_ns())


class FirstAck:
    """The first of the acks to one message."""

    def __init__(self) -> None:
        """Wait in the running event loop."""
        self._future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()

    def take(self, ack: Ack) -> None:
        """Take an ack; only the first one counts."""
        if not self._future.done():
            self._future.set_result(ack)

    async def wait(self) -> Ack:
        """Wait for the ack, for ever if need be. May be cancelled at any time."""
        return await self._future
