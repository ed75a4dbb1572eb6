"""Consumer groups: members share the partitions of streams and continue where others stopped.

- `consumer_group`: The handle of a member of a consumer group: an async context manager and an
  async iterator.
- `fenced_cursors`: The cursors of a group, fenced against late writes as far as cursors allow.
- `group_calls`: The gRPC calls of a consumer group, each made once without retries.
- `group_readers`: The partition readers of a member, with delivered and finished offsets.
- `handler_runner`: Calls a handler for each message of a member, for several partitions
  concurrently.
- `member`: Keeps a member in its group by making the calls that `Membership` requests.
- `member_runtime`: The parts of a member, the tasks that run them, and how they are closed.
- `partition_transfer`: Transfers a partition from one member to another with few repeated messages.
- `rebalancer`: Acquires and releases partitions, one step at a time, as `Ownership` requests.
- `start_positions`: Finds the start position of a partition: after the committed position, or that
  of `start`.
- `workers`: The tasks that call a handler: started on demand, up to a limit, and ended together.
- `core/`: Pure parts of consumer groups: no event loop, clock, randomness or I/O.
"""

from liftbridge_aio.model import StreamPartition

from .consumer_group import ConsumerGroup
from .core.group_state import GroupState

__all__ = ["ConsumerGroup", "GroupState", "StreamPartition"]


def __dir__() -> list[str]:
    return __all__
