"""Publishing to a NATS subject, and so to every stream that is attached to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from liftbridge_aio._core.arguments import check_optional_text, check_text
from liftbridge_aio._core.message_check import check_content, check_size, checked_policy
from liftbridge_aio._core.names import subject_problem
from liftbridge_aio.errors import (
    AckTimeout,
    ConnectionFailed,
    InvalidRequest,
    PublishOutcomeUnknown,
    RequestTimeout,
)
from liftbridge_aio.model import Ack, AckError, AckPolicy
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import ack_from_wire
from liftbridge_aio.wire.rpc import PUBLISH_TO_SUBJECT

from .refusals import PublishCode, publish_error


async def publish_to_subject(
    network: Network,
    subject: str,
    value: bytes,
    *,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    ack_policy: AckPolicy,
    max_message_bytes: int,
    timeout: float,
    ack_inbox: str | None = None,
    correlation_id: str | None = None,
) -> Ack | None:
    """Publish to a NATS subject; see `Client.publish_to_subject`.

    Returns:
        The first ack; None if none is asked for.
    """
    check_text(subject, "a subject")
    check_optional_text(ack_inbox, "an ack inbox")
    ack_policy = checked_policy(ack_policy)
    inbox_problem = subject_problem(ack_inbox) if ack_inbox else None
    if inbox_problem is not None:
        raise InvalidRequest(f"{ack_inbox!r} is no ack inbox: {inbox_problem}")
    check_optional_text(correlation_id, "a correlation id")
    problem = subject_problem(subject)
    if problem is not None or "*" in subject or ">" in subject:
        raise InvalidRequest(
            f"{subject!r} is no subject to publish to: {problem or 'it has wildcards'}"
        )
    check_content(value, key, headers)
    request = proto.PublishToSubjectRequest(
        subject=subject,
        value=value,
        key=key or b"",
        headers=dict(headers or {}),
        ack_policy=proto.AckPolicy(ack_policy),
        ack_inbox=ack_inbox or "",
        correlation_id=correlation_id or "",
    )
    check_size(len(bytes(request)), max_message_bytes)
    try:
        # The deadline goes along: without one the server neither waits nor acks.
        reply = await network.router.call_any(PUBLISH_TO_SUBJECT, request, timeout)
    except RequestTimeout as error:
        raise AckTimeout(
            f"no ack for the message to subject {subject!r} within {timeout:g} s"
        ) from error
    except ConnectionFailed as error:
        if error.reached_server:
            raise PublishOutcomeUnknown(
                f"the connection broke before the ack for subject {subject!r} came"
            ) from error
        raise
    if ack_policy is AckPolicy.NONE:
        return None
    if reply.ack is None:
        raise PublishOutcomeUnknown(f"the answer for subject {subject!r} has no ack")
    ack = ack_from_wire(reply.ack)
    if ack.ack_error is not AckError.OK:
        # A nack comes with the status OK here.
        code = _NACK_CODES.get(ack.ack_error, PublishCode.UNKNOWN)
        raise publish_error(code, f"the ack says {ack.ack_error.name}").at(ack.stream)
    return ack


_NACK_CODES: Final = {
    AckError.INCORRECT_OFFSET: PublishCode.INCORRECT_OFFSET,
    AckError.TOO_LARGE: PublishCode.BAD_REQUEST,
    AckError.ENCRYPTION: PublishCode.ENCRYPTION_FAILED,
}
