"""Makes messages of what users pass: checked, sized, in an envelope or plain. Nothing is sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping

from liftbridge_aio._core.arguments import INT64_MAX, check_bytes, check_text, check_whole_number
from liftbridge_aio._core.message_check import check_size, checked_policy
from liftbridge_aio._core.names import subject_problem
from liftbridge_aio.errors import InvalidRequest, MessageTooLarge
from liftbridge_aio.model import AckPolicy
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.wire.envelope import is_envelope
from liftbridge_aio.wire.envelope_batches import encode_envelope, publish_fields

from .core.destinations import Destination, check_subject
from .in_flight import MessageInFlight
from .link import NatsLink
from .options import NatsPublisherOptions


class MessageMaker:
    """Makes the messages of one publisher, each with an identity of its own."""

    def __init__(self, link: NatsLink, inbox: str, options: NatsPublisherOptions) -> None:
        """Make messages whose acks, and what else comes back, go to subjects under `inbox`."""
        self._link = link
        self._inbox = inbox
        self._ack_inbox = f"{inbox}.acks"
        self._fields = {policy: publish_fields(self._ack_inbox, policy) for policy in AckPolicy}
        self._detect_nobody = options.detect_nobody
        self._crc = options.crc
        self._max_bytes = options.max_message_bytes
        self._ack_timeout = timer_seconds(options.ack_timeout)
        self._loop = asyncio.get_running_loop()
        self._id_prefix = f"{secrets.token_hex(6)}-"
        self._id_count = 0

    def envelope(
        self,
        place: Destination,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
    ) -> MessageInFlight:
        """Make a message in an envelope; value, key and headers are checked already.

        Raises:
            InvalidRequest: it makes no sense.
            MessageTooLarge: it exceeds a limit.
        """
        policy = checked_policy(ack_policy)
        if expected_offset is None:
            fields = self._fields[policy]
        else:
            check_whole_number(expected_offset, "an expected offset", 0, INT64_MAX)
            if policy is AckPolicy.NONE:
                raise InvalidRequest(
                    "without an ack nobody learns whether the expected offset was the right one"
                )
            fields = publish_fields(self._ack_inbox, policy, expected_offset)
        token = self._next_id()
        if correlation_id is None:
            correlation_id = token
        else:
            check_text(correlation_id, "a correlation id")
            if not correlation_id:
                raise InvalidRequest("a correlation id must not be empty")
        data = encode_envelope(
            fields, value, correlation_id, key=key, headers=headers, crc=self._crc
        )
        message = self._message(place, policy, data, correlation_id)
        message.chosen = correlation_id != token
        if self._detect_nobody:
            message.reply = f"{self._inbox}.{token}"
        if ack_timeout is not None:
            message.ack_timeout = timer_seconds(ack_timeout, "ack_timeout")
        return message

    def plain(self, subject: str, value: bytes, reply: str) -> MessageInFlight:
        """Make a message of a value alone.

        Raises:
            InvalidRequest: it makes no sense, or would be taken for an envelope.
            MessageTooLarge: it exceeds a limit.
        """
        check_text(subject, "a subject")
        check_subject(subject)
        check_bytes(value, "a value")
        check_text(reply, "a reply subject")
        problem = subject_problem(reply) if reply else None
        if problem is not None:
            raise InvalidRequest(f"{reply!r} is no subject for replies: {problem}")
        if is_envelope(value):
            raise InvalidRequest(
                "servers unpack a value that begins like an envelope: use publish()"
            )
        message = self._message(Destination(subject, None, None), None, value, self._next_id())
        message.reply = reply
        return message

    def _message(
        self, place: Destination, policy: AckPolicy | None, data: bytes, correlation_id: str
    ) -> MessageInFlight:
        message = MessageInFlight(loop=self._loop)
        message.subject, stream, partition = place
        size = len(data)
        check_size(size, self._max_bytes, stream=stream, partition=partition)
        most = self._link.connection.max_payload
        if size > most:
            raise MessageTooLarge(
                f"a message of {size} bytes exceeds the max_payload of the NATS server ({most})",
                stream=stream,
                partition=partition,
            )
        message.stream = stream
        message.partition = partition
        message.policy = policy
        message.correlation_id = correlation_id
        message.data = data
        message.size = size
        message.reply = ""
        message.several = None
        message.chosen = False
        message.ack_timeout = self._ack_timeout
        message.handed_over_at = None
        return message

    def _next_id(self) -> str:
        self._id_count += 1
        return f"{self._id_prefix}{self._id_count}"
