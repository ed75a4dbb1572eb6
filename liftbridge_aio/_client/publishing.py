"""The publishing calls of the client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Unpack, cast, overload

from liftbridge_aio._core.arguments import check_text, check_type
from liftbridge_aio._core.foreign_cancellation import is_requested
from liftbridge_aio._core.message_check import check_acked
from liftbridge_aio._core.public_face import check_options, lists_options
from liftbridge_aio.errors import (
    ClientClosed,
    LiftbridgeError,
    PublishManyFailed,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
)
from liftbridge_aio.model import (
    Ack,
    Acked,
    AckedOptions,
    AckPolicy,
    ManyOptions,
    OutgoingMessage,
    PublishOptions,
    Record,
    UnackedOptions,
)
from liftbridge_aio.options import Duration, timer_seconds

from .base import ClientBase

logger = logging.getLogger("liftbridge_aio.publisher")

_FOREIGN_CANCELLATION: Final = (
    "the future of its ack was cancelled by something else, such as an interceptor"
)


class ClientPublishing(ClientBase):
    """Publishing, one message or many, acked or not."""

    _unchecked: frozenset[str] = frozenset()
    """Streams of which it was logged that servers do not check expected offsets in them."""

    @lists_options(AckedOptions, ack_policy=AckPolicy.LEADER)
    async def publish(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[AckedOptions],
    ) -> Ack:
        """Publish a message and wait for its ack.

        Cancelling takes the message back if it is not written yet; after that only the wait is
        abandoned.

        Args:
            stream: where to.
            value: the message.
            key: decides the partition if nothing else does, and what compaction keeps.
            headers: anything but `subject` and `reply`, which the server writes itself.
            options: all by keyword:

                - `partition`: the partition; beats every partitioner.
                - `partitioner`: chooses the partition; None: the client's, else by key, else 0.
                - `ack_policy`: when the server confirms, `AckPolicy.LEADER` or `AckPolicy.ALL`. For
                  the policy NONE there is `publish_unacked`.
                - `ack_timeout`: seconds from the write to the ack; None is the client's value.
                - `expected_offset`: the offset that the message must get; None: any. Servers check
                  it in streams with optimistic concurrency control, and ignore it in others; a
                  warning is logged, once per stream, if the ack shows that.
                - `correlation_id`: comes back in the ack; None: made here. Used again for another
                  message after an `AckTimeout`, it may be settled by the late ack of the first.
                - `retry`: send again when the outcome is unknown. **This may store the message
                  twice**, unless `expected_offset` is given: then the message at that offset is
                  read and compared.
                - `timeout`: seconds for everything; None is publish_timeout + ack_timeout.

        Raises:
            InvalidRequest: it cannot be sent like this; nothing was sent.
            PublishOutcomeUnknown: written, but not answered (`AckTimeout`: in time).
            PublishNotSent: not written (`PublishTimeout`: in time).
            IncorrectOffset: the expected offset was not the next one.
            StreamNotFound: no broker knows the stream.
            PartitionReadonly: the partition takes no messages.
            LiftbridgeError: the server refused it.
        """
        if options:
            check_options("Client.publish", options, AckedOptions)
            check_acked(options.get("ack_policy"))
        future = await self.publish_async(stream, value, key, headers, **options)
        try:
            return await future
        except asyncio.CancelledError as error:
            if is_requested():
                raise
            raise PublishOutcomeUnknown(_FOREIGN_CANCELLATION, stream=stream) from error

    @lists_options(UnackedOptions)
    async def publish_unacked(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[UnackedOptions],
    ) -> None:
        """Publish a message that no server acks, and return once it is written.

        This is the guide's policy NONE. The outcome is unknown: `flush` waits until the server has
        taken the message, and raises the refusals that it sent; the hook gets them, too. Cancelling
        takes the message back if it is not written yet.

        Arguments are those of `publish`, without those that concern the ack.

        Raises:
            InvalidRequest: it cannot be sent like this; nothing was sent.
            PublishNotSent: not written (`PublishTimeout`: in time).
            StreamNotFound: the partition depends on a stream that no broker knows.
        """
        if options:
            check_options("Client.publish_unacked", options, UnackedOptions)
        future = await self.publish_async(
            stream, value, key, headers, ack_policy=AckPolicy.NONE, **options
        )
        try:
            await future
        except asyncio.CancelledError as error:
            if is_requested():
                raise
            raise PublishOutcomeUnknown(_FOREIGN_CANCELLATION, stream=stream) from error

    @overload
    async def publish_async(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        **options: Unpack[AckedOptions],
    ) -> asyncio.Future[Ack]: ...

    @overload
    async def publish_async(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = ...,
        headers: Mapping[str, bytes] | None = ...,
        **options: Unpack[PublishOptions],
    ) -> asyncio.Future[Ack | None]: ...

    @lists_options(PublishOptions, ack_policy=AckPolicy.LEADER)
    async def publish_async(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        **options: Unpack[PublishOptions],
    ) -> asyncio.Future[Any]:
        """Publish a message and return the future of its ack, once there is room in the window.

        Arguments and errors are those of `publish`; what goes wrong before the message is
        registered is raised here, the rest by the future. With `AckPolicy.NONE` the result of the
        future is None, once the message is written. Cancelling this call leaves nothing behind;
        cancelling the future takes the message back if it is not written yet.
        """
        parts = self._parts
        future = None
        if parts is not None and not self._closed:
            future = parts.submit_now(stream, value, key, headers, options)
        if future is None:
            check_options("Client.publish_async", options, PublishOptions)
            message = OutgoingMessage(stream, value, key, headers, **options)
            future = await self._living.submit(message)
        expected = options.get("expected_offset") if options else None
        if expected is not None:
            future.add_done_callback(partial(self._check_offset, stream, expected))
        return future

    def _check_offset(self, stream: str, expected: int, future: asyncio.Future[Ack | None]) -> None:
        """Warn, once per stream, if an ack shows that the expected offset was not checked."""
        # Reading an exception that nobody has seen would hide it from `flush`.
        unseen = getattr(future, "_log_traceback", False)
        if future.cancelled() or unseen or future.exception():
            return
        ack = future.result()
        if ack is None or ack.offset == expected or stream in self._unchecked:
            return
        self._unchecked |= {stream}
        text = (
            "the server stored a message of stream %r at offset %d although expected_offset was"
            " %s: it does not check expected offsets in this stream, so retry= may store a message"
            " twice; create the stream with optimistic_concurrency_control=True"
        )
        logger.warning(text, stream, ack.offset, expected)

    @lists_options(ManyOptions, ack_policy=AckPolicy.LEADER)
    async def publish_many(
        self, stream: str, records: Iterable[bytes | Record], **options: Unpack[ManyOptions]
    ) -> list[Ack]:
        """Publish many messages, in order, and wait for all their acks.

        Cancelling takes back what is not written yet; for the rest only the wait is abandoned.

        Args:
            stream: where to.
            records: values, or records with key, headers and partition.
            options: as for `publish`; `timeout` is for all of them together.

        Returns:
            The acks in the order of the records.

        Raises:
            PublishManyFailed: not all were acked; its `outcomes` says which, its cause is the
                first error.
        """
        check_options("Client.publish_many", options, ManyOptions)
        check_acked(options.get("ack_policy"))
        check_text(stream, "a stream name")
        check_type(records, (Iterable,), "publish_many takes an iterable of values and records")
        ack_timeout = options.get("ack_timeout")
        if ack_timeout is not None:
            timer_seconds(ack_timeout, "ack_timeout")
        remaining = iter(records)
        loop = asyncio.get_running_loop()
        timeout = options.pop("timeout", None)
        deadline = None if timeout is None else loop.time() + timer_seconds(timeout, "timeout")
        futures: list[asyncio.Future[Ack]] = []
        unsent: list[Exception] = []
        try:
            for item in remaining:
                try:
                    record = item if isinstance(item, Record) else Record(item)
                    if deadline is not None:
                        options["timeout"] = max(deadline - loop.time(), 0)
                    future = await self.publish_async(
                        stream,
                        record.value,
                        record.key,
                        record.headers,
                        partition=record.partition,
                        **options,
                    )
                except Exception as error:
                    if not futures and isinstance(error, ClientClosed):
                        raise
                    # What follows must not overtake the record that failed.
                    text = "not sent, because a record before it could not be"
                    unsent = [error, *(PublishNotSent(text, stream=stream) for _ in remaining)]
                else:
                    futures.append(future)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        outcomes: list[Ack | BaseException] = [
            *await asyncio.gather(*futures, return_exceptions=True),
            *unsent,
        ]
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            first = failed[0]
            said = first.message if isinstance(first, LiftbridgeError) else repr(first)
            text = f"{len(failed)} of {len(outcomes)} messages were not acked, the first: {said}"
            summary = PublishManyFailed(text, stream=stream)
            summary.outcomes = outcomes
            raise summary from first
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    async def flush(self, *, timeout: Duration | None = None) -> None:
        """Wait until every publish so far is settled.

        With ack policy NONE settled means that the server has taken the message out of the
        connection, not that it is stored. Cancelling abandons the wait.

        Args:
            timeout: seconds for everything; None waits as long as the messages may take.

        Raises:
            LiftbridgeError: the first error since the last flush that nobody has seen; a note on
                it says how many more there were.
            RequestTimeout: not all were settled in time.
        """
        parts = self._living
        limit = None if timeout is None else timer_seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                await parts.retrying.settle()
                await parts.publisher.flush()
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            raise RequestTimeout(f"not every publish was settled within {limit:g} s") from None

    async def publish_to_subject(
        self,
        subject: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        *,
        ack_policy: Acked = AckPolicy.LEADER,
        ack_inbox: str | None = None,
        correlation_id: str | None = None,
        timeout: Duration | None = None,
    ) -> Ack:
        """Publish to a NATS subject, and so to every stream that is attached to it.

        The first ack counts, whichever stream it comes from. Paused partitions do not get the
        message, and streams with optimistic concurrency control refuse it unless they are empty.
        Cancelling abandons the wait.

        Args:
            subject: without wildcards.
            value: the message.
            key: its key.
            headers: anything but `subject` and `reply`.
            ack_policy: when a server confirms, `AckPolicy.LEADER` or `AckPolicy.ALL`. For the
                policy NONE there is `publish_unacked_to_subject`.
            ack_inbox: a NATS subject to which acks go too; None: the server's own.
            correlation_id: comes back in the ack.
            timeout: seconds to wait for the ack; None is the client's ack_timeout.

        Raises:
            InvalidRequest: it cannot be sent like this.
            AckTimeout: no ack came in time; perhaps no stream listens.
            PublishOutcomeUnknown: the connection broke before the ack.
            IncorrectOffset: a stream with optimistic concurrency control refused it.
        """
        check_acked(ack_policy)
        from liftbridge_aio._publish.subject import publish_to_subject  # noqa: PLC0415 - imports the network

        ack = await publish_to_subject(
            self._living.network,
            subject,
            value,
            key=key,
            headers=headers,
            ack_policy=ack_policy,
            ack_inbox=ack_inbox,
            correlation_id=correlation_id,
            max_message_bytes=self.options.max_message_bytes,
            timeout=self._ack_seconds(timeout),
        )
        return cast("Ack", ack)  # as the policy is not NONE

    async def publish_unacked_to_subject(
        self,
        subject: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Publish to a NATS subject without asking for acks: the guide's policy NONE.

        It returns once the server has sent the message. Nothing tells whether a stream stored it.
        Arguments and errors are those of `publish_to_subject`. Cancelling abandons the wait.
        """
        from liftbridge_aio._publish.subject import publish_to_subject  # noqa: PLC0415 - imports the network

        await publish_to_subject(
            self._living.network,
            subject,
            value,
            key=key,
            headers=headers,
            ack_policy=AckPolicy.NONE,
            max_message_bytes=self.options.max_message_bytes,
            timeout=self._ack_seconds(timeout),
        )

    def _ack_seconds(self, timeout: Duration | None) -> float:
        return timer_seconds(self.options.ack_timeout if timeout is None else timeout, "timeout")
