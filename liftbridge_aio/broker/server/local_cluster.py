"""The nodes of one cluster in this process, alone or several, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from liftbridge_aio.broker.cluster.activity import activity_stream
from liftbridge_aio.broker.cluster.bus import Bus
from liftbridge_aio.broker.cluster.controller import Controller
from liftbridge_aio.broker.cluster.cursors import cursors_stream
from liftbridge_aio.broker.cluster.group_controller import GroupController
from liftbridge_aio.broker.cluster.node import Node, Storage
from liftbridge_aio.broker.errors import BrokerError

from .broker_context import BrokerContext
from .clock import Clock
from .settings import BrokerSettings


class LocalCluster:
    """Nodes, the bus between them, and the controllers that decide for them."""

    def __init__(self, settings: BrokerSettings, controller: Controller) -> None:
        """Create a local cluster without nodes."""
        self.controller = controller
        self.groups = GroupController(controller, settings.coordinator_timeout)
        self._settings = settings
        self._bus = Bus(settings.max_message_bytes, settings.max_payload_bytes)

    def add_node(self, server_id: str, storage: Storage) -> Node:
        """Create a node, which counts as dead until it is started."""
        node = Node(
            server_id, self._bus, storage, self._settings.consumer_timeout, self._settings.flaws
        )
        self.controller.add(node)
        return node

    def context(self, node: Node, clock: Clock) -> BrokerContext:
        """Return what the broker of a node needs to serve it."""
        return BrokerContext(node, self.controller, clock, self._settings.namespace)

    def create_internal_streams(self, now: int) -> None:
        """Create `__cursors` and `__activity` where they are missing, if there is a leader.

        Raises:
            OSError: they cannot be stored.
        """
        settings = self._settings
        if not self.controller.has_leader():
            return
        requests = []
        if settings.cursors_partitions:
            subject = f"{settings.namespace}.cursors"
            requests.append(cursors_stream(subject, settings.cursors_partitions))
        if settings.activity:
            requests.append(activity_stream(f"{settings.namespace}.activity"))
        for request in requests:
            if self.controller.leader().stream(request.name) is None:
                try:
                    self.controller.create_stream(request, now)
                except BrokerError as error:  # nothing but the disk can refuse them here
                    raise OSError(error.text) from error


@dataclass(frozen=True, slots=True)
class Backing:
    """The node and cluster that a broker serves, from one start to the next stop."""

    context: BrokerContext
    cluster: LocalCluster
    close: Callable[[], None] = lambda: None
    """Called when the broker has left its cluster."""
