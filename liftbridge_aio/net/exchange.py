"""One gRPC call on one connection: the only code that touches grpclib's client streams.

An exchange must be used from tasks that exist for it alone (see `Supervisor.call`), because
grpclib ends a broken call by cancelling whatever task waits on it and leaves that task's
cancellation count raised. The rules kept here, each against a hazard of grpclib 0.4.9:

- leaving a call that the server has not ended resets it instead of waiting for its trailers;
- only one task writes to an exchange, since two would interleave their DATA frames;
- the length of a message is checked before it is awaited, as grpclib has no limit;
- the status that a server sent just before a reset or a lost connection is not forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from grpclib.client import Channel, Stream
from grpclib.const import Cardinality
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import H2Error

from liftbridge_aio.errors import NotLiftbridge
from liftbridge_aio.status import CallFailure, Code, Reach
from liftbridge_aio.wire.framing import PREFIX_BYTES
from liftbridge_aio.wire.receive_buffer import ReceiveBuffer
from liftbridge_aio.wire.rpc import Rpc

from .receiver import Receiver

logger = logging.getLogger("liftbridge_aio.net")

INCOMPLETE: Final = "the server ended the call in the middle of a message"


class BytesCodec(CodecBase):
    """Hands bytes through: encoding is the business of `wire`."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: type[bytes]) -> bytes:  # noqa: ARG002 - grpclib's face
        """Return the bytes."""
        return message

    def decode(self, data: bytes, message_type: type[bytes]) -> bytes:  # noqa: ARG002 - grpclib's face
        """Return the bytes."""
        return data


class _Abandoned(Exception):
    """Makes grpclib leave a call by resetting it."""


_CARDINALITY: Final = {
    (False, False): Cardinality.UNARY_UNARY,
    (False, True): Cardinality.UNARY_STREAM,
    (True, False): Cardinality.STREAM_UNARY,
    (True, True): Cardinality.STREAM_STREAM,
}


