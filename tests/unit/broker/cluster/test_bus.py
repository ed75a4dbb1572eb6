"""The receivers of a message published to a subject, and messages that are refused."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.cluster.incoming import Incoming
from liftbridge_aio.broker.cluster.requests import StreamRequest
from liftbridge_aio.broker.errors import Code, PublishCode, PublishRefused
from liftbridge_aio.model import Ack, AckPolicy
from support.broker.pure_brokers import LIMIT, SingleBroker, incoming, stream


def test_one_partition_may_subscribe_to_everything() -> None:
    broker = SingleBroker(stream("all", ">"), stream("s"))

    assert [ack.stream for ack in broker.send("s")] == ["all", "s"]


def test_every_partition_whose_subject_matches_stores_a_message_and_acks() -> None:
    broker = SingleBroker(stream("a", partitions=2), stream("b", "a.1"), stream("c", "a.*"))
    broker.send("c")  # published to the literal subject `a.*`, which only c has

    acks = broker.send("a", 1)

    assert [(ack.stream, ack.partition_subject, ack.msg_subject, ack.offset) for ack in acks] == [
        ("a", "a", "a.1", 0),
        ("b", "a.1", "a.1", 0),
        ("c", "a.*", "a.1", 1),
    ]
    assert {ack.correlation_id for ack in acks} == {"id"}
    assert broker.own("a", 0).log.newest_offset == -1


def test_one_of_a_queue_group_gets_a_message() -> None:
    broker = SingleBroker(*(StreamRequest(name=name, subject="s", group="g") for name in "abc"))

    stored_by = [
        [ack.stream for ack in broker.publish_to_subject("s", pick=pick)] for pick in range(3)
    ]

    assert stored_by == [["a"], ["b"], ["c"]]


def test_a_message_above_the_limit_of_nats_is_not_published() -> None:
    broker = SingleBroker(stream("s"), max_payload_bytes=LIMIT)

    with pytest.raises(PublishRefused) as refused:
        broker.send("s", 0, incoming(bytes(LIMIT + 1)))

    assert refused.value.code is PublishCode.INTERNAL
    assert refused.value.text == "failed to publish to NATS: nats: maximum payload exceeded"
    assert broker.own("s").log.newest_offset == -1


def test_a_publish_without_a_subject_is_refused() -> None:
    broker = SingleBroker(stream("all", ">"))

    with pytest.raises(PublishRefused, match="failed to publish to NATS: nats: invalid subject"):
        broker.publish_to_subject("")

    assert broker.own("all").log.newest_offset == -1


@pytest.mark.parametrize("inbox", ["", "a b", "a..b", "a.>.b"])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_only_a_call_that_waits_needs_a_valid_inbox(inbox: str, is_awaited: bool) -> None:
    broker = SingleBroker(stream("s"))
    sent = incoming()
    sent.ack_inbox = inbox
    sent.inbox_is_awaited = is_awaited

    refusal = ""
    try:
        broker.send("s", 0, sent)
    except PublishRefused as refused:
        refusal = refused.text

    text = "failed to subscribe to ack inbox: nats: invalid subject"
    assert refusal == (text if is_awaited else "")
    assert broker.own("s").log.next_offset == (0 if is_awaited else 1)


@pytest.mark.parametrize(
    ("count", "name_bytes", "text"),
    [
        (65_533, 1, None),
        (65_534, 1, "a message may have at most 65533 headers, not 65534"),
        (1, 32_767, None),
        (1, 32_768, "the name of a header may have at most 32767 bytes"),
    ],
)
def test_headers_beyond_what_can_be_stored_are_refused(
    count: int, name_bytes: int, text: str | None
) -> None:
    broker = SingleBroker(stream("s"), max_message_bytes=2**21, max_payload_bytes=2**21)
    headers = {f"{number:0{name_bytes}}": b"" for number in range(count)}
    acks: list[Ack] = []
    sent = Incoming(b"", b"", headers, "inbox", "id", AckPolicy.LEADER, acks.append)

    refusal: PublishRefused | None = None
    try:
        broker.send("s", 0, sent)
    except PublishRefused as refused:
        refusal = refused

    assert (refusal and (refusal.code, refusal.text)) == (text and (PublishCode.BAD_REQUEST, text))
    assert broker.own("s").log.next_offset == (0 if text else 1)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (PublishCode.BAD_REQUEST, Code.INVALID_ARGUMENT),
        (PublishCode.NOT_FOUND, Code.NOT_FOUND),
        (PublishCode.READONLY, Code.FAILED_PRECONDITION),
        (PublishCode.ENCRYPTION_FAILED, Code.INTERNAL),
        (PublishCode.INTERNAL, Code.UNKNOWN),
        (PublishCode.INCORRECT_OFFSET, Code.UNKNOWN),
        (PublishCode.UNKNOWN, Code.UNKNOWN),
    ],
)
def test_a_refused_publish_as_a_status(code: PublishCode, status: Code) -> None:
    assert PublishRefused(code, "why").as_status().code is status
