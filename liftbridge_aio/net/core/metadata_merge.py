"""Merges fetched metadata into the snapshot of the client. Pure.

For minutes a server may list only some of the brokers, so a known address is kept until a newer one
is received.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime
from types import MappingProxyType

from liftbridge_aio.model import Metadata


def merge(
    known: Metadata,
    answer: Metadata,
    *,
    all_streams: bool,
    unknown_streams: AbstractSet[str],
    unknown_groups: AbstractSet[str],
    now: datetime,
) -> Metadata:
    """Return the snapshot with an answer merged into it.

    Args:
        known: the snapshot so far.
        answer: of the server.
        all_streams: True if the server was asked for every stream, so that missing ones are gone.
        unknown_streams: streams that the server does not know.
        unknown_groups: groups that the server does not know.
        now: when the answer was received.
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
    """Return True if an answer names a leader that is missing from its list of brokers.

    The leader's address in the snapshot may be wrong then: it may have moved.
    """
    return any(
        partition.leader and partition.leader not in answer.brokers
        for stream in answer.streams.values()
        for partition in stream.partitions.values()
    )
