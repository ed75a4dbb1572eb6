from __future__ import annotations

from typing import Final

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

SAID: Final = """
INVALID_ARGUMENT CreateStream InvalidRequest Name cannot be empty
INVALID_ARGUMENT CreateStream InvalidRequest Subject is invalid
INVALID_ARGUMENT CreateStream StreamReserved Stream is reserved
INVALID_ARGUMENT CreateStream InvalidRequest Invalid replicationFactor 5, cluster size 1
INVALID_ARGUMENT CreateStream InvalidRequest no partitions provided
INVALID_ARGUMENT DeleteStream StreamReserved Stream is reserved
INVALID_ARGUMENT Subscribe InvalidRequest Stop offset is before start offset: 3 < 4
INVALID_ARGUMENT Subscribe InvalidRequest Consumer id cannot be empty when group id is provided
INVALID_ARGUMENT Subscribe InvalidRequest Consumer groups not compatible with ReadISRReplica
INVALID_ARGUMENT Subscribe InvalidRequest Unknown StartPosition 9
INVALID_ARGUMENT Subscribe InvalidRequest Unknown StopPosition 9
INVALID_ARGUMENT SetCursor InvalidRequest No cursorId provided
INVALID_ARGUMENT FetchCursor InvalidRequest No stream provided
INVALID_ARGUMENT JoinConsumerGroup InvalidRequest No groupId provided
ALREADY_EXISTS CreateStream StreamExists stream already exists
NOT_FOUND DeleteStream StreamNotFound stream does not exist
NOT_FOUND PauseStream StreamNotFound stream not found
NOT_FOUND PauseStream PartitionNotFound partition does not exist
NOT_FOUND SetStreamReadonly StreamNotFound stream not found
NOT_FOUND SetStreamReadonly PartitionNotFound partition does not exist
NOT_FOUND Subscribe PartitionNotFound No such partition
NOT_FOUND Subscribe StreamNotFound No such stream: partition-keeper
NOT_FOUND Subscribe PartitionNotFound No such partition: 4
NOT_FOUND Subscribe StreamDeleted commit log was deleted
NOT_FOUND FetchPartitionMetadata PartitionNotFound partition not found
NOT_FOUND LeaveConsumerGroup NotFound consumer group does not exist
NOT_FOUND FetchConsumerGroupAssignments NotFound consumer group does not exist
FAILED_PRECONDITION CreateStream EncryptionFailed preconditions for stream's encryption handler
FAILED_PRECONDITION Subscribe NotPartitionLeader Server not partition leader
FAILED_PRECONDITION Subscribe ServerError Consumer is not currently assigned this partition
FAILED_PRECONDITION Subscribe ServerError commit log was closed
FAILED_PRECONDITION FetchPartitionMetadata NotPartitionLeader should be sent to partition leader
FAILED_PRECONDITION SetCursor NotPartitionLeader Server not cursor partition leader
FAILED_PRECONDITION FetchCursor NotPartitionLeader Server not leader for cursors partition 2
FAILED_PRECONDITION JoinConsumerGroup ServerError consumer is already a member of the consumer group
FAILED_PRECONDITION FetchConsumerGroupAssignments ServerError is not the consumer group coordinator
INTERNAL CreateStream ServerError Failed to replicate partition: raft
INTERNAL CreateStream NoMetadataLeader no known metadata leader
INTERNAL DeleteStream NoMetadataLeader nats: no responders available for request
INTERNAL PauseStream ServerError Failed to pause stream: raft
INTERNAL Subscribe ServerError Failed to resume stream
INTERNAL Subscribe ServerError Failed to lookup offset for timestamp: EOF
INTERNAL Publish EncryptionFailed encryption failed
INTERNAL SetCursor CursorsUnavailable Cursors stream does not exist
INTERNAL SetCursor CursorsUnavailable context deadline exceeded
INTERNAL FetchCursor CursorsUnavailable Cursors stream does not exist
INTERNAL FetchCursor CursorsUnavailable Cursors partition 2 does not exist
UNKNOWN CreateStream PermissionDenied client is not authorized to call CreateStream on resource foo
UNKNOWN FetchMetadata PermissionDenied api: Failed to retrieve client ID
UNKNOWN Publish ServerError incorrect expected offset
UNKNOWN PublishToSubject ServerError nats: connection closed
RESOURCE_EXHAUSTED Subscribe MessageTooLarge a message of 9 bytes exceeds max_receive_bytes
RESOURCE_EXHAUSTED Subscribe ServerError Stop offset reached
UNAVAILABLE FetchMetadata ConnectionFailed connection refused
DEADLINE_EXCEEDED FetchMetadata RequestTimeout no answer
UNIMPLEMENTED Subscribe UnsupportedByServer unknown method
PERMISSION_DENIED Subscribe PermissionDenied no
UNAUTHENTICATED Subscribe PermissionDenied who?
"""
"""Code, call, the error that users see, and the text of the server."""


