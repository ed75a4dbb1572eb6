from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import CallbackCancelled, Message, WrongType
from liftbridge_aio._core.foreign_cancellation import failure_of, foreign_cancellation_fails
from liftbridge_aio.errors import InvalidRequest, UndecodableMessage
from liftbridge_aio.partitioner import choose_partition
from liftbridge_aio.values import ValueCodec
from support.faults import await_what_others_cancel


async def call_back() -> None:
    with foreign_cancellation_fails("on_revoked"):
        await await_what_others_cancel()


async def test_a_cancelled_future_is_a_failure() -> None:
    with pytest.raises(CallbackCancelled, match="on_revoked was cancelled by something") as caught:
        await call_back()
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


async def test_a_requested_cancellation_passes() -> None:
    async def work() -> None:
        with foreign_cancellation_fails("on_revoked"):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_around_a_callback_passes() -> None:
    async def call_back_too_long() -> None:
        async with asyncio.timeout(0):
            with foreign_cancellation_fails("on_revoked"):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await call_back_too_long()
    with pytest.raises(CallbackCancelled):  # the request of the timeout is over
        await call_back()


def test_other_errors_stay_what_they_are() -> None:
    error = ZeroDivisionError()
    assert failure_of(error, "a") is error
    with pytest.raises(KeyboardInterrupt):
        failure_of(KeyboardInterrupt(), "a")


class Cancelled:
    """A serializer and a partitioner that look at a future that was cancelled."""

    def __call__(self, *_: object) -> int:
        raise asyncio.CancelledError

    serialize = deserialize = __call__


def test_a_partitioner_that_finds_a_cancelled_future_has_failed() -> None:
    with pytest.raises(InvalidRequest, match="partitioner") as caught:
        choose_partition(Cancelled(), "s", None, b"", 1)
    assert not isinstance(caught.value, WrongType)


def test_a_serializer_that_finds_a_cancelled_future_has_failed() -> None:
    codec: ValueCodec[object] = ValueCodec(Cancelled(), None, 1000)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="cannot write"):
        codec.encode(1, None)
    with pytest.raises(UndecodableMessage, match="cannot be read"):
        codec.decode(Message("s", 0, 0, b"", b"", 0))
