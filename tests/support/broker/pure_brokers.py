"""Brokers without servers: their pure parts, driven step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from liftbridge_aio.broker.cluster.bus import Bus
from liftbridge_aio.broker.cluster.controller import Controller
from liftbridge_aio.broker.cluster.incoming import Incoming
from liftbridge_aio.broker.cluster.node import Node
from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.cluster.requests import StreamRequest
from liftbridge_aio.broker.server.broker_context import BrokerContext
from liftbridge_aio.broker.server.clock import Clock
from liftbridge_aio.broker.storage.core.operations import Operation
from liftbridge_aio.broker.storage.core.stream_config import StreamConfig
from liftbridge_aio.broker.storage.storage import MemoryStorage
from liftbridge_aio.model import Ack, AckPolicy

LIMIT = 1_000
"""Bytes of the largest message that a partition stores."""

SECOND = 10**9
TIMEOUT = 15 * SECOND
"""Nanoseconds for which a report of a dead leader counts."""


class HandClock(Clock):
    """A clock that changes only when it is set."""

    __slots__ = ("now",)

    def __init__(self, now: int) -> None:
        super().__init__()
        self.now = now

    def now_ns(self) -> int:
        return self.now


class PureCluster:
    """Brokers of one controller, in which nothing happens on its own."""

    def __init__(
        self,
        *server_ids: str,
        max_message_bytes: int = LIMIT,
        max_payload_bytes: int = 2 * LIMIT,
        store: Callable[[int, Operation], None] | None = None,
    ) -> None:
        """Start brokers with these ids."""
        self.clock = HandClock(1)
        self.controller = Controller(store, leader_timeout=TIMEOUT / SECOND)
        bus = Bus(max_message_bytes, max_payload_bytes)
        self.contexts: dict[str, BrokerContext] = {}
        for server_id in server_ids:
            node = Node(server_id, bus, MemoryStorage(), consumer_timeout=15.0)
            self.controller.add(node)
            self.contexts[server_id] = BrokerContext(node, self.controller, self.clock, "ns")
        for context in self.contexts.values():
            self.controller.start(context.node, self.clock.now)

    def node(self, server_id: str) -> Node:
        return self.controller.nodes[server_id]

    def create(self, *requests: StreamRequest) -> None:
        for request in requests:
            self.controller.create_stream(request, self.clock.now)

    def partition(self, server_id: str, stream: str, number: int = 0) -> Partition:
        """Return a partition as one broker sees it."""
        found = self.node(server_id).partition(stream, number)
        assert found is not None
        return found

    def decided(self, stream: str, number: int = 0) -> Partition:
        """Return a partition as the metadata leader sees it."""
        return self.partition(self.controller.leader().server_id, stream, number)

    def publish(
        self, server_id: str, stream: str, number: int = 0, message: Incoming | None = None
    ) -> list[Ack]:
        """Publish through a broker; the list grows with every ack."""
        acks: list[Ack] = []
        sent = incoming() if message is None else message
        sent.reply = acks.append
        self.contexts[server_id].publish(stream, number, sent)
        return acks

    def fetch(self, server_id: str, stream: str, number: int = 0) -> bool:
        """Fetch once, for a follower whose leader is running."""
        follower = self.partition(server_id, stream, number)
        leading_node = self.controller.nodes.get(follower.leader)
        leader = leading_node.partition(stream, number) if leading_node is not None else None
        if leader is None or not self.node(server_id).is_running:
            return False
        return follower.fetch_from(leader, self.clock.now)

    def replicate(self, stream: str, number: int = 0) -> None:
        """Fetch for all followers until nothing changes."""
        for _ in range(100):
            more = [self.fetch(one, stream, number) for one in self.contexts]
            if not any(more):
                return
        raise AssertionError("replication does not come to an end")

    def stop(self, *server_ids: str) -> None:
        for server_id in server_ids:
            self.controller.stop(self.node(server_id))

    def start(self, *server_ids: str) -> None:
        for server_id in server_ids:
            self.controller.start(self.node(server_id), self.clock.now)

    def report(self, server_id: str, stream: str, number: int = 0) -> None:
        """Report the leader of a follower as silent."""
        self.controller.report_leader(
            self.partition(server_id, stream, number), server_id, self.clock.now
        )

    def shrink(self, leader: str, replica: str, stream: str) -> None:
        """Remove a replica from the in-sync set, for its leader."""
        self.controller.shrink_isr(self.partition(leader, stream), replica, self.clock.now)

    def expand(self, leader: str, replica: str, stream: str) -> None:
        """Return a replica to the in-sync set, for its leader."""
        self.controller.expand_isr(self.partition(leader, stream), replica, self.clock.now)

    def values(self, server_id: str, stream: str, number: int = 0) -> list[bytes]:
        """Return the values that a broker stores, committed or not."""
        log = self.partition(server_id, stream, number).log
        return [message.value for message in log.read_stored(0, log.next_offset)]

    def watermarks(self, stream: str, number: int = 0) -> list[int]:
        """Return the high watermark of each broker's log."""
        return [
            self.partition(server_id, stream, number).log.high_watermark
            for server_id in self.contexts
        ]


