"""Streams on one broker: messages, pauses, read-only, deletion, loads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.errors import BrokerError, PublishCode, PublishRefused
from liftbridge_aio.broker.storage.core.operations import Operation
from liftbridge_aio.model import AckError, AckPolicy
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


def test_headers_of_the_server_replace_those_of_the_publisher() -> None:
    broker = SingleBroker(stream("s"))
    mine = {"subject": b"mine", "reply": b"mine", "own": b"kept"}
    sent = incoming()
    sent.headers = mine

    broker.publish_to_subject("s", sent)

    [message] = broker.own("s").log.read(0, 1)
    assert message.headers == {
        "subject": b"s",
        "reply": b"",
        "own": b"kept",
    }  # the server's headers win
    assert message.subject == "s"


@pytest.mark.parametrize(
    ("policy", "min_isr", "acked"),
    [
        (AckPolicy.LEADER, 1, True),
        (AckPolicy.ALL, 1, True),
        (AckPolicy.NONE, 1, False),
        (AckPolicy.LEADER, 2, True),
        (AckPolicy.ALL, 2, False),
        (7, 1, False),
    ],
)
def test_acks_by_policy(policy: int, min_isr: int, acked: bool) -> None:
    broker = SingleBroker(stream("s", min_isr=min_isr))

    acks = broker.send("s", 0, incoming(policy=policy))

    assert bool(acks) is acked
    log = broker.own("s").log
    assert (log.newest_offset, log.high_watermark) == (0, 0 if min_isr == 1 else -1)


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


def test_concurrency_control_stores_only_at_the_expected_offset() -> None:
    broker = SingleBroker(stream("s", optimistic_concurrency_control=True))

    errors = [
        broker.send("s", 0, incoming(expected=expected))[0].ack_error
        for expected in (1, 0, 0, -1, 2)
    ]

    wrong, right = AckError.INCORRECT_OFFSET, AckError.OK
    assert errors == [wrong, right, wrong, right, right]
    with pytest.raises(PublishRefused, match="must have AckPolicy set"):
        broker.send("s", 0, incoming(policy=AckPolicy.NONE))


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [("none", 0, "no such stream: none"), ("s", 1, "no such partition: 1")],
)
def test_nothing_is_published_to_what_does_not_exist(name: str, number: int, text: str) -> None:
    broker = SingleBroker(stream("s"))

    with pytest.raises(PublishRefused) as refused:
        broker.send(name, number)

    assert (refused.value.code, refused.value.text) == (PublishCode.NOT_FOUND, text)


def test_a_publish_resumes_the_paused_partition_it_goes_to() -> None:
    broker = SingleBroker(stream("s", partitions=3))
    broker.pause("s")

    assert broker.send("s", 1)

    assert broker.paused("s") == {0, 2}


def test_a_message_on_the_subject_of_a_paused_partition_is_lost() -> None:
    broker = SingleBroker(stream("s"))
    broker.pause("s", [0])

    assert broker.publish_to_subject("s") == []  # lost
    assert broker.paused("s") == {0}


def test_the_latest_resume_all_applies_to_one_resumption() -> None:
    broker = SingleBroker(stream("s", partitions=3))
    broker.pause("s", resume_all=True)
    broker.pause("s", [1])
    broker.send("s", 0)
    assert broker.paused("s") == {1, 2}

    broker.pause("s", [0], resume_all=True)
    broker.send("s", 0)
    assert broker.paused("s") == set()

    broker.pause("s", [0, 1])
    broker.send("s", 0)
    assert broker.paused("s") == {1}


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


def test_a_resumed_partition_keeps_its_messages_and_still_says_paused() -> None:
    broker = SingleBroker(stream("s"))
    broker.at(2).send("s")
    broker.at(3).pause("s")
    broker.at(4).set_readonly("s", readonly=True)
    with pytest.raises(PublishRefused, match="readonly partition: 0"):
        broker.at(5).send("s")
    assert broker.paused("s") == {0}

    broker.controller.resume("s", (0,), 6)

    assert [ack.offset for ack in broker.at(7).send("s")] == [1]
    info = broker.own("s").info()
    assert (info.paused, info.readonly) == (True, True)  # as measured on v1.9.0
    assert (info.pause.first, info.pause.latest) == (3, 6)
    assert (info.messages_received.first, info.messages_received.latest) == (2, 7)
    assert (info.readonly_changes.first, info.readonly_changes.latest) == (4, 4)


def test_a_readonly_partition_stores_nothing_until_it_is_writable() -> None:
    broker = SingleBroker(stream("s", partitions=2))
    broker.set_readonly("s", [1], readonly=True)

    assert broker.send("s", 0)
    with pytest.raises(PublishRefused) as refused:
        broker.send("s", 1)
    assert refused.value.code is PublishCode.READONLY
    assert broker.publish_to_subject("s.1") == []

    broker.set_readonly("s", readonly=False)
    assert broker.send("s", 1)


@pytest.mark.parametrize(
    ("name", "numbers", "text"),
    [
        ("none", [], "stream not found"),
        ("none", [0], "stream does not exist"),
        ("s", [0, 9], "partition does not exist"),
    ],
)
def test_an_unknown_partition_prevents_any_change(name: str, numbers: list[int], text: str) -> None:
    broker = SingleBroker(stream("s", partitions=2))

    with pytest.raises(BrokerError, match=text):
        broker.pause(name, numbers)
    with pytest.raises(BrokerError, match=text):
        broker.set_readonly(name, numbers, readonly=True)

    assert broker.paused("s") == set()
    assert broker.send("s")


def test_a_deleted_stream_frees_its_subject() -> None:
    broker = SingleBroker(stream("s", partitions=2))
    old = broker.own("s")
    broker.send("s")

    broker.controller.delete_stream("s", 3)

    with pytest.raises(BrokerError, match="stream does not exist"):
        broker.controller.delete_stream("s", 3)
    assert broker.publish_to_subject("s") == []
    broker.at(9).create(stream("s"))
    again = broker.me.stream("s")
    assert again is not None
    assert again.created == 9
    assert broker.own("s").log is not old.log
    assert broker.send("s")[0].offset == 0


def test_a_stopped_broker_stores_nothing_and_continues_where_it_ended() -> None:
    broker = SingleBroker(stream("s"))
    broker.send("s")

    broker.stop("me")
    assert broker.publish_to_subject("s") == []
    broker.start("me")

    assert broker.send("s")[0].offset == 1
    assert broker.own("s").log.high_watermark == 1


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
            text = "no space"
            raise OSError(text)
        kept.append(operation)

    broker = SingleBroker(stream("s"), store=store)
    with pytest.raises(BrokerError, match="cannot store the operation: no space"):
        broker.pause("s")

    assert broker.paused("s") == set()
    assert broker.controller.last_index == len(kept) == 1
    assert broker.send("s")
