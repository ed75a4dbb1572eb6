"""One gRPC call on one connection: the only code that touches grpclib's client streams.

A call must be used from tasks that exist for it alone (see `Supervisor.call`), because grpclib
ends a broken call by cancelling the task that waits on it, and leaves that task's cancellation
count raised. The rules kept here, each against a hazard of grpclib 0.4.9:

- closing a call that the server has not ended resets it instead of waiting for its trailers;
- only one task writes to a call, since two would interleave their DATA frames;
- the length of a message is checked before it is awaited, as grpclib has no limit;
- the status that a server sent just before a reset or a lost connection is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self

from grpclib.client import Channel, Stream
from grpclib.const import Cardinality
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import H2Error

from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.errors import NotLiftbridge
from liftbridge_aio.wire.call_buffer import CallBuffer
from liftbridge_aio.wire.framing import PREFIX_BYTES
from liftbridge_aio.wire.rpc import Rpc

from .core.lane_stream import MessageFault, invalid_message
from .core.not_liftbridge import refine_failure

logger = logging.getLogger("liftbridge_aio.net")

FAULT_CODES: Final = {
    MessageFault.COMPRESSED: Code.INTERNAL,
    MessageFault.TOO_LONG: Code.RESOURCE_EXHAUSTED,
}
"""The status codes of gRPC for invalid messages."""

INCOMPLETE: Final = "the server ended the call in the middle of a message"


class Receiver(Protocol):
    """Receives the messages of a call, from callbacks of the event loop: no method may block.

    If `received` or `ended` raises, `broken` is called with the exception, and nothing after that.
    """

    @property
    def at_capacity(self) -> bool:
        """True to pause delivery. Read by `PlainCall` only: the data lane has flow control."""

    def received(self, messages: list[bytes]) -> None:
        """Receive the next messages, in order; the receiver may keep the list."""

    def ended(self, failure: CallFailure) -> None:
        """Receive the end of the call, once. `Code.OK`: the server ended it without an error."""

    def broken(self, error: Exception) -> None:
        """Pass the error to the user of this receiver. Must not raise."""


class BytesCodec(CodecBase):
    """Passes bytes through: encoding is done in `wire`."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: type[bytes]) -> bytes:  # noqa: ARG002 - grpclib's signature
        """Return the bytes."""
        return message

    def decode(self, data: bytes, message_type: type[bytes]) -> bytes:  # noqa: ARG002 - grpclib's signature
        """Return the bytes."""
        return data


class _Abandoned(Exception):
    """Makes grpclib reset a call that it leaves."""


_CARDINALITY: Final = {
    (False, False): Cardinality.UNARY_UNARY,
    (False, True): Cardinality.UNARY_STREAM,
    (True, False): Cardinality.STREAM_UNARY,
    (True, True): Cardinality.STREAM_STREAM,
}