class SingleBroker(PureCluster):
    """A cluster of one broker, with a clock."""

    SERVER_ID = "me"

    def __init__(
        self,
        *streams: StreamRequest,
        max_message_bytes: int = LIMIT,
        max_payload_bytes: int = 2 * LIMIT,
        store: Callable[[int, Operation], None] | None = None,
    ) -> None:
        """Start a broker with streams, at the time 1."""
        super().__init__(
            self.SERVER_ID,
            max_message_bytes=max_message_bytes,
            max_payload_bytes=max_payload_bytes,
            store=store,
        )
        self.create(*streams)

    @property
    def me(self) -> Node:
        """The broker."""
        return self.node(self.SERVER_ID)

    def at(self, now: int) -> SingleBroker:
        """Set the clock."""
        self.clock.now = now
        return self

    def send(self, stream: str, number: int = 0, message: Incoming | None = None) -> list[Ack]:
        """Publish to a partition, and return the acks so far."""
        return self.publish(self.SERVER_ID, stream, number, message)

    def publish_to_subject(
        self, subject: str, message: Incoming | None = None, pick: int = 0
    ) -> list[Ack]:
        """Publish to a subject, and return the acks so far; `pick` decides in queue groups."""
        acks: list[Ack] = []
        sent = incoming() if message is None else message
        sent.reply = acks.append
        self.me.publish_to_subject(subject, sent, self.clock.now, lambda _: pick)
        return acks

    def pause(self, stream: str, numbers: Sequence[int] = (), *, resume_all: bool = False) -> None:
        self.controller.pause(stream, numbers, self.clock.now, resume_all=resume_all)

    def set_readonly(self, stream: str, numbers: Sequence[int] = (), *, readonly: bool) -> None:
        self.controller.set_readonly(stream, numbers, self.clock.now, readonly=readonly)

    def own(self, stream: str, number: int = 0) -> Partition:
        return self.partition(self.SERVER_ID, stream, number)

    def paused(self, stream: str) -> set[int]:
        """Return the numbers of the paused partitions."""
        found = self.me.stream(stream)
        assert found is not None
        return {number for number, one in found.partitions.items() if one.is_paused}


def stream(
    name: str, subject: str | None = None, partitions: int = 1, replicas: int = 1, **config: int
) -> StreamRequest:
    """Return a request for a stream, by default with its name as subject."""
    return StreamRequest(
        name=name,
        subject=subject or name,
        partitions=partitions,
        replication_factor=replicas,
        config=StreamConfig(**config),  # type: ignore[arg-type]
    )


def incoming(
    value: bytes = b"", policy: int = AckPolicy.LEADER, expected: int = -1, key: bytes = b""
) -> Incoming:
    """Return a message to publish."""
    return Incoming(key, value, {}, "inbox", "id", policy, _ignore, expected)


def _ignore(_ack: Ack) -> None:
    pass
