"""Streams on one broker: messages, pauses, read-only, deletion, loads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.cluster.activity import activity_event
from liftbridge_aio.broker.errors import BrokerError, PublishCode, PublishRefused
from liftbridge_aio.broker.storage.core import operations
from liftbridge_aio.broker.storage.core.operations import Operation
from liftbridge_aio.model import AckError
from support.broker.pure_brokers import LIMIT, SingleBroker, incoming, stream


def test_the_load_changes_as_on_a_real_server() -> None:
    """These numbers were measured on a real server, with `__cursors` and a stream as `other`."""
    broker = SingleBroker(stream("other", partitions=4))
    loads = broker.me.loads
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: broker.create(stream("t", partitions=3)), 7),
        (lambda: broker.pause("t", [0]), 6),
        (lambda: broker.pause("t", [0]), 5),  # paused already
        (lambda: broker.pause("t"), 2),
        (lambda: broker.send("t", 1), 3),
        (lambda: broker.send("t", 1), 3),  # was not paused
        (lambda: broker.pause("t", [1, 1]), 1),
        (lambda: broker.send("t", 1), 2),
        (lambda: broker.controller.delete_stream("t", 5), 0),
        (lambda: broker.create(stream("t", partitions=3)), 3),
    ]
    assert (loads.partition_count("me"), loads.leader_count("me")) == (4, 4)

    for number, (step, load) in enumerate(steps):
        step()
        assert (loads.partition_count("me"), loads.leader_count("me")) == (load, load), (
            f"after step {number}"
        )


def test_there_is_no_ack_without_an_inbox() -> None:
    broker = SingleBroker(stream("s"))
    sent = incoming()
    sent.ack_inbox = ""

    assert broker.send("s", 0, sent) == []
    assert broker.own("s").log.newest_offset == 0


@pytest.mark.parametrize(
    ("size", "error"), [(LIMIT // 2, AckError.OK), (LIMIT + 1, AckError.TOO_LARGE)]
)
def test_a_message_above_the_limit_of_replication_is_refused_with_an_ack(
    size: int, error: AckError
) -> None:
    broker = SingleBroker(stream("s")).at(2)

    [ack] = broker.send("s", 0, incoming(bytes(size)))

    assert ack.ack_error is error
    assert ack.commit_timestamp == (2 if error is AckError.OK else 0)  # a nack has none


@given(st.lists(st.tuples(st.sets(st.integers(0, 3)), st.booleans(), st.integers(0, 3))))
def test_pausing_and_resuming_in_any_order(steps: list[tuple[set[int], bool, int]]) -> None:
    broker = SingleBroker(stream("s", partitions=4))
    expected: set[int] = set()
    stored = 0
    for numbers, resume_all, target in steps:
        broker.pause("s", sorted(numbers), resume_all=resume_all)
        expected |= numbers or set(range(4))
        assert broker.paused("s") == expected

        stored += len(broker.send("s", target))
        expected = set() if resume_all else expected - {target}
        assert broker.paused("s") == expected
    assert stored == len(steps)


def test_an_unsubscribed_broker_loses_messages_until_it_resubscribes() -> None:
    broker = SingleBroker(stream("s"))

    broker.me.unsubscribe()
    assert broker.publish_to_subject("s") == []
    broker.me.resubscribe()

    assert [ack.offset for ack in broker.publish_to_subject("s")] == [0]


def test_an_operation_that_cannot_be_stored_is_not_applied() -> None:
    kept: list[Operation] = []

    def store(_index: int, operation: Operation) -> None:
        if kept:
            raise OSError("no space")
        kept.append(operation)

    broker = SingleBroker(stream("s"), store=store)
    with pytest.raises(BrokerError, match="cannot store the operation: no space"):
        broker.pause("s")

    assert broker.paused("s") == set()
    assert broker.controller.last_index == len(kept) == 1
    assert broker.send("s")


def test_more_headers_than_can_be_stored_are_refused() -> None:
    broker = SingleBroker(stream("s"), max_message_bytes=2**21, max_payload_bytes=2**21)
    sent = incoming()
    sent.headers = dict.fromkeys(map(str, range(65_534)), b"")
    with pytest.raises(PublishRefused, match="at most 65533 headers, not 65534") as refused:
        broker.send("s", 0, sent)
    assert refused.value.code is PublishCode.BAD_REQUEST
    del sent.headers["0"]
    assert broker.send("s", 0, sent)[0].offset == 0


@pytest.mark.parametrize(
    "operation",
    [
        operations.ShrinkIsr(stream="s", partition=0, replica="a"),
        operations.ExpandIsr(stream="s", partition=0, replica="a"),
        operations.ChangeLeader(stream="s", partition=0, leader="a"),
        operations.ChangeGroupCoordinator(group="g", coordinator="a"),
        operations.PublishActivity(index=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_operations_without_an_activity_event(operation: Operation) -> None:
    assert activity_event(operation, 7) is None
