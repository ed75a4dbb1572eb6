"""Whom a reading is sent to, whatever metadata knows of brokers and replicas."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from liftbridge_aio import Client
from liftbridge_aio._core.status import CallFailure, Reach
from liftbridge_aio._subscribe.core.plan import ReadingPlan
from liftbridge_aio._subscribe.start import broker_for
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.model import BrokerInfo, Metadata, PartitionInfo, StartAt, StreamInfo

PLAN: dict[str, Any] = {
    "stream": "s",
    "partition": 0,
    "start": StartAt.earliest(),
    "stop": None,
    "resubscribe_timeout": 30.0,
    "unpause": False,
    "reverse": False,
    "timeout": 10.0,
    "now": 0,
}


def known(leader: str, isr: tuple[str, ...]) -> Metadata:
    """A cluster of "a" and "b", of which others may be spoken of."""
    brokers = {name: BrokerInfo(name, name, 9292) for name in ("a", "b")}
    partition = PartitionInfo(0, leader, replicas=("a", "b", "c"), isr=isr)
    stream = StreamInfo("s", "s", MappingProxyType({0: partition}))
    return Metadata(None, MappingProxyType(brokers), MappingProxyType({"s": stream}))


@pytest.mark.parametrize(
    ("leader", "isr", "from_isr_replica", "choices"),
    [
        ("a", ("a", "b"), False, {"a"}),
        ("a", ("a", "b"), True, {"a", "b"}),
        ("a", ("b", "gone"), True, {"b"}),
        ("a", ("gone",), True, {"a"}),
        ("a", (), True, {"a"}),
        ("", (), True, set()),
        ("gone", (), False, set()),
        ("gone", ("gone",), True, set()),
    ],
)
async def test_only_brokers_that_are_known_are_asked(
    leader: str, isr: tuple[str, ...], from_isr_replica: bool, choices: set[str]
) -> None:
    """Replicas may be none, or brokers that metadata does not list: they may be dead."""
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        assert client._parts is not None
        network = client._parts.network
        network.metadata.snapshot = known(leader, isr)
        plan = ReadingPlan(**PLAN, from_isr_replica=from_isr_replica)
        if choices:
            assert {broker_for(plan, network).id for _ in range(50)} == choices
        else:
            with pytest.raises(CallFailure, match="no leader whose address is known") as failed:
                broker_for(plan, network)
            assert failed.value.reach is Reach.NOT_SENT  # so that it is tried again
