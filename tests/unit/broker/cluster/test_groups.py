"""Consumer groups: assignments, epochs, and that all brokers compute the same."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.cluster.groups import ConsumerGroups
from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    LeaveConsumerGroup,
)

STREAMS = {"none": 0, "one": 1, "two": 2, "three": 3, "five": 5, "eight": 8}
SERVERS = ("s1", "s2", "s3")


def registry(server_id: str = "s1") -> ConsumerGroups:
    return ConsumerGroups(server_id, lambda stream: STREAMS.get(stream, 0))


def refusal(error: pytest.ExceptionInfo[BrokerError]) -> tuple[Code, str]:
    return error.value.code, error.value.text


def test_coordinators_are_those_with_the_fewest_groups() -> None:
    groups = registry()
    for index, name in enumerate(("g1", "g2", "g3", "g4"), 1):
        coordinator = groups.choose_coordinator(SERVERS)
        operation = CreateConsumerGroup(
            group=name, coordinator=coordinator, consumer="a", streams=("one",)
        )
        groups.apply(operation, index)
    chosen = [groups.existing(name).coordinator for name in ("g1", "g2", "g3", "g4")]
    assert chosen == ["s1", "s2", "s3", "s1"]

    groups.apply(ChangeGroupCoordinator(group="g1", coordinator="s3"), 5)
    groups.apply(LeaveConsumerGroup(group="g2", consumer="a", expired=True), 6)
    assert groups.choose_coordinator(SERVERS) == "s2"
    assert groups.choose_coordinator(("s3", "s1")) == "s1"
    with pytest.raises(BrokerError) as error:
        groups.choose_coordinator(())
    assert refusal(error) == (Code.FAILED_PRECONDITION, "No group coordinator candidates")
