from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import errors
from liftbridge_aio._publish.refusals import PublishCode, publish_error, stream_unknown
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.wire import proto


def test_the_codes_are_those_of_the_wire() -> None:
    assert {code.name: code.value for code in PublishCode} == {
        code.name: code.value for code in proto.PublishAsyncErrorCode
    }


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (PublishCode.UNKNOWN, "something", errors.PublishRefused),
        (
            PublishCode.BAD_REQUEST,
            "stream with concurrency control must have AckPolicy set",
            errors.PublishRefused,
        ),
        (
            PublishCode.BAD_REQUEST,
            "message exceeds max replication size",
            errors.MessageTooLarge,
        ),
        (PublishCode.INTERNAL, "nats: maximum payload exceeded", errors.MessageTooLarge),
        (PublishCode.INTERNAL, "nats: connection closed", errors.PublishRefused),
        (PublishCode.NOT_FOUND, "no such stream: orders", errors.StreamNotFound),
        (PublishCode.NOT_FOUND, "no such stream: partitions", errors.StreamNotFound),
        (PublishCode.NOT_FOUND, "no such partition: 7", errors.PartitionNotFound),
        (PublishCode.READONLY, "readonly partition: 7", errors.PartitionReadonly),
        (PublishCode.INCORRECT_OFFSET, "incorrect expected offset", errors.IncorrectOffset),
        (PublishCode.ENCRYPTION_FAILED, "no key", errors.EncryptionFailed),
        (PublishCode.PERMISSION_DENIED, "not authorized", errors.PermissionDenied),
    ],
)
def test_each_refusal_has_its_error(code: int, text: str, kind: type[LiftbridgeError]) -> None:
    error = publish_error(code, text)
    assert type(error) is kind
    assert text in str(error)


@given(st.integers(-(2**31), 2**31 - 1) | st.sampled_from(PublishCode), st.text(max_size=20))
def test_codes_of_future_servers_are_errors_too(code: int, text: str) -> None:
    error = publish_error(code, text)
    assert isinstance(error, LiftbridgeError)
    assert text in error.message


@pytest.mark.parametrize(("code", "name"), [(0, "UNKNOWN"), (3, "INTERNAL"), (99, "99")])
def test_a_refusal_without_a_type_of_its_own_names_its_code(code: int, name: str) -> None:
    error = publish_error(code, "no")
    assert isinstance(error, errors.PublishRefused)
    assert error.code == name


@pytest.mark.parametrize("stream", ["orders", "partition", "no such partition"])
def test_an_unknown_stream_may_soon_be_known_whatever_its_name(stream: str) -> None:
    assert stream_unknown(PublishCode.NOT_FOUND, f"no such stream: {stream}")


def test_an_unknown_partition_is_final() -> None:
    assert not stream_unknown(PublishCode.NOT_FOUND, "no such partition: 3")


@given(st.integers(0, 99).filter(lambda code: code != PublishCode.NOT_FOUND))
def test_no_other_code_means_an_unknown_stream(code: int) -> None:
    assert not stream_unknown(code, "no such stream: orders")
