"""How an answer about the cluster changes what the client knows: merging, not replacing.

A server may answer with a part of the brokers for minutes (W28, W29), so an address once known is
kept until a newer one comes. Pure.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime
from types import MappingProxyType

from .model import Metadata


def merge(
    known: Metadata,
    answer: Metadata,
    *,
    all_streams: bool,
    unknown_streams: AbstractSet[str],
    unknown_groups: AbstractSet[str],
    now: datetime,
) -> Metadata:
    """Take an answer into what is known.

    Args:
        known: the snapshot so far.
        answer: what the server said.
        all_streams: the server was asked for every stream, so one that is missing is gone.
        unknown_streams: streams that the server says it does not know.
        unknown_groups: groups that the server says it does not know.
        now: when the answer came.
    """
    brokers = {**known.brokers, **answer.brokers}
    streams = dict(answer.streams) if all_streams else {**known.streams, **answer.streams}
    groups = {**known.groups, **answer.groups}
    for name in unknown_streams:
        streams.pop(name, None)
    for group in unknown_groups:
        groups.pop(group, None)
    return Metadata(
        now, MappingProxyType(brokers), MappingProxyType(streams), MappingProxyType(groups)
    )


def lacks_leaders(answer: Metadata) -> bool:
    """Whether a server tells who leads, but not of the broker itself (W29); others may know more.

    What is known of such a leader from before may be wrong: it may have come back elsewhere.
    """
    return any(
        partition.leader and partition.leader not in answer.brokers
        for stream in answer.streams.values()
        for partition in stream.partitions.values()
    )
