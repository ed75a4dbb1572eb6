from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import errors
from liftbridge_aio._core.status import (
    IDEMPOTENT,
    READS,
    REPEAT_SHOWS,
    CallFailure,
    Code,
    GroupRefusal,
    Reach,
    Remedy,
    StreamEnd,
    error_from,
    group_refusal,
    not_partition_leader,
    remedy,
    replaced_in_group,
    stream_end,
)
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.wire import rpc

CALLS = sorted(value.name for value in vars(rpc).values() if isinstance(value, rpc.Rpc))
CHANGES = sorted(set(CALLS) - READS)
REPEATABLE = IDEMPOTENT | set(REPEAT_SHOWS)

# What servers say, by code: (call, text, the error that users see).
SAID: dict[Code, list[tuple[str, str, type[LiftbridgeError]]]] = {
    Code.INVALID_ARGUMENT: [
        ("CreateStream", "Name cannot be empty", errors.InvalidRequest),
        ("CreateStream", "Subject is invalid", errors.InvalidRequest),
        ("CreateStream", "Stream is reserved", errors.StreamReserved),
        ("CreateStream", "Invalid replicationFactor 5, cluster size 1", errors.InvalidRequest),
        ("CreateStream", "no partitions provided", errors.InvalidRequest),
        ("DeleteStream", "Stream is reserved", errors.StreamReserved),
        ("Subscribe", "Stop offset is before start offset: 3 < 4", errors.InvalidRequest),
        (
            "Subscribe",
            "Consumer id cannot be empty when group id is provided",
            errors.InvalidRequest,
        ),
        (
            "Subscribe",
            "Consumer groups not compatible with ReadISRReplica",
            errors.InvalidRequest,
        ),
        ("Subscribe", "Unknown StartPosition 9", errors.InvalidRequest),
        ("Subscribe", "Unknown StopPosition 9", errors.InvalidRequest),
        ("SetCursor", "No cursorId provided", errors.InvalidRequest),
        ("FetchCursor", "No stream provided", errors.InvalidRequest),
        ("JoinConsumerGroup", "No groupId provided", errors.InvalidRequest),
    ],
    Code.ALREADY_EXISTS: [("CreateStream", "stream already exists", errors.StreamExists)],
    Code.NOT_FOUND: [
        ("DeleteStream", "stream does not exist", errors.StreamNotFound),
        ("PauseStream", "stream not found", errors.StreamNotFound),
        ("PauseStream", "partition does not exist", errors.PartitionNotFound),
        ("SetStreamReadonly", "stream not found", errors.StreamNotFound),
        ("SetStreamReadonly", "partition does not exist", errors.PartitionNotFound),
        ("Subscribe", "No such partition", errors.PartitionNotFound),
        ("Subscribe", "No such stream: partition-keeper", errors.StreamNotFound),
        ("Subscribe", "No such partition: 4", errors.PartitionNotFound),
        ("Subscribe", "commit log was deleted", errors.StreamDeleted),
        ("FetchPartitionMetadata", "partition not found", errors.PartitionNotFound),
        ("LeaveConsumerGroup", "consumer group does not exist", errors.NotFound),
        ("FetchConsumerGroupAssignments", "consumer group does not exist", errors.NotFound),
    ],
    Code.FAILED_PRECONDITION: [
        (
            "CreateStream",
            "Failed on preconditions for stream's encryption handler: no key",
            errors.EncryptionFailed,
        ),
        ("Subscribe", "Server not partition leader", errors.NotPartitionLeader),
        ("Subscribe", "Consumer is not currently assigned this partition", errors.ServerError),
        ("Subscribe", "commit log was closed", errors.ServerError),
        (
            "FetchPartitionMetadata",
            "The request should be sent to partition leader",
            errors.NotPartitionLeader,
        ),
        ("SetCursor", "Server not cursor partition leader", errors.NotPartitionLeader),
        ("FetchCursor", "Server not leader for cursors partition 2", errors.NotPartitionLeader),
        (
            "JoinConsumerGroup",
            "consumer is already a member of the consumer group",
            errors.ServerError,
        ),
        (
            "FetchConsumerGroupAssignments",
            "broker is not the consumer group coordinator",
            errors.ServerError,
        ),
    ],
    Code.INTERNAL: [
        ("CreateStream", "Failed to replicate partition: raft", errors.ServerError),
        ("CreateStream", "no known metadata leader", errors.NoMetadataLeader),
        ("DeleteStream", "nats: no responders available for request", errors.NoMetadataLeader),
        ("PauseStream", "Failed to pause stream: raft", errors.ServerError),
        ("Subscribe", "Failed to resume stream", errors.ServerError),
        ("Subscribe", "Failed to lookup offset for timestamp: EOF", errors.ServerError),
        ("Publish", "encryption failed", errors.EncryptionFailed),
        ("SetCursor", "Cursors stream does not exist", errors.CursorsUnavailable),
        ("SetCursor", "context deadline exceeded", errors.CursorsUnavailable),
        ("FetchCursor", "Cursors stream does not exist", errors.CursorsUnavailable),
        ("FetchCursor", "Cursors partition 2 does not exist", errors.CursorsUnavailable),
    ],
    Code.UNKNOWN: [
        (
            "CreateStream",
            "The client is not authorized to call CreateStream on resource foo",
            errors.PermissionDenied,
        ),
        ("FetchMetadata", "api: Failed to retrieve client ID", errors.PermissionDenied),
        ("Publish", "incorrect expected offset", errors.ServerError),
        ("PublishToSubject", "nats: connection closed", errors.ServerError),
    ],
    Code.RESOURCE_EXHAUSTED: [
        ("Subscribe", "a message of 9 bytes exceeds max_receive_bytes", errors.MessageTooLarge),
        ("Subscribe", "Stop offset reached", errors.ServerError),
    ],
    Code.UNAVAILABLE: [("FetchMetadata", "connection refused", errors.ConnectionFailed)],
    Code.DEADLINE_EXCEEDED: [("FetchMetadata", "no answer", errors.RequestTimeout)],
    Code.UNIMPLEMENTED: [("Subscribe", "unknown method", errors.UnsupportedByServer)],
    Code.PERMISSION_DENIED: [("Subscribe", "no", errors.PermissionDenied)],
    Code.UNAUTHENTICATED: [("Subscribe", "who?", errors.PermissionDenied)],
}

