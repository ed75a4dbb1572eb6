from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.model import BrokerInfo, GroupInfo, Metadata, PartitionInfo, StreamInfo
from liftbridge_aio.net.core.metadata_merge import lacks_leaders, merge

NOW = datetime(2026, 11, 20, tzinfo=UTC)
names = st.sampled_from(["a", "b", "c", "d"])


def broker(name: str, port: int) -> BrokerInfo:
    return BrokerInfo(name, "host", port)


def stream(name: str, created: int) -> StreamInfo:
    return StreamInfo(name, name, MappingProxyType({}), created)


def group(name: str, epoch: int) -> GroupInfo:
    return GroupInfo(name, "a", epoch)


versions = st.dictionaries(names, st.integers(1, 3))
views = st.builds(
    lambda brokers, streams, groups: Metadata(
        None,
        MappingProxyType({name: broker(name, port) for name, port in brokers.items()}),
        MappingProxyType({name: stream(name, made) for name, made in streams.items()}),
        MappingProxyType({name: group(name, epoch) for name, epoch in groups.items()}),
    ),
    versions,
    versions,
    versions,
)


@given(views, views, st.booleans(), st.frozensets(names), st.frozensets(names))
def test_an_answer_is_taken_into_what_is_known(
    known: Metadata,
    answer: Metadata,
    all_streams: bool,
    unknown_streams: frozenset[str],
    unknown_groups: frozenset[str],
) -> None:
    merged = merge(
        known,
        answer,
        all_streams=all_streams,
        unknown_streams=unknown_streams,
        unknown_groups=unknown_groups,
        now=NOW,
    )
    assert merged.last_updated == NOW
    # A broker once known is kept until its address changes (W29).
    assert merged.brokers == dict(known.brokers) | dict(answer.brokers)
    # A stream goes when the server does not know it, or leaves it out of the list of all.
    kept = {} if all_streams else dict(known.streams)
    assert merged.streams == {
        name: info
        for name, info in (kept | dict(answer.streams)).items()
        if name not in unknown_streams
    }
    assert merged.groups == {
        name: info
        for name, info in (dict(known.groups) | dict(answer.groups)).items()
        if name not in unknown_groups
    }


def led_by(leader: str) -> StreamInfo:
    return StreamInfo("s", "s", MappingProxyType({0: PartitionInfo(0, leader)}), 1)


@pytest.mark.parametrize(("leader", "lacking"), [("a", False), ("b", True), ("", False)])
def test_an_answer_lacks_a_leader_whose_broker_it_does_not_tell_of(
    leader: str, lacking: bool
) -> None:
    brokers, streams = {"a": broker("a", 1)}, {"s": led_by(leader)}
    answer = Metadata(None, MappingProxyType(brokers), MappingProxyType(streams))
    assert lacks_leaders(answer) is lacking