class Call:
    """A call in progress; made by `BrokerConnection.open`."""

    def __init__(
        self,
        channel: Channel,
        rpc: Rpc[Any, Any],
        *,
        address: str,
        max_receive_bytes: int,
        timeout: float | None = None,
    ) -> None:
        self._call: Stream[bytes, bytes] = channel.request(
            rpc.path,
            _CARDINALITY[rpc.streams_requests, rpc.streams_replies],
            bytes,
            bytes,
            timeout=timeout,
        )
        self._name = rpc.name
        self._address = address
        self._max_receive_bytes = max_receive_bytes
        self._sent = False
        self._closed = False
        self.attempted = 0
        """Messages that were sent, or may have been sent."""

    async def __aenter__(self) -> Self:
        """Send the request's headers. Cancelling resets the call.

        Raises:
            CallFailure: the connection is gone or the deadline passed.
        """
        with self._translated():
            await self._call.__aenter__()
            try:
                await self._call.send_request()
                raw = self._call._stream  # noqa: SLF001 - pinned by a test
                assert raw.id is not None  # noqa: S101 - the headers are sent
                give_credit = partial(raw.connection.ack, raw.id)
                raw.buffer = CallBuffer(give_credit)  # type: ignore[assignment]
            except BaseException:
                self.close()
                raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the call; see `close`."""
        self.close()

    def close(self) -> None:
        """Close the call; if the server has not ended it, it is reset. Idempotent.

        Tasks that wait in `send` or `receive` get a `CallFailure`.
        """
        if self._closed:
            return
        self._closed = True
        closing = self._call.__aexit__(_Abandoned, _Abandoned(), None)
        with suppress(StopIteration):
            closing.send(None)  # with an error, grpclib waits for nothing
        wrapper = getattr(self._call, "_wrapper", None)
        if wrapper is not None:
            # Tasks may wait for credit or for a message, which will not come any more.
            wrapper.cancel(StreamTerminatedError("the call was closed"))

    async def send(self, messages: Sequence[bytes], *, end: bool = False) -> None:
        """Send messages; waits while the server gives no credit.

        After cancelling, some of them may be sent; close the call then.

        Raises:
            CallFailure: the call or the connection broke.
        """
        with self._translated():
            last = len(messages) - 1
            for number, message in enumerate(messages):
                # A lost connection shows here some iterations of the event loop before grpclib
                # raises, and further writes would fill the log with asyncio's warnings.
                if self._call._stream.connection.is_closing():  # noqa: SLF001 - pinned by a test
                    raise CallFailure(Code.UNAVAILABLE, "the connection broke", self._reach)
                self._sent = True
                self.attempted += 1
                await self._call.send_message(message, end=end and number == last)

    async def receive(self) -> bytes | None:
        """Wait for the next message; None once the server has ended the call with OK.

        Cancelling loses no message unless one was half read; close the call then.

        Raises:
            CallFailure: the server ended the call with an error, or the connection broke.
        """
        with self._translated():
            call = self._call
            if call.initial_metadata is None:
                await call.recv_initial_metadata()
            with call._wrapper:  # noqa: SLF001 - pinned by a test
                raw = call._stream  # noqa: SLF001 - same
                whole = True
                try:
                    prefix = await raw.recv_data(PREFIX_BYTES)
                    if prefix:
                        length = int.from_bytes(prefix[1:], "big")
                        self._check_prefix(prefix, length)
                        message = await raw.recv_data(length)
                        whole = len(message) == length
                        if whole:
                            return message
                except AssertionError:  # raised by grpclib where a stream ends within a
                    whole = False  # message; at the end of a stream it returns nothing
            self._check_status()
            if not whole:
                raise CallFailure(Code.INTERNAL, INCOMPLETE)
            return None

    def _check_status(self) -> None:
        """Raise the status that the server ended the call with, unless it is OK.

        Raises:
            GRPCError: the server's status.
            CallFailure: it ended the call without a status, for which grpclib would wait for ever.
        """
        raw = self._call._stream  # noqa: SLF001 - pinned by a test
        if raw.trailers is None and "grpc-status" not in dict(raw.headers or ()):
            raise CallFailure(Code.INTERNAL, "the server ended the call without a status")
        self._call._maybe_raise()  # noqa: SLF001 - same

    def _check_prefix(self, prefix: bytes, length: int) -> None:
        invalid = invalid_message(prefix[0], length, self._max_receive_bytes)
        if invalid is not None:
            raise CallFailure(FAULT_CODES[invalid.fault], invalid.text)

    def _deliver_messages(self, receiver: Receiver, messages: list[bytes]) -> bool:
        """Pass messages to a receiver; close the call and return False if it raises."""
        try:
            receiver.received(messages)
        except Exception as error:
            logger.exception("messages of %s could not be processed", self._name)
            receiver.broken(error)
            self.close()
            return False
        return True

    def _deliver_end(self, receiver: Receiver, failure: CallFailure) -> None:
        """Pass the end of the call to a receiver; if it raises, its user gets the error."""
        try:
            receiver.ended(failure)
        except Exception as error:
            logger.exception("the end of %s could not be processed", self._name)
            receiver.broken(error)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        task = asyncio.current_task()
        cancelling = 0 if task is None else task.cancelling()
        try:
            yield
        except CallFailure:
            raise
        except GRPCError as error:
            raise self._refined(failure_from(error)) from error
        except StreamTerminatedError as error:
            _undo_cancellations(task, cancelling)
            raise self._failure_of_broken_call(error) from error
        except TimeoutError as error:
            _undo_cancellations(task, cancelling)
            raise CallFailure(
                Code.DEADLINE_EXCEEDED, "no answer within the timeout", self._reach
            ) from error
        except (
            OSError,
            H2Error,
            ProtocolError,
            AssertionError,
            AttributeError,
            LookupError,
            ValueError,
        ) as error:
            # grpclib fails with assertions and missing attributes where a connection was torn down
            # under it, with the last two where headers are missing or invalid.
            raise CallFailure(
                Code.UNAVAILABLE, f"the connection broke: {error!r}", self._reach
            ) from error

    @property
    def _reach(self) -> Reach:
        return Reach.UNKNOWN if self._sent else Reach.NOT_SENT

    def _failure_of_broken_call(self, error: StreamTerminatedError) -> CallFailure:
        try:
            self._call._maybe_raise()  # noqa: SLF001 - pinned by a test
        except GRPCError as status:
            return self._refined(failure_from(status))
        except Exception:
            # It broke before there was a stream, or its trailers are invalid.
            logger.debug("a broken call has no status", exc_info=True)
        text = str(error)
        raw = getattr(self._call, "_stream", None)
        not_http2 = (raw is None or raw.headers is None) and "Protocol error" in text
        unusable = NotLiftbridge if not_http2 else None
        return self._refined(CallFailure(Code.UNAVAILABLE, text, self._reach, unusable=unusable))

    def _refined(self, failure: CallFailure) -> CallFailure:
        """Return the failure, or one that says that no Liftbridge server has answered."""
        raw = getattr(self._call, "_stream", None)
        headers = None if raw is None or raw.headers is None else dict(raw.headers)
        return refine_failure(failure, self._address, self._name, headers)


def _undo_cancellations(task: asyncio.Task[Any] | None, before: int) -> None:
    """Undo grpclib's cancellations, by which it wakes a task: one, or two if it disconnects."""
    while task is not None and task.cancelling() > before:
        task.uncancel()


def failure_from(error: GRPCError) -> CallFailure:
    """Return grpclib's error as a failure."""
    return CallFailure(Code(error.status.value), error.message or error.status.name)
