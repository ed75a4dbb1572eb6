"""Streams and what happens to them, without a server around."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.errors import BrokerError, Code, PublishCode, PublishRefused
from liftbridge_aio.broker.incoming import Incoming
from liftbridge_aio.broker.partition import Partition
from liftbridge_aio.broker.state import MAX_PARTITIONS, ClusterState, StreamRequest
from liftbridge_aio.broker.stream_config import StreamConfig
from liftbridge_aio.model import Ack, AckError, AckPolicy

LIMIT = 1_000


def cluster(*streams: StreamRequest, max_payload_bytes: int = 2 * LIMIT) -> ClusterState:
    state = ClusterState(LIMIT, max_payload_bytes)
    for request in streams:
        state.create_stream(request, now=1)
    return state


def stream(
    name: str, subject: str | None = None, partitions: int = 1, **config: int
) -> StreamRequest:
    return StreamRequest(
        name=name,
        subject=subject or name,
        partitions=partitions,
        config=StreamConfig(**config),  # type: ignore[arg-type]
    )


def incoming(value: bytes = b"", policy: int = AckPolicy.LEADER, expected: int = -1) -> Incoming:
    return Incoming(b"", value, {}, "inbox", "id", policy, expected)


def publish(state: ClusterState, name: str, partition: int = 0, now: int = 2) -> list[Ack]:
    return state.publish(name, partition, incoming(), now, lambda _: 0)


def partition_of(state: ClusterState, name: str, number: int = 0) -> Partition:
    found = state.partition(name, number)
    assert found is not None
    return found


def paused(state: ClusterState, name: str) -> set[int]:
    found = state.stream(name)
    assert found is not None
    return {number for number, one in found.partitions.items() if one.is_paused}


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (stream("", "s"), Code.INVALID_ARGUMENT, "Name cannot be empty"),
        (StreamRequest(name="s", subject=""), Code.INVALID_ARGUMENT, "Subject is invalid"),
        (stream("s", "a..b"), Code.INVALID_ARGUMENT, "Subject is invalid"),
        (stream("s", "a.>", partitions=2), Code.INVALID_ARGUMENT, "Subject is invalid"),
        (stream("__cursors"), Code.INVALID_ARGUMENT, "Stream is reserved"),
        (stream("s", partitions=-1), Code.INVALID_ARGUMENT, "Invalid partitions -1"),
        (
            stream("s", partitions=MAX_PARTITIONS + 1),
            Code.INVALID_ARGUMENT,
            f"Invalid partitions {MAX_PARTITIONS + 1}",
        ),
        (
            stream("s", cleaner_interval=-1),
            Code.INVALID_ARGUMENT,
            "Invalid cleaner_interval -1",
        ),
        (
            StreamRequest(name="s", subject="s", replication_factor=-2),
            Code.INVALID_ARGUMENT,
            "Invalid replicationFactor -2",
        ),
        (
            StreamRequest(name="taken", subject="s", replication_factor=2),
            Code.INVALID_ARGUMENT,
            "Invalid replicationFactor 2, cluster size 1",
        ),
        (stream("taken", "other"), Code.ALREADY_EXISTS, "stream already exists"),
        (
            stream("s", encryption=True),
            Code.FAILED_PRECONDITION,
            (
                "Failed on preconditions for stream's encryption handler:"
                " kwp: invalid AES key size; want 16 or 32, got 0"
            ),
        ),
    ],
)
def test_what_cannot_be_created_is_refused(request_: StreamRequest, code: Code, text: str) -> None:
    state = cluster(stream("taken"))

    with pytest.raises(BrokerError) as refused:
        state.create_stream(request_, now=2)

    assert (refused.value.code, refused.value.text) == (code, text)
    assert [one.name for one in state.streams] == ["taken"]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (stream("a b", "s"), "a stream name must not hold blanks"),
        (stream("a\0b", "s"), "a stream name must not hold blanks"),
        (stream("a..b", "s"), "a stream name must have something before, between and after its"),
        (stream(".", "s"), "a stream name must have something before, between and after its"),
        (stream(">", "s"), "'>' is no stream name"),
        (stream("ü" * 128, "s"), "a stream name has at most 255 bytes"),
        (stream("s", "a\vb"), "a subject must not hold blanks"),
        (stream("s", "a\0b"), "a subject must not hold blanks"),
        (StreamRequest(name="s", subject="s", group="a b"), "the name of a group must not hold"),
    ],
)
def test_names_that_would_end_a_real_server_are_refused(request_: StreamRequest, text: str) -> None:
    state = cluster()

    with pytest.raises(BrokerError) as refused:
        state.create_stream(request_, now=2)

    assert refused.value.code is Code.INVALID_ARGUMENT
    assert refused.value.text.startswith(text)
    assert not state.streams


@pytest.mark.parametrize("name", ["a/b", "a*", "*", "ü", "a.b", "a.>", "x" * 255])
def test_names_that_a_real_server_bears_are_taken(name: str) -> None:
    state = cluster(StreamRequest(name=name, subject="s", group="a.*/ü>"))

    assert len(publish(state, name)) == 1


def test_one_partition_may_listen_on_everything() -> None:
    state = cluster(stream("all", ">"), stream("s"))

    assert [ack.stream for ack in publish(state, "s")] == ["all", "s"]


@pytest.mark.parametrize(
    ("count", "name_bytes", "text"),
    [
        (65_533, 1, None),
        (65_534, 1, "a message has at most 65533 headers, not 65534"),
        (1, 32_767, None),
        (1, 32_768, "the name of a header has at most 32767 bytes"),
    ],
)
def test_headers_beyond_what_can_be_stored_are_refused(
    count: int, name_bytes: int, text: str | None
) -> None:
    state = ClusterState(2**21, 2**21)
    state.create_stream(stream("s"), now=1)
    headers = {f"{number:0{name_bytes}}": b"" for number in range(count)}
    sent = Incoming(b"", b"", headers, "inbox", "id", AckPolicy.LEADER)

    refusal: PublishRefused | None = None
    try:
        state.publish("s", 0, sent, 2, lambda _: 0)
    except PublishRefused as refused:
        refusal = refused

    assert (refusal and (refusal.code, refusal.text)) == (text and (PublishCode.BAD_REQUEST, text))
    assert partition_of(state, "s").log.next_offset == (0 if text else 1)


def test_the_load_goes_up_and_down_as_on_a_real_server() -> None:
    """All these numbers were measured on one, where `other` was `__cursors` and a stream."""
    state = cluster(stream("other", partitions=4))
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: state.create_stream(stream("t", partitions=3), 1), 7),
        (lambda: state.pause("t", [0], resume_all=False, now=2), 6),
        (lambda: state.pause("t", [0], resume_all=False, now=3), 5),  # paused already
        (lambda: state.pause("t", [], resume_all=False, now=4), 2),
        (lambda: publish(state, "t", 1), 3),
        (lambda: publish(state, "t", 1), 3),  # was awake
        (lambda: state.pause("t", [1, 1], resume_all=False, now=5), 1),
        (lambda: publish(state, "t", 1), 2),
        (lambda: state.delete_stream("t"), 0),
        (lambda: state.create_stream(stream("t", partitions=3), 6), 3),
    ]
    assert state.partition_load == 4

    for number, (step, load) in enumerate(steps):
        step()
        assert state.partition_load == load, f"after step {number}"


@pytest.mark.parametrize("key_bytes", [16, 32])
def test_a_proper_key_allows_encryption(key_bytes: int) -> None:
    state = cluster()

    state.create_stream(stream("s", encryption=True), now=1, encryption_key_bytes=key_bytes)

    assert state.stream("s") is not None


def test_every_partition_whose_subject_matches_stores_a_message_and_acks() -> None:
    state = cluster(stream("a", partitions=2), stream("b", "a.1"), stream("c", "a.*"))
    publish(state, "c", now=5)  # goes to the subject `a.*` as it stands: to c alone

    acks = publish(state, "a", partition=1)

    assert [(ack.stream, ack.partition_subject, ack.msg_subject, ack.offset) for ack in acks] == [
        ("a", "a", "a.1", 0),
        ("b", "a.1", "a.1", 0),
        ("c", "a.*", "a.1", 1),
    ]  # W12, W15
    assert {ack.correlation_id for ack in acks} == {"id"}
    assert partition_of(state, "a", 0).log.newest_offset == -1


def test_one_of_a_queue_group_gets_a_message() -> None:
    requests = [StreamRequest(name=name, subject="s", group="g") for name in "abc"]
    state = cluster(*requests)

    stored_by = [
        state.deliver("s", incoming(), 2, lambda _, pick=pick: pick)[0].stream  # type: ignore[misc]
        for pick in range(3)
    ]

    assert stored_by == ["a", "b", "c"]


def test_headers_of_the_server_win_over_those_of_the_publisher() -> None:
    state = cluster(stream("s"))
    mine = {"subject": b"mine", "reply": b"mine", "own": b"kept"}

    state.deliver("s", Incoming(b"", b"", mine, "", "", 0), 2, lambda _: 0)

    [message] = partition_of(state, "s").log.read(0, 1)
    assert message.headers == {"subject": b"s", "reply": b"", "own": b"kept"}  # W5
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
def test_who_is_acked(policy: int, min_isr: int, acked: bool) -> None:
    state = cluster(stream("s", min_isr=min_isr))

    acks = state.publish("s", 0, incoming(policy=policy), 2, lambda _: 0)

    assert bool(acks) is acked
    log = partition_of(state, "s").log
    assert (log.newest_offset, log.high_watermark) == (0, 0 if min_isr == 1 else -1)


@pytest.mark.parametrize(
    ("size", "error"), [(LIMIT // 2, AckError.OK), (LIMIT + 1, AckError.TOO_LARGE)]
)
def test_a_message_above_the_limit_of_replication_is_refused_with_an_ack(
    size: int, error: AckError
) -> None:
    state = cluster(stream("s"))

    [ack] = state.publish("s", 0, incoming(bytes(size)), 2, lambda _: 0)

    assert ack.ack_error is error
    assert ack.commit_timestamp == (2 if error is AckError.OK else 0)  # W7


def test_a_message_above_the_limit_of_nats_is_not_published() -> None:
    state = cluster(stream("s"), max_payload_bytes=LIMIT)

    with pytest.raises(PublishRefused) as refused:
        state.publish("s", 0, incoming(bytes(LIMIT + 1)), 2, lambda _: 0)

    assert refused.value.code is PublishCode.INTERNAL
    assert refused.value.text == "failed to publish to NATS: nats: maximum payload exceeded"


def test_concurrency_control_stores_only_at_the_expected_offset() -> None:
    state = cluster(stream("s", optimistic_concurrency_control=True))

    errors = [
        state.publish("s", 0, incoming(expected=expected), 2, lambda _: 0)[0].ack_error
        for expected in (1, 0, 0, -1, 2)
    ]

    wrong, right = AckError.INCORRECT_OFFSET, AckError.OK
    assert errors == [wrong, right, wrong, right, right]
    with pytest.raises(PublishRefused, match="must have AckPolicy set"):
        state.publish("s", 0, incoming(policy=AckPolicy.NONE), 2, lambda _: 0)


def test_a_publish_wakes_the_paused_partition_it_goes_to() -> None:
    state = cluster(stream("s", partitions=3))
    state.pause("s", [], resume_all=False, now=2)

    publish(state, "s", partition=1)

    assert paused(state, "s") == {0, 2}


def test_a_message_on_the_subject_of_a_paused_partition_is_lost() -> None:
    state = cluster(stream("s"))
    state.pause("s", [0], resume_all=False, now=2)

    assert state.deliver("s", incoming(), 3, lambda _: 0) == []  # W31
    assert paused(state, "s") == {0}


def test_the_latest_resume_all_wins_and_holds_for_one_waking() -> None:
    state = cluster(stream("s", partitions=3))
    state.pause("s", [], resume_all=True, now=2)
    state.pause("s", [1], resume_all=False, now=3)
    publish(state, "s", partition=0)
    assert paused(state, "s") == {1, 2}

    state.pause("s", [0], resume_all=True, now=4)
    publish(state, "s", partition=0)
    assert paused(state, "s") == set()

    state.pause("s", [0, 1], resume_all=False, now=5)
    publish(state, "s", partition=0)
    assert paused(state, "s") == {1}


@given(st.lists(st.tuples(st.sets(st.integers(0, 3)), st.booleans(), st.integers(0, 3))))
def test_pausing_and_waking_in_any_order(steps: list[tuple[set[int], bool, int]]) -> None:
    state = cluster(stream("s", partitions=4))
    expected: set[int] = set()
    stored = 0
    for numbers, resume_all, target in steps:
        state.pause("s", sorted(numbers), resume_all, now=2)
        expected |= numbers or set(range(4))
        assert paused(state, "s") == expected

        stored += len(publish(state, "s", target))
        expected = set() if resume_all else expected - {target}
        assert paused(state, "s") == expected
    assert stored == len(steps)


def test_a_resumed_partition_keeps_its_messages_and_still_says_paused() -> None:
    state = cluster(stream("s"))
    publish(state, "s", now=2)
    state.pause("s", [], resume_all=False, now=3)
    state.set_readonly("s", [], readonly=True, now=4)
    with pytest.raises(PublishRefused, match="readonly partition: 0"):
        publish(state, "s", now=5)
    assert paused(state, "s") == {0}

    state.resume("s", 0, now=6)

    assert [ack.offset for ack in publish(state, "s", now=7)] == [1]
    info = partition_of(state, "s").info("me")
    assert (info.paused, info.readonly) == (True, True)  # as measured on v1.9.0
    assert (info.pause.first, info.pause.latest) == (3, 6)
    assert (info.messages_received.first, info.messages_received.latest) == (2, 7)
    assert (info.readonly_changes.first, info.readonly_changes.latest) == (4, 4)


def test_readonly_takes_nothing_until_it_is_taken_back() -> None:
    state = cluster(stream("s", partitions=2))
    state.set_readonly("s", [1], readonly=True, now=2)

    assert publish(state, "s", 0)
    with pytest.raises(PublishRefused) as refused:
        publish(state, "s", 1)
    assert refused.value.code is PublishCode.READONLY
    assert state.deliver("s.1", incoming(), 3, lambda _: 0) == []

    state.set_readonly("s", [], readonly=False, now=4)
    assert publish(state, "s", 1)


@pytest.mark.parametrize(
    ("name", "numbers", "text"),
    [
        ("none", [], "stream not found"),
        ("none", [0], "stream does not exist"),
        ("s", [0, 9], "partition does not exist"),
    ],
)
def test_nothing_changes_where_something_is_unknown(
    name: str, numbers: list[int], text: str
) -> None:
    state = cluster(stream("s", partitions=2))

    with pytest.raises(BrokerError, match=text):
        state.pause(name, numbers, resume_all=False, now=2)
    with pytest.raises(BrokerError, match=text):
        state.set_readonly(name, numbers, readonly=True, now=2)

    assert paused(state, "s") == set()
    assert publish(state, "s")


def test_a_deleted_stream_is_gone_and_its_subject_free() -> None:
    state = cluster(stream("s", partitions=2))
    old = partition_of(state, "s")
    publish(state, "s")

    state.delete_stream("s")

    with pytest.raises(BrokerError, match="stream does not exist"):
        state.delete_stream("s")
    assert state.deliver("s", incoming(), 3, lambda _: 0) == []
    state.create_stream(stream("s"), now=9)
    again = state.stream("s")
    assert again is not None
    assert again.created == 9
    assert partition_of(state, "s").log is not old.log
    assert publish(state, "s")[0].offset == 0


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