def rows(table: str, columns: int) -> list[list[str]]:
    """Split each line of a table; the last column may have blanks, and `-` is an empty text."""
    split = [line.split(maxsplit=columns - 1) for line in table.split("\n")[1:-1]]
    return [["" if cell == "-" else cell for cell in row] for row in split]


codes = st.sampled_from(Code)
reaches = st.sampled_from(Reach)
texts = st.text(max_size=20) | st.sampled_from([text for *_, text in rows(SAID, 4)])
failures = st.builds(
    CallFailure,
    codes,
    texts,
    reaches,
    unusable=st.sampled_from([None, errors.NotLiftbridge, errors.TLSFailed]),
)


# Errors


@pytest.mark.parametrize(("code", "call", "kind", "text"), rows(SAID, 4))
def test_each_text_of_servers_has_its_error(code: str, call: str, kind: str, text: str) -> None:
    error = error_from(call, CallFailure(Code[code], text), stream="orders", partition=3)
    assert type(error) is getattr(errors, kind)
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


REMEDIES: Final = """
FetchPartitionMetadata FAILED_PRECONDITION REFRESH should be sent to partition leader
SetCursor              FAILED_PRECONDITION REFRESH Server not cursor partition leader
FetchCursor            FAILED_PRECONDITION REFRESH not leader for cursors partition 1
Subscribe              FAILED_PRECONDITION REFRESH Server not partition leader
Subscribe              FAILED_PRECONDITION RAISE   Consumer is not currently assigned
CreateStream           INTERNAL            RETRY   no known metadata leader
JoinConsumerGroup      INTERNAL            RETRY   nats: no responders available
FetchMetadata          INTERNAL            RETRY   nats: outbound buffer limit exceeded
SetCursor              INTERNAL            RETRY   failed: nats: outbound buffer limit exceeded
CreateStream           INTERNAL            RAISE   Failed to replicate partition
SetCursor              INTERNAL            RETRY   context deadline exceeded
SetCursor              INTERNAL            RETRY   nats: timeout
SetCursor              INTERNAL            REFRESH Cursors stream does not exist
FetchCursor            INTERNAL            REFRESH Cursors stream does not exist
SetCursor              INTERNAL            RAISE   Failed to replicate partition
CreateStream           INTERNAL            RETRY   context deadline exceeded
CreateStream           INTERNAL            RETRY   replicate partition: raft operation timed out
PauseStream            DEADLINE_EXCEEDED   RETRY   context deadline exceeded
PublishToSubject       INTERNAL            RAISE   nats: timeout
CreateStream           ALREADY_EXISTS      RAISE   stream already exists
FetchMetadata          DEADLINE_EXCEEDED   RETRY   context deadline exceeded
CreateStream           INVALID_ARGUMENT    RAISE   Subject is invalid
"""
"""Call, code, what to do, and the text of the server."""