codes = st.sampled_from(Code)
reaches = st.sampled_from(Reach)
texts = st.text(max_size=20) | st.sampled_from(
    [text for rows in SAID.values() for _, text, _ in rows]
)
failures = st.builds(
    CallFailure,
    codes,
    texts,
    reaches,
    unusable=st.sampled_from([None, errors.NotLiftbridge, errors.TLSFailed]),
)


# Errors


@pytest.mark.parametrize(
    ("code", "call", "text", "kind"), [(code, *row) for code, rows in SAID.items() for row in rows]
)
def test_each_text_of_servers_has_its_error(
    code: Code, call: str, text: str, kind: type[LiftbridgeError]
) -> None:
    error = error_from(call, CallFailure(code, text), stream="orders", partition=3)
    assert type(error) is kind
    assert text in str(error)
    assert not str(error).startswith(call)
    assert (call in str(error)) == isinstance(error, errors.ServerError)
    assert (error.stream, error.partition) == ("orders", 3)


@given(st.sampled_from(CALLS), failures)
def test_every_failure_has_an_error_that_keeps_its_cause(call: str, failure: CallFailure) -> None:
    error = error_from(call, failure)
    assert isinstance(error, LiftbridgeError)
    assert error.__cause__ is failure
    assert failure.text in error.message
    if isinstance(error, errors.ServerError):
        assert error.code == failure.code.name


@pytest.mark.parametrize(
    ("reach", "reached"), [(Reach.NOT_SENT, False), (Reach.UNKNOWN, True), (Reach.ANSWERED, True)]
)
def test_a_connection_error_tells_whether_the_server_may_have_acted(
    reach: Reach, reached: bool
) -> None:
    error = error_from("DeleteStream", CallFailure(Code.UNAVAILABLE, "lost", reach))
    assert isinstance(error, errors.ConnectionFailed)
    assert error.reached_server is reached


def test_something_else_at_the_address_is_named_as_such() -> None:
    failure = CallFailure(Code.UNAVAILABLE, "Protocol error", unusable=errors.NotLiftbridge)
    assert type(error_from("FetchMetadata", failure)) is errors.NotLiftbridge


@given(failures)
def test_only_a_broker_that_says_so_counts_as_not_the_leader(failure: CallFailure) -> None:
    said = isinstance(error_from("Subscribe", failure), errors.NotPartitionLeader)
    assert not said or not_partition_leader(failure)
    assert not not_partition_leader(failure) or failure.code is Code.FAILED_PRECONDITION


# Retries


def test_the_groups_of_calls_are_calls_and_exclude_each_other() -> None:
    assert set(CALLS) >= READS | REPEATABLE
    assert not READS & REPEATABLE
    assert not IDEMPOTENT & set(REPEAT_SHOWS)


