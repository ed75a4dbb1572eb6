"""Consumer groups: members share the partitions of streams and go on where others stopped."""

from .consumer_group import ConsumerGroup
from .membership import GroupState, StreamPartition

__all__ = ["ConsumerGroup", "GroupState", "StreamPartition"]