@pytest.mark.parametrize(("call", "code", "advice", "text"), rows(REMEDIES, 4))
def test_each_answer_has_its_remedy(call: str, code: str, advice: str, text: str) -> None:
    assert remedy(call, CallFailure(Code[code], text)) is Remedy[advice]


# Ends of subscriptions


ENDS: Final = """
RESOURCE_EXHAUSTED  STOP_REACHED      Stop offset reached
RESOURCE_EXHAUSTED  READONLY          End of readonly partition
RESOURCE_EXHAUSTED  EMPTY             Stream is empty
INVALID_ARGUMENT    STOP_BEFORE_START Stop offset is before start offset: 3 < 4
INTERNAL            LOST              Failed to lookup offset for timestamp: EOF
NOT_FOUND           DELETED           commit log was deleted
NOT_FOUND           NOT_FOUND         No such partition
NOT_FOUND           NOT_FOUND         No such stream: commit
FAILED_PRECONDITION PAUSED            commit log was closed
INTERNAL            LOST              commit log was closed
INTERNAL            LOG_CLOSED        Failed to create stream reader: segment has been closed
FAILED_PRECONDITION NOT_LEADER        Server not partition leader
FAILED_PRECONDITION FENCED            Consumer is not currently assigned this partition
OK                  LOST              -
UNAVAILABLE         LOST              transport is closing
CANCELLED           LOST              context canceled
DEADLINE_EXCEEDED   LOST              no handshake
ABORTED             LOST              -
INTERNAL            LOST              Failed to resume stream
INVALID_ARGUMENT    REFUSED           Unknown StartPosition 9
RESOURCE_EXHAUSTED  REFUSED           a message exceeds max_receive_bytes
UNKNOWN             REFUSED           The client is not authorized to call Subscribe
UNKNOWN             REFUSED           EOF
FAILED_PRECONDITION REFUSED           something new
UNKNOWN             LOST              failed to read message headers: segment has been closed
UNKNOWN             LOST              failed to read message headers: segment not found
"""
"""Code, what the end means, and the text of the server."""


@pytest.mark.parametrize(("code", "end", "text"), rows(ENDS, 3))
def test_each_end_of_a_subscription_is_told_apart(code: str, end: str, text: str) -> None:
    assert stream_end(CallFailure(Code[code], text)) is StreamEnd[end]


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


OF_GROUPS: Final = """
NOT_FOUND NO_GROUP consumer group does not exist
FAILED_PRECONDITION NO_GROUP No such consumer group g
FAILED_PRECONDITION NOT_A_MEMBER consumer is not a member of the consumer group
FAILED_PRECONDITION NOT_A_MEMBER Consumer c is not a member of consumer group g
FAILED_PRECONDITION OTHER_EPOCH client-provided group epoch differs from broker group epoch
FAILED_PRECONDITION OTHER_EPOCH Coordinator generation mismatch, current coordinator: a epoch: 3
FAILED_PRECONDITION NOT_COORDINATOR broker is not the consumer group coordinator
FAILED_PRECONDITION ALREADY_MEMBER consumer is already a member of the consumer group
FAILED_PRECONDITION NO_STREAM stream does not exist
FAILED_PRECONDITION NO_CANDIDATES No group coordinator candidates
FAILED_PRECONDITION LOST consumer group already exists
UNKNOWN LOST consumer not active for server (no timer)
INTERNAL LOST no known metadata leader
UNAVAILABLE LOST gone
UNKNOWN REFUSED The client is not authorized to call …
INVALID_ARGUMENT REFUSED No groupId provided
UNIMPLEMENTED REFUSED unknown method
"""
"""Code, what it means, and the text of the server."""


@pytest.mark.parametrize(("code", "refusal", "text"), rows(OF_GROUPS, 3))
def test_what_a_server_says_of_a_group_has_a_meaning(code: str, refusal: str, text: str) -> None:
    assert group_refusal(CallFailure(Code[code], text)) is GroupRefusal[refusal]


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