@given(st.sampled_from(CALLS), failures, st.booleans())
def test_what_was_not_sent_is_always_tried_again(
    call: str, failure: CallFailure, earlier_unknown: bool
) -> None:
    failure.reach = Reach.NOT_SENT
    assert remedy(call, failure, earlier_unknown=earlier_unknown) is Remedy.RETRY


@given(st.sampled_from(CHANGES), failures, st.booleans())
def test_a_change_of_unknown_outcome_is_repeated_only_where_safe(
    call: str, failure: CallFailure, earlier_unknown: bool
) -> None:
    advice = remedy(call, failure, earlier_unknown=earlier_unknown)
    says_not_done = not_partition_leader(failure) or (
        failure.code is Code.INTERNAL
        and failure.text
        in {"no known metadata leader", "nats: no responders available for request"}
    )
    refused = failure.reach is Reach.ANSWERED and says_not_done
    if failure.reach is not Reach.NOT_SENT and not refused and call not in REPEATABLE:
        assert advice is Remedy.RAISE


@given(st.sampled_from(sorted(READS | REPEATABLE)), codes, texts)
def test_a_call_that_may_be_repeated_is_repeated_when_no_answer_came(
    call: str, code: Code, text: str
) -> None:
    assert remedy(call, CallFailure(code, text, Reach.UNKNOWN)) is Remedy.RETRY


@pytest.mark.parametrize("call", sorted(set(CHANGES) - REPEATABLE))
@pytest.mark.parametrize("reach", [Reach.UNKNOWN, Reach.ANSWERED])
def test_other_changes_are_not_repeated_when_the_server_vanished(call: str, reach: Reach) -> None:
    assert remedy(call, CallFailure(Code.UNAVAILABLE, "gone", reach)) is Remedy.RAISE


@pytest.mark.parametrize("call", sorted(READS | REPEATABLE))
def test_a_server_that_says_it_is_unavailable_is_asked_again(call: str) -> None:
    assert remedy(call, CallFailure(Code.UNAVAILABLE, "closing")) is Remedy.RETRY


@given(st.sampled_from(CALLS), failures, st.booleans())
def test_only_a_repeat_counts_as_done_before(
    call: str, failure: CallFailure, earlier_unknown: bool
) -> None:
    advice = remedy(call, failure, earlier_unknown=earlier_unknown)
    done_before = (
        earlier_unknown
        and failure.reach is Reach.ANSWERED
        and REPEAT_SHOWS.get(call) is failure.code
    )
    assert (advice is Remedy.SUCCESS) == done_before