class Exchange:
    """A call in progress; made by `Link.open`."""

    def __init__(
        self,
        channel: Channel,
        rpc: Rpc[Any, Any],
        *,
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
        self._max_receive_bytes = max_receive_bytes
        self._sent = False
        self._left = False
        self.attempted = 0
        """Messages that went out, or may have; what `send` did not get to is not among them."""

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
                raw.buffer = ReceiveBuffer(give_credit)  # type: ignore[assignment]
            except BaseException:
                self.leave()
                raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the call; see `leave`."""
        self.leave()

    def leave(self) -> None:
        """Leave the call; if the server has not ended it, it is reset. May be called again.

        Who waits in `send` or `receive` gets a `CallFailure`.
        """
        if self._left:
            return
        self._left = True
        leaving = self._call.__aexit__(_Abandoned, _Abandoned(), None)
        with suppress(StopIteration):
            leaving.send(None)  # left by an error, grpclib has nothing to wait for
        wrapper = getattr(self._call, "_wrapper", None)
        if wrapper is not None:
            # Others may wait for credit or for a message, which will not come any more.
            wrapper.cancel(StreamTerminatedError("the call was left"))

    async def send(self, messages: Sequence[bytes], *, end: bool = False) -> None:
        """Send messages; waits while the server gives no credit.

        Cancelling may leave some of them sent, and the exchange must be left then.

        Raises:
            CallFailure: the call or the connection broke.
        """
        with self._translated():
            last = len(messages) - 1
            for number, message in enumerate(messages):
                # A lost connection shows here some rounds of the event loop before grpclib says
                # so, and writing on would fill the log with asyncio's warnings.
                if self._call._stream.connection.is_closing():  # noqa: SLF001 - pinned by a test
                    raise CallFailure(Code.UNAVAILABLE, "the connection broke", self._reach)
                self._sent = True
                self.attempted += 1
                await self._call.send_message(message, end=end and number == last)

    async def receive(self) -> bytes | None:
        """Wait for the next message; None once the server has ended the call with OK.

        Cancelling loses no message unless one was half read; leave the exchange then.

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
                except AssertionError:  # how grpclib tells that a stream has ended too early,
                    whole = False  # unless it has just nothing more: then it gives nothing
            self._check_status()
            if not whole:
                raise CallFailure(Code.INTERNAL, INCOMPLETE)
            return None

    def _check_status(self) -> None:
        """Raise what the server ended the call with, unless that is OK.

        Raises:
            GRPCError: the server's words.
            CallFailure: it ended the call without a status, for which grpclib would wait for ever.
        """
        raw = self._call._stream  # noqa: SLF001 - pinned by a test
        if raw.trailers is None and "grpc-status" not in dict(raw.headers or ()):
            raise CallFailure(Code.INTERNAL, "the server ended the call without a status")
        self._call._maybe_raise()  # noqa: SLF001 - same

    def _check_prefix(self, prefix: bytes, length: int) -> None:
        if prefix[0]:
            text = "the server sent a compressed message, which was not agreed upon"
            raise CallFailure(Code.INTERNAL, text)
        if length > self._max_receive_bytes:
            most = self._max_receive_bytes
            text = f"a message of {length} bytes exceeds max_receive_bytes, here {most}"
            raise CallFailure(Code.RESOURCE_EXHAUSTED, text)

    def _hand_over(self, receiver: Receiver, messages: list[bytes]) -> CallFailure | None:
        """Give messages to a receiver; a fault of its own ends the call, and nothing else."""
        try:
            receiver.received(messages)
        except Exception as error:
            logger.exception("what came on a call could not be taken in")
            failure = CallFailure(Code.INTERNAL, f"a fault of the client: {error!r}", Reach.UNKNOWN)
            failure.__cause__ = error
            return failure
        return None

    def _hand_over_end(self, receiver: Receiver, failure: CallFailure) -> None:
        """Tell a receiver of the end; a fault of its own harms nobody else."""
        try:
            receiver.ended(failure)
        except Exception:
            logger.exception("the end of a call could not be taken in")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        task = asyncio.current_task()
        cancelling = 0 if task is None else task.cancelling()
        try:
            yield
        except CallFailure:
            raise
        except GRPCError as error:
            raise failure_from(error) from error
        except StreamTerminatedError as error:
            _take_back_cancellations(task, cancelling)
            raise self._failure_of_broken_call(error) from error
        except TimeoutError as error:
            _take_back_cancellations(task, cancelling)
            text = "no answer within the timeout"
            raise CallFailure(Code.DEADLINE_EXCEEDED, text, self._reach) from error
        except (
            OSError,
            H2Error,
            ProtocolError,
            AssertionError,
            AttributeError,
            LookupError,
            ValueError,
        ) as error:
            # Assertions and missing attributes are how grpclib meets a connection that was torn
            # down under it, the last two how it meets headers that are missing or make no sense.
            text = f"the connection broke: {error!r}"
            raise CallFailure(Code.UNAVAILABLE, text, self._reach) from error

    @property
    def _reach(self) -> Reach:
        return Reach.UNKNOWN if self._sent else Reach.NOT_SENT

    def _failure_of_broken_call(self, error: StreamTerminatedError) -> CallFailure:
        try:
            self._call._maybe_raise()  # noqa: SLF001 - pinned by a test
        except GRPCError as status:
            return failure_from(status)
        except AttributeError:
            pass  # broke before there was a stream
        text = str(error)
        raw = getattr(self._call, "_stream", None)
        foreign = (raw is None or raw.headers is None) and "Protocol error" in text
        return CallFailure(
            Code.UNAVAILABLE, text, self._reach, unfit=NotLiftbridge if foreign else None
        )


def _take_back_cancellations(task: asyncio.Task[Any] | None, before: int) -> None:
    """Undo what grpclib did to wake a task: it cancels it, twice where it closes the connection."""
    while task is not None and task.cancelling() > before:
        task.uncancel()


def failure_from(error: GRPCError) -> CallFailure:
    """Turn what a server ended a call with into our failure."""
    return CallFailure(Code(error.status.value), error.message or "")
