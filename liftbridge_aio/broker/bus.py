"""What NATS is to a cluster: messages on subjects, to whoever listens.

Pure: choices come in as arguments, nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable

from .errors import PublishCode, PublishRefused
from .incoming import Incoming
from .partition import Partition
from .subjects import SubjectTable, can_be_listened_on, is_valid_subject


class Bus:
    """Carries messages from any broker to the leaders that listen on their subjects."""

    def __init__(self, max_message_bytes: int, max_payload_bytes: int) -> None:
        """Begin without listeners.

        Args:
            max_message_bytes: largest envelope that a partition takes
                (`clustering.replication.max.bytes` of a real server).
            max_payload_bytes: largest envelope that can be published at all (`max_payload` of
                NATS).
        """
        self._max_message_bytes = max_message_bytes
        self._max_payload_bytes = max_payload_bytes
        self._subjects: SubjectTable[Partition] = SubjectTable()

    def listen(self, partition: Partition, queue_group: str) -> None:
        """Let a partition have what comes on its subject; members of a group share it."""
        self._subjects.add(partition.subject, queue_group, partition)

    def ignore(self, partition: Partition) -> None:
        """Undo `listen`; nothing happens where there is nothing to undo."""
        self._subjects.remove(partition.subject, partition)

    def publish(
        self, subject: str, incoming: Incoming, now: int, choose: Callable[[int], int]
    ) -> None:
        """Give a message to every partition that listens on `subject` (W12).

        Args:
            subject: where it is published.
            incoming: the message; its `reply` takes the acks.
            now: Unix nanoseconds.
            choose: picks one of a queue group: is given their number, returns an index.

        Raises:
            PublishRefused: NATS would not take the message or its inbox, or no server could store
                its headers.
        """
        inbox = incoming.ack_inbox
        if incoming.inbox_is_awaited and not (
            is_valid_subject(inbox) and can_be_listened_on(inbox)
        ):
            text = "failed to subscribe to ack inbox: nats: invalid subject"
            raise PublishRefused(PublishCode.UNKNOWN, text)
        if not subject:
            text = "failed to publish to NATS: nats: invalid subject"
            raise PublishRefused(PublishCode.INTERNAL, text)
        if incoming.measure(subject) > self._max_payload_bytes:
            text = "failed to publish to NATS: nats: maximum payload exceeded"
            raise PublishRefused(PublishCode.INTERNAL, text)
        problem = incoming.header_problem
        if problem is not None:
            raise PublishRefused(PublishCode.BAD_REQUEST, problem)
        for partition in self._subjects.receivers(subject, choose):
            partition.receive(subject, incoming, now, self._max_message_bytes)