@given(failures)
def test_only_what_was_sent_may_have_been_done(failure: CallFailure) -> None:
    waited_for = failure.code is Code.INTERNAL and (
        "timed out" in failure.text or "timeout" in failure.text or "exceeded" in failure.text
    )
    open_codes = {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
    known = failure.reach is Reach.ANSWERED and not (waited_for or failure.code in open_codes)
    assert failure.may_have_acted == (failure.reach is not Reach.NOT_SENT and not known)


def test_a_join_that_raft_has_not_answered_may_have_made_the_group() -> None:
    """A server words it like a refusal then (metadata.go `JoinConsumerGroup`)."""
    failure = CallFailure(Code.FAILED_PRECONDITION, "raft operation timed out")
    assert failure.unanswered_by_raft
    assert group_refusal(failure) is GroupRefusal.LOST


@pytest.mark.parametrize(
    ("call", "code"),
    [("CreateStream", Code.ALREADY_EXISTS), ("DeleteStream", Code.NOT_FOUND)],
)
def test_an_earlier_try_that_went_through_unseen_is_a_success(call: str, code: Code) -> None:
    failure = CallFailure(code, "so it is")
    assert remedy(call, failure, earlier_unknown=True) is Remedy.SUCCESS
    assert remedy(call, failure) is Remedy.RAISE


@pytest.mark.parametrize(
    ("call", "code", "text", "advice"),
    [
        ("FetchPartitionMetadata", "FAILED_PRECONDITION", "should be sent to partition leader", 1),
        ("SetCursor", "FAILED_PRECONDITION", "Server not cursor partition leader", 1),
        ("FetchCursor", "FAILED_PRECONDITION", "not leader for cursors partition 1", 1),
        ("Subscribe", "FAILED_PRECONDITION", "Server not partition leader", 1),
        ("Subscribe", "FAILED_PRECONDITION", "Consumer is not currently assigned", 0),
        ("CreateStream", "INTERNAL", "no known metadata leader", 2),
        ("JoinConsumerGroup", "INTERNAL", "nats: no responders available", 2),
        ("FetchMetadata", "INTERNAL", "nats: outbound buffer limit exceeded", 2),
        ("SetCursor", "INTERNAL", "failed: nats: outbound buffer limit exceeded", 2),
        ("CreateStream", "INTERNAL", "Failed to replicate partition", 0),
        ("SetCursor", "INTERNAL", "context deadline exceeded", 2),
        ("SetCursor", "INTERNAL", "nats: timeout", 2),
        ("SetCursor", "INTERNAL", "Cursors stream does not exist", 1),
        ("FetchCursor", "INTERNAL", "Cursors stream does not exist", 1),
        ("SetCursor", "INTERNAL", "Failed to replicate partition", 0),
        ("CreateStream", "INTERNAL", "context deadline exceeded", 2),
        (
            "CreateStream",
            "INTERNAL",
            "Failed to replicate partition: raft operation timed out",
            2,
        ),
        ("PauseStream", "DEADLINE_EXCEEDED", "context deadline exceeded", 2),
        ("PublishToSubject", "INTERNAL", "nats: timeout", 0),
        ("CreateStream", "ALREADY_EXISTS", "stream already exists", 0),
        ("FetchMetadata", "DEADLINE_EXCEEDED", "context deadline exceeded", 2),
        ("CreateStream", "INVALID_ARGUMENT", "Subject is invalid", 0),
    ],
)
def test_each_answer_has_its_remedy(call: str, code: str, text: str, advice: int) -> None:
    expected = (Remedy.RAISE, Remedy.REFRESH, Remedy.RETRY)[advice]
    assert remedy(call, CallFailure(Code[code], text)) is expected


# Ends of subscriptions


@pytest.mark.parametrize(
    ("code", "text", "end"),
    [
        ("RESOURCE_EXHAUSTED", "Stop offset reached", StreamEnd.STOP_REACHED),
        ("RESOURCE_EXHAUSTED", "End of readonly partition", StreamEnd.READONLY),
        ("RESOURCE_EXHAUSTED", "Stream is empty", StreamEnd.EMPTY),
        (
            "INVALID_ARGUMENT",
            "Stop offset is before start offset: 3 < 4",
            StreamEnd.STOP_BEFORE_START,
        ),
        ("INTERNAL", "Failed to lookup offset for timestamp: EOF", StreamEnd.LOST),
        ("NOT_FOUND", "commit log was deleted", StreamEnd.DELETED),
        ("NOT_FOUND", "No such partition", StreamEnd.NOT_FOUND),
        ("NOT_FOUND", "No such stream: commit", StreamEnd.NOT_FOUND),
        ("FAILED_PRECONDITION", "commit log was closed", StreamEnd.PAUSED),
        ("INTERNAL", "commit log was closed", StreamEnd.LOST),
        (
            "INTERNAL",
            "Failed to create stream reader: segment has been closed",
            StreamEnd.LOG_CLOSED,
        ),
        ("FAILED_PRECONDITION", "Server not partition leader", StreamEnd.NOT_LEADER),
        (
            "FAILED_PRECONDITION",
            "Consumer is not currently assigned this partition",
            StreamEnd.FENCED,
        ),
        ("OK", "", StreamEnd.LOST),
        ("UNAVAILABLE", "transport is closing", StreamEnd.LOST),
        ("CANCELLED", "context canceled", StreamEnd.LOST),
        ("DEADLINE_EXCEEDED", "no handshake", StreamEnd.LOST),
        ("ABORTED", "", StreamEnd.LOST),
        ("INTERNAL", "Failed to resume stream", StreamEnd.LOST),
        ("INVALID_ARGUMENT", "Unknown StartPosition 9", StreamEnd.REFUSED),
        ("RESOURCE_EXHAUSTED", "a message exceeds max_receive_bytes", StreamEnd.REFUSED),
        ("UNKNOWN", "The client is not authorized to call Subscribe", StreamEnd.REFUSED),
        ("UNKNOWN", "EOF", StreamEnd.REFUSED),
        ("FAILED_PRECONDITION", "something new", StreamEnd.REFUSED),
        (
            "UNKNOWN",
            "failed to read message headers: segment has been closed",
            StreamEnd.LOST,
        ),
        ("UNKNOWN", "failed to read message headers: segment not found", StreamEnd.LOST),
    ],
)
def test_each_end_of_a_subscription_is_told_apart(code: str, text: str, end: StreamEnd) -> None:
    assert stream_end(CallFailure(Code[code], text)) is end


@pytest.mark.parametrize(
    ("code", "text", "end"),
    [
        ("UNKNOWN", "EOF", StreamEnd.REVERSE_DONE),
        ("INTERNAL", "segment not found", StreamEnd.REVERSE_DONE),
        ("INTERNAL", "EOF", StreamEnd.LOST),
        ("UNKNOWN", "unexpected EOF", StreamEnd.REFUSED),
        ("RESOURCE_EXHAUSTED", "Stop offset reached", StreamEnd.STOP_REACHED),
    ],
)
def test_reverse_subscriptions_have_an_end_of_their_own(
    code: str, text: str, end: StreamEnd
) -> None:
    assert stream_end(CallFailure(Code[code], text), reverse=True) is end


@given(failures, st.booleans())
def test_a_subscription_that_got_no_answer_is_lost_and_no_other_end(
    failure: CallFailure, reverse: bool
) -> None:
    end = stream_end(failure, reverse=reverse)
    if failure.reach is not Reach.ANSWERED:
        assert end is StreamEnd.LOST


@given(codes, texts)
def test_only_a_reverse_subscription_ends_like_one(code: Code, text: str) -> None:
    assert stream_end(CallFailure(code, text)) is not StreamEnd.REVERSE_DONE


# Consumer groups


@pytest.mark.parametrize(
    ("code", "text", "refusal"),
    [
        (Code.NOT_FOUND, "consumer group does not exist", GroupRefusal.NO_GROUP),
        (Code.FAILED_PRECONDITION, "No such consumer group g", GroupRefusal.NO_GROUP),
        (
            Code.FAILED_PRECONDITION,
            "consumer is not a member of the consumer group",
            GroupRefusal.NOT_A_MEMBER,
        ),
        (
            Code.FAILED_PRECONDITION,
            "Consumer c is not a member of consumer group g",
            GroupRefusal.NOT_A_MEMBER,
        ),
        (
            Code.FAILED_PRECONDITION,
            "client-provided group epoch differs from broker group epoch",
            GroupRefusal.OTHER_EPOCH,
        ),
        (
            Code.FAILED_PRECONDITION,
            "Coordinator generation mismatch, current coordinator: a epoch: 3, got …",
            GroupRefusal.OTHER_EPOCH,
        ),
        (
            Code.FAILED_PRECONDITION,
            "broker is not the consumer group coordinator",
            GroupRefusal.NOT_COORDINATOR,
        ),
        (
            Code.FAILED_PRECONDITION,
            "consumer is already a member of the consumer group",
            GroupRefusal.ALREADY_MEMBER,
        ),
        (Code.FAILED_PRECONDITION, "stream does not exist", GroupRefusal.NO_STREAM),
        (
            Code.FAILED_PRECONDITION,
            "No group coordinator candidates",
            GroupRefusal.NO_CANDIDATES,
        ),
        (Code.FAILED_PRECONDITION, "consumer group already exists", GroupRefusal.LOST),
        (Code.UNKNOWN, "consumer not active for server (no timer)", GroupRefusal.LOST),
        (Code.INTERNAL, "no known metadata leader", GroupRefusal.LOST),
        (Code.UNAVAILABLE, "gone", GroupRefusal.LOST),
        (Code.UNKNOWN, "The client is not authorized to call …", GroupRefusal.REFUSED),
        (Code.INVALID_ARGUMENT, "No groupId provided", GroupRefusal.REFUSED),
        (Code.UNIMPLEMENTED, "unknown method", GroupRefusal.REFUSED),
    ],
)
def test_what_a_server_says_of_a_group_has_a_meaning(
    code: Code, text: str, refusal: GroupRefusal
) -> None:
    assert group_refusal(CallFailure(code, text)) is refusal


def test_what_nobody_answered_may_be_asked_again() -> None:
    text = "consumer group does not exist"
    assert group_refusal(CallFailure(Code.NOT_FOUND, text, Reach.UNKNOWN)) is GroupRefusal.LOST
    other = CallFailure(Code.UNAVAILABLE, "", Reach.NOT_SENT, unusable=errors.NotLiftbridge)
    assert group_refusal(other) is GroupRefusal.REFUSED


@pytest.mark.parametrize(
    ("failure", "replaced"),
    [
        (CallFailure(Code.OK, ""), True),
        (CallFailure(Code.OK, "", Reach.UNKNOWN), False),
        (
            CallFailure(
                Code.FAILED_PRECONDITION, "Consumer is not currently assigned this partition"
            ),
            True,
        ),
        (CallFailure(Code.FAILED_PRECONDITION, "Server not partition leader"), False),
        (CallFailure(Code.UNAVAILABLE, "gone"), False),
    ],
)
def test_a_member_whose_partition_was_taken_is_told_apart(
    failure: CallFailure, replaced: bool
) -> None:
    assert replaced_in_group(failure) is replaced
