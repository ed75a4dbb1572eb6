"""What a user asked to read, checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

from .arguments import INT32_MAX, about, check_text, check_type, check_whole_number
from .errors import InvalidRequest
from .model import StartAt, StartPosition, StopAt, StopPosition
from .options import Duration, seconds


class ConsumerIdentity:
    """In whose name a member of a consumer group subscribes.

    The epoch is read at the moment of each subscribe: a subscription that a member keeps over many
    epochs is resumed with the newest that the member knows.
    """

    __slots__ = ("consumer", "epoch", "group")

    def __init__(self, group: str, consumer: str, epoch: int) -> None:
        self.group = group
        self.consumer = consumer
        self.epoch = epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPlan:
    """The arguments of a subscription, defaults filled in."""

    stream: str
    partition: int
    start: StartAt
    stop: StopAt | None
    resubscribe_timeout: Duration | None
    """Seconds to try to resume; None tries for ever."""
    resume: bool
    from_isr_replica: bool
    reverse: bool
    timeout: float
    """Seconds for the first handshake, everything before it included."""
    now: int
    """The time of asking, in Unix nanoseconds."""
    start_found: bool = False
    """Whether the start was found here, so that it may lie behind the stop: all was read then."""
    consumer: ConsumerIdentity | None = None
    """The member of a consumer group that reads; its reading ends, with `PartitionTaken`, when
    another member takes the partition."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            InvalidRequest: the plan makes no sense.
        """
        with about(self.stream, self.partition):
            check_text(self.stream, "a stream name")
            check_whole_number(self.partition, "a partition", 0, INT32_MAX)
            check_type(self.start, StartAt, "a reading starts at a StartAt")
            check_type(self.stop, (StopAt, type(None)), "a reading stops at a StopAt or at None")
            if self.resubscribe_timeout is not None:
                seconds(self.resubscribe_timeout, "resubscribe_timeout")
        problem = self._problem()
        if problem is not None:
            raise InvalidRequest(problem, stream=self.stream, partition=self.partition)

    def _problem(self) -> str | None:
        if not self.stream:
            return "a stream name must not be empty"
        if self.consumer is not None and self.from_isr_replica:
            return "members of a consumer group read from the leader"
        if self.reverse:
            problem = self._reverse_problem()
            if problem is not None:
                return problem
        stop = self.stop
        if stop is None:
            return None
        if stop.position is StopPosition.TIMESTAMP and stop.value > self.now:
            return "a stop time must lie in the past"
        by_offset = StopPosition.OFFSET, StartPosition.OFFSET
        if (stop.position, self.start.position) == by_offset and not self.start_found:
            first, last = self.start.value, stop.value
            if self.reverse:
                first, last = last, first
            if first > last:
                return f"the stop offset {stop.value} lies before the start {self.start.value}"
        return None

    def _reverse_problem(self) -> str | None:
        if self.start.position is StartPosition.TIMESTAMP:
            return "a reverse reading cannot start by time; start at an offset or at latest()"
        if self.stop is not None and self.stop.position is StopPosition.LATEST:
            return "a reverse reading begins at the latest message, so it cannot stop there"
        return None
