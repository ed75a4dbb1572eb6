"""Consumer groups: members share the partitions of streams and go on where others stopped.

- `consumer_group`: The handle of one member of a consumer group: an async context manager and an
  async iterator.
- `fenced_cursors`: The cursors of a group, guarded against late writers as far as cursors allow.
- `group_calls`: The calls of a consumer group, each made once and without retries.
- `group_readers`: The partition readers of a member, what was handed out of each, and what is
  finished.
- `handler_runner`: Calls a handler for each message of a member, for several partitions at once.
- `member`: Keeps a member in its group by making the calls that `Membership` asks for.
- `member_runtime`: The parts of a member, the tasks that run them, and how they are closed.
- `partition_transfer`: Passes a partition from one member to another with few messages read twice.
- `rebalancer`: Takes and gives up partitions, one step after the other, as `Ownership` asks for.
- `start_positions`: Finds where a member begins to read a partition: behind the committed position,
  or where `start` says.
- `stop_signal`: SIGTERM as a request to stop what runs.
- `core/`: Pure parts of consumer groups: no event loop, clock, chance or I/O.
"""

from liftbridge_aio.model import StreamPartition

from .consumer_group import ConsumerGroup
from .core.group_state import GroupState

__all__ = ["ConsumerGroup", "GroupState", "StreamPartition"]
