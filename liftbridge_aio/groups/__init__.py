"""Consumer groups: members share the partitions of streams and go on where others stopped."""

from .assignment import StreamPartition
from .consumer_group import ConsumerGroup
from .group_state import GroupState

__all__ = ["ConsumerGroup", "GroupState", "StreamPartition"]
