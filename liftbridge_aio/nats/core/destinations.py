"""Maps a stream and partition, or a subject, to the NATS subject to publish to. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    about,
    check_text,
    check_type,
    check_whole_number,
)
from liftbridge_aio._core.names import subject_problem
from liftbridge_aio.errors import InvalidRequest, PartitionNotFound
from liftbridge_aio.model import StreamInfo
from liftbridge_aio.partitioner import by_key, choose_partition


class Destination(NamedTuple):
    """A subject, and what is known of what listens there."""

    subject: str
    stream: str | None
    """Whose ack counts; None: the first one does, whoever sends it."""
    partition: int | None


def partition_subject(subject: str, partition: int) -> str:
    """Return the subject on which a partition of a stream listens.

    Raises:
        InvalidRequest: the partition is negative.
    """
    check_whole_number(partition, "a partition", 0, INT32_MAX)
    return f"{subject}.{partition}" if partition else subject


def destination(
    target: str | StreamInfo,
    *,
    key: bytes | None = None,
    partition: int | None = None,
    stream: str | None = None,
) -> Destination:
    """Find the subject of a message.

    Args:
        target: a stream as `Client.fetch_metadata` tells of it, or a subject to be taken as it is.
        key: chooses the partition; without one it is partition 0.
        partition: of the stream; beats the key.
        stream: for a subject, the stream whose ack counts.

    Raises:
        InvalidRequest: no message can be published like this.
        PartitionNotFound: the stream has no such partition.
    """
    if isinstance(target, str):
        check_subject(target)
        if partition is not None:
            raise InvalidRequest(
                "a partition is that of a StreamInfo; for a subject use partition_subject(subject,"
                f" {partition!r})"
            )
        if stream is not None:
            check_text(stream, "a stream name")
        return Destination(target, stream, None)
    check_type(target, StreamInfo, "a message goes to a subject or a StreamInfo")
    if stream is not None and stream != target.name:
        raise InvalidRequest(
            f"the ack of {stream!r} was asked for, of a message to another stream",
            stream=target.name,
        )
    chosen = _partition(target, key, partition)
    subject = f"{target.subject}.{chosen}" if chosen else target.subject
    check_subject(subject)
    return Destination(subject, target.name, chosen)


def _partition(
    stream: StreamInfo,
    key: bytes | None,
    partition: int | None,
) -> int:
    count = len(stream.partitions)
    if partition is not None:
        with about(stream.name, partition):
            check_whole_number(partition, "a partition", 0, INT32_MAX)
        if partition >= count:
            raise PartitionNotFound(
                f"the stream has {count} partitions", stream=stream.name, partition=partition
            )
        return partition
    if key is None or not count:
        return 0
    return choose_partition(by_key, stream.name, key, b"", count)


@lru_cache(maxsize=4096)
def check_subject(subject: str) -> None:
    """Refuse what nothing can be published to.

    Raises:
        InvalidRequest: with what is wrong about it.
    """
    check_text(subject, "a subject")
    problem = subject_problem(subject)
    if problem is None and any(token in {"*", ">"} for token in subject.split(".")):
        problem = "it has wildcards"
    if problem is not None:
        raise InvalidRequest(f"{subject!r} is no subject to publish to: {problem}")
