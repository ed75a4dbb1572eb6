"""Brokers without servers around: their pure parts, driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from liftbridge_aio.broker.bus import Bus
from liftbridge_aio.broker.clock import Clock
from liftbridge_aio.broker.controller import Controller
from liftbridge_aio.broker.incoming import Incoming
from liftbridge_aio.broker.member import Member
from liftbridge_aio.broker.node import Node
from liftbridge_aio.broker.operations import Operation
from liftbridge_aio.broker.partition import Partition
from liftbridge_aio.broker.replication import fetch
from liftbridge_aio.broker.requests import StreamRequest
from liftbridge_aio.broker.storage import MemoryStorage
from liftbridge_aio.broker.stream_config import StreamConfig
from liftbridge_aio.model import Ack, AckPolicy

LIMIT = 1_000
"""Bytes of the largest message that a partition takes."""

SECOND = 10**9
TIMEOUT = 15 * SECOND
"""Nanoseconds for which a report of a dead leader counts."""


class HandClock(Clock):
    """A clock that stands still until it is set."""

    __slots__ = ("now",)

    def __init__(self, now: int) -> None:
        super().__init__()
        self.now = now

    def now_ns(self) -> int:
        return self.now


class PureCluster:
    """Brokers in one controller. Nothing happens but what a test calls for."""

    def __init__(
        self,
        *server_ids: str,
        max_message_bytes: int = LIMIT,
        max_payload_bytes: int = 2 * LIMIT,
        keep: Callable[[int, Operation], None] | None = None,
    ) -> None:
        """Start brokers with these ids."""
        self.clock = HandClock(1)
        self.controller = Controller(keep, leader_timeout=TIMEOUT / SECOND)
        bus = Bus(max_message_bytes, max_payload_bytes)
        self.members: dict[str, Member] = {}
        for server_id in server_ids:
            node = Node(server_id, bus, MemoryStorage(), consumer_timeout=15.0)
            self.controller.add(node)
            self.members[server_id] = Member(node, self.controller, self.clock, "ns")
        for member in self.members.values():
            self.controller.start(member.node, self.clock.now)

    def node(self, server_id: str) -> Node:
        return self.controller.nodes[server_id]

    def create(self, *requests: StreamRequest) -> None:
        for request in requests:
            self.controller.create_stream(request, self.clock.now)

    def partition(self, server_id: str, stream: str, number: int = 0) -> Partition:
        """A partition as one broker sees it."""
        found = self.node(server_id).partition(stream, number)
        assert found is not None
        return found

    def decided(self, stream: str, number: int = 0) -> Partition:
        """A partition as the broker sees it that leads the metadata."""
        return self.partition(self.controller.leader().server_id, stream, number)

    def publish(
        self, server_id: str, stream: str, number: int = 0, message: Incoming | None = None
    ) -> list[Ack]:
        """Publish through a broker; the list grows with every ack."""
        acks: list[Ack] = []
        sent = incoming() if message is None else message
        sent.reply = acks.append
        self.members[server_id].publish(stream, number, sent)
        return acks

    def fetch(self, server_id: str, stream: str, number: int = 0) -> bool:
        """Let one follower fetch once, if its leader runs."""
        follower = self.partition(server_id, stream, number)
        leading_node = self.controller.nodes.get(follower.leader)
        leader = leading_node.partition(stream, number) if leading_node is not None else None
        if leader is None or not self.node(server_id).is_running:
            return False
        return fetch(leader, follower, server_id, self.clock.now)

    def replicate(self, stream: str, number: int = 0) -> None:
        """Let all followers fetch until nothing new comes."""
        for _ in range(100):
            more = [self.fetch(one, stream, number) for one in self.members]
            if not any(more):
                return
        text = "replication does not come to an end"
        raise AssertionError(text)

    def stop(self, *server_ids: str) -> None:
        for server_id in server_ids:
            self.controller.stop(self.node(server_id))

    def start(self, *server_ids: str) -> None:
        for server_id in server_ids:
            self.controller.start(self.node(server_id), self.clock.now)

    def report(self, server_id: str, stream: str, number: int = 0) -> None:
        """Let a follower say that its leader is silent."""
        self.controller.report_leader(
            self.partition(server_id, stream, number), server_id, self.clock.now
        )

    def shrink(self, leader: str, replica: str, stream: str) -> None:
        """Let a leader say that a replica is out of sync."""
        self.controller.shrink_isr(self.partition(leader, stream), replica, self.clock.now)

    def expand(self, leader: str, replica: str, stream: str) -> None:
        """Let a leader say that a replica is in sync again."""
        self.controller.expand_isr(self.partition(leader, stream), replica, self.clock.now)

    def values(self, server_id: str, stream: str, number: int = 0) -> list[bytes]:
        """What a broker stores, committed or not."""
        log = self.partition(server_id, stream, number).log
        return [message.value for message in log.read_stored(0, log.next_offset)]

    def watermarks(self, stream: str, number: int = 0) -> list[int]:
        """The high watermark of each broker's own log."""
        return [
            self.partition(server_id, stream, number).log.high_watermark
            for server_id in self.members
        ]


class LoneBroker(PureCluster):
    """A cluster of one, and the time at which each thing happens."""

    SERVER_ID = "me"

    def __init__(
        self,
        *streams: StreamRequest,
        max_message_bytes: int = LIMIT,
        max_payload_bytes: int = 2 * LIMIT,
        keep: Callable[[int, Operation], None] | None = None,
    ) -> None:
        """Start a broker with streams, at the time 1."""
        super().__init__(
            self.SERVER_ID,
            max_message_bytes=max_message_bytes,
            max_payload_bytes=max_payload_bytes,
            keep=keep,
        )
        self.create(*streams)

    @property
    def me(self) -> Node:
        """The broker."""
        return self.node(self.SERVER_ID)

    def at(self, now: int) -> LoneBroker:
        """Set the clock."""
        self.clock.now = now
        return self

    def send(self, stream: str, number: int = 0, message: Incoming | None = None) -> list[Ack]:
        """Publish to a partition, and return the acks so far."""
        return self.publish(self.SERVER_ID, stream, number, message)

    def deliver(self, subject: str, message: Incoming | None = None, pick: int = 0) -> list[Ack]:
        """Publish to a subject, and return the acks so far; `pick` decides in queue groups."""
        acks: list[Ack] = []
        sent = incoming() if message is None else message
        sent.reply = acks.append
        self.me.deliver(subject, sent, self.clock.now, lambda _: pick)
        return acks

    def pause(self, stream: str, numbers: Sequence[int] = (), *, resume_all: bool = False) -> None:
        self.controller.pause(stream, numbers, self.clock.now, resume_all=resume_all)

    def set_readonly(self, stream: str, numbers: Sequence[int] = (), *, readonly: bool) -> None:
        self.controller.set_readonly(stream, numbers, self.clock.now, readonly=readonly)

    def own(self, stream: str, number: int = 0) -> Partition:
        return self.partition(self.SERVER_ID, stream, number)

    def paused(self, stream: str) -> set[int]:
        """Numbers of the partitions that rest."""
        found = self.me.stream(stream)
        assert found is not None
        return {number for number, one in found.partitions.items() if one.is_paused}


def stream(
    name: str, subject: str | None = None, partitions: int = 1, replicas: int = 1, **config: int
) -> StreamRequest:
    """A stream that listens on its own name, if on nothing else."""
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
    """A message on its way."""
    return Incoming(key, value, {}, "inbox", "id", policy, _ignore, expected)


def _ignore(_ack: Ack) -> None:
    pass
