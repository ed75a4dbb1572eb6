"""The embedded broker: a Liftbridge server inside this process."""

from __future__ import annotations

import math
from typing import Final

from .bus import Bus
from .clock import Clock
from .controller import Controller
from .group_controller import GroupController
from .member import Member
from .node import Node
from .own_streams import create_own_streams
from .profile import ServerProfile
from .server import DEFAULT_GROUP_TIMEOUT, Backing, BrokerServer, BrokerSettings
from .storage import MemoryStorage

_MIB: Final = 2**20


class EmbeddedBroker(BrokerServer):
    """A single-node Liftbridge server, to develop and test on.

    It speaks gRPC on a real port, and answers as Liftbridge 1.9.0 does, quirks included. Use it as
    `async with EmbeddedBroker() as broker: Client(broker.address)`. Its data lives as long as the
    object: after `stop` it may be started again, on the same port, with everything still there.

    Start and stop it in one event loop at a time; other calls may come from any task of it.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        server_id: str = "embedded",
        namespace: str = "liftbridge-default",
        cursors_partitions: int = 1,
        max_message_bytes: int = _MIB,
        max_payload_bytes: int = _MIB,
        consumer_timeout: float = DEFAULT_GROUP_TIMEOUT,
        coordinator_timeout: float = DEFAULT_GROUP_TIMEOUT,
        activity: bool = False,
        profile: ServerProfile = ServerProfile.V1_9,
    ) -> None:
        """Make a broker that does not listen yet.

        Args:
            host: address to listen on, and to advertise.
            port: port to listen on; 0: a free one, chosen by the first start.
            server_id: id of the broker in metadata.
            namespace: first part of the NATS subjects for acks, cursors and activity.
            cursors_partitions: partitions of `__cursors`; 0: the broker keeps no cursors.
            max_message_bytes: largest message that is stored, with headers and envelope
                (`clustering.replication.max.bytes` of a real server).
            max_payload_bytes: largest message that can be published at all (`max_payload` of
                NATS). With equal limits, as on a real server by default, this one speaks first.
            consumer_timeout: seconds that a member of a consumer group may be silent.
            coordinator_timeout: seconds for which a report of a dead coordinator counts.
            activity: whether there is an activity stream.
            profile: the version that it behaves like.

        Raises:
            ValueError: a number makes no sense.
        """
        if cursors_partitions < 0 or max_message_bytes < 1 or max_payload_bytes < 1:
            text = "cursors_partitions must not be negative, and limits must be positive"
            raise ValueError(text)
        if not all(
            math.isfinite(timeout) and timeout > 0
            for timeout in (consumer_timeout, coordinator_timeout)
        ):
            text = "consumer_timeout and coordinator_timeout must be positive seconds"
            raise ValueError(text)
        settings = BrokerSettings(
            profile=profile,
            consumer_timeout=consumer_timeout,
            coordinator_timeout=coordinator_timeout,
            activity=activity,
        )
        controller = Controller()
        groups = GroupController(controller, coordinator_timeout)
        bus = Bus(max_message_bytes, max_payload_bytes)
        node = Node(server_id, bus, MemoryStorage(), consumer_timeout)

        def open_backing(clock: Clock) -> Backing:
            member = Member(node, controller, clock, namespace)

            def create() -> None:
                create_own_streams(
                    controller, namespace, cursors_partitions, activity, clock.now_ns()
                )

            return Backing(member, groups, create, lambda: None)

        super().__init__(host, port, server_id, open_backing, settings)
