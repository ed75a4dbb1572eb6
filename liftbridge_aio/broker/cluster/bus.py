"""The bus between nodes, in place of NATS: delivers messages on subjects to subscribers.

Pure: random choices come in as arguments, nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable

from liftbridge_aio.broker.errors import PublishCode, PublishRefused

from .incoming import Incoming
from .partition import Partition
from .subjects import SubjectTable, is_subscribable, is_valid_subject


class Bus:
    """Carries messages from any node to the partition leaders subscribed to their subjects."""

    def __init__(self, max_message_bytes: int, max_payload_bytes: int) -> None:
        """Create a bus without subscribers.

        Args:
            max_message_bytes: largest envelope that a partition stores
                (`clustering.replication.max.bytes` of a real server).
            max_payload_bytes: largest envelope that can be published at all (`max_payload` of
                NATS).
        """
        self._max_message_bytes = max_message_bytes
        self._max_payload_bytes = max_payload_bytes
        self._subjects: SubjectTable[Partition] = SubjectTable()

    def subscribe(self, partition: Partition, queue_group: str) -> None:
        """Subscribe a partition to its subject; members of a queue group share the messages."""
        self._subjects.add(partition.subject, queue_group, partition)

    def unsubscribe(self, partition: Partition) -> None:
        """Undo `subscribe`; nothing happens if the partition is not subscribed."""
        self._subjects.remove(partition.subject, partition)

    def publish(
        self, subject: str, incoming: Incoming, now: int, choose: Callable[[int], int]
    ) -> None:
        """Publish a message to every partition that is subscribed to `subject`.

        Each of them stores and acks the message for its own stream.

        Args:
            subject: the subject.
            incoming: the message; its `reply` receives the acks.
            now: Unix nanoseconds.
            choose: picks a member of a queue group: takes their number, returns an index.

        Raises:
            PublishRefused: NATS would refuse the message or its inbox, or no server could store
                its headers.
        """
        inbox = incoming.ack_inbox
        if incoming.inbox_is_awaited and not (is_valid_subject(inbox) and is_subscribable(inbox)):
            raise PublishRefused(
                PublishCode.UNKNOWN, "failed to subscribe to ack inbox: nats: invalid subject"
            )
        if not subject:
            raise PublishRefused(
                PublishCode.INTERNAL, "failed to publish to NATS: nats: invalid subject"
            )
        if incoming.measure(subject) > self._max_payload_bytes:
            raise PublishRefused(
                PublishCode.INTERNAL, "failed to publish to NATS: nats: maximum payload exceeded"
            )
        problem = incoming.header_problem
        if problem is not None:
            raise PublishRefused(PublishCode.BAD_REQUEST, problem)
        for partition in self._subjects.receivers(subject, choose):
            partition.receive(subject, incoming, now, self._max_message_bytes)
