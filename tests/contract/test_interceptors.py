"""Interceptors run around every publish, whichever call makes it, in the order of the list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from liftbridge_aio import (
    Ack,
    CallbackCancelled,
    Client,
    ClientOptions,
    IncorrectOffset,
    Interceptor,
    LiftbridgeError,
    OutgoingMessage,
    PublishManyFailed,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
    Retry,
    StreamOptions,
    WrongType,
)
from support.clients import read_out
from support.faults import await_what_others_cancel
from support.servers.node import Server

AckFuture: TypeAlias = asyncio.Future[Ack | None]
Send: TypeAlias = Callable[[OutgoingMessage], Awaitable[AckFuture]]


class Tag(Interceptor):
    """Writes its name into a header, after the names that stand there."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.calls = 0

    async def publish(self, message: OutgoingMessage, send: Send) -> AckFuture:
        self.calls += 1
        headers = dict(message.headers or {})
        message.headers = headers | {"tags": headers.get("tags", b"") + self.name}
        await asyncio.sleep(0)
        return await send(message)


class Gate(Interceptor):
    """Skips some values and fails others."""

    async def publish(self, message: OutgoingMessage, send: Send) -> AckFuture:
        if message.value == b"fail":
            raise PublishNotSent("failed by the gate")
        if message.value == b"skip":
            skipped: AckFuture = asyncio.get_running_loop().create_future()
            skipped.set_result(None)
            return skipped
        return await send(message)


class Shared(Interceptor):
    """Awaits, or returns, a future that somebody else has cancelled."""

    async def publish(self, message: OutgoingMessage, send: Send) -> AckFuture:
        if message.value == b"awaits":
            await await_what_others_cancel()
        if message.value == b"returns":
            (await send(message)).cancel()
            cancelled: AckFuture = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            return cancelled
        return await send(message)


def connected(server: Server, *interceptors: Interceptor, **options: Any) -> Client:
    return Client(server.address, options=ClientOptions(interceptors=interceptors, **options))


async def test_an_interceptor_that_others_cancel_has_failed(
    server: Server, stream_name: str
) -> None:
    async with connected(server, Shared()) as client:
        await client.create_stream(stream_name)
        with pytest.raises(CallbackCancelled, match="an interceptor was cancelled"):
            await client.publish(stream_name, b"awaits")
        with pytest.raises(PublishOutcomeUnknown, match="cancelled by something else"):
            await client.publish(stream_name, b"returns")
        await client.publish(stream_name, b"goes on")


async def test_interceptors_run_once_for_each_message(server: Server, stream_name: str) -> None:
    outer, inner = Tag(b"outer "), Tag(b"inner")
    headers = {"own": b"header"}
    async with connected(server, outer, inner) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"0", headers=headers)
        await (await client.publish_async(stream_name, b"1", retry=Retry(attempts=2)))
        await client.publish_many(stream_name, [b"2", b"3"])
        await client.values(stream_name).publish(b"4")
        messages = await read_out(client, stream_name)
        await client.delete_stream(stream_name)
    assert [message.value for message in messages] == [b"0", b"1", b"2", b"3", b"4"]
    assert {message.headers["tags"] for message in messages} == {b"outer inner"}
    assert messages[0].headers["own"] == b"header"
    assert headers == {"own": b"header"}
    assert outer.calls == inner.calls == 5


async def test_messages_keep_their_order(server: Server, stream_name: str) -> None:
    values = [str(number).encode() for number in range(50)]
    async with connected(server, Tag(b"")) as client:
        await client.create_stream(stream_name)
        for value in values:
            await client.publish_async(stream_name, value)
        await client.flush()
        messages = await read_out(client, stream_name)
        await client.delete_stream(stream_name)
    assert [message.value for message in messages] == values


async def test_interceptors_see_the_ack_and_its_errors(server: Server, stream_name: str) -> None:
    seen: list[str] = []

    class Watch(Interceptor):
        async def publish(self, message: OutgoingMessage, send: Send) -> AckFuture:
            future = await send(message)
            future.add_done_callback(lambda done: seen.append(type(done.exception()).__name__))
            return future

    async with connected(server, Watch()) as client:
        options = StreamOptions(optimistic_concurrency_control=True)
        await client.create_stream(stream_name, options=options)
        await client.publish(stream_name, b"0")
        with pytest.raises(IncorrectOffset):
            await client.publish(stream_name, b"1", expected_offset=5)
        await client.delete_stream(stream_name)
    assert seen == ["NoneType", "IncorrectOffset"]


async def test_an_interceptor_may_skip_or_fail_a_message(server: Server, stream_name: str) -> None:
    async with connected(server, Gate()) as client:
        await client.create_stream(stream_name)
        skipped: object = await client.publish(stream_name, b"skip")
        assert skipped is None
        with pytest.raises(PublishNotSent, match="by the gate"):
            await client.publish(stream_name, b"fail")
        with pytest.raises(PublishManyFailed) as caught:
            await client.publish_many(stream_name, [b"0", b"fail", b"1"])
        messages = await read_out(client, stream_name)
        await client.delete_stream(stream_name)
    assert [type(each) for each in caught.value.outcomes] == [Ack, PublishNotSent, PublishNotSent]
    assert [message.value for message in messages] == [b"0"]


class Slow(Interceptor):
    """Waits before or after it sends."""

    def __init__(self, *, sends_first: bool) -> None:
        self.sends_first = sends_first

    async def publish(self, message: OutgoingMessage, send: Send) -> AckFuture:
        future = await send(message) if self.sends_first else None
        await asyncio.Event().wait()
        return future or await send(message)


@pytest.mark.parametrize(
    ("sends_first", "error"), [(False, PublishTimeout), (True, PublishOutcomeUnknown)]
)
async def test_interceptors_count_towards_the_timeout(
    server: Server, stream_name: str, sends_first: bool, error: type[LiftbridgeError]
) -> None:
    async with connected(server, Slow(sends_first=sends_first)) as client:
        await client.create_stream(stream_name)
        with pytest.raises(error, match=r"longer than 0\.2 s"):
            await client.publish(stream_name, b"0", timeout=0.2)
        stored = await read_out(client, stream_name)
        await client.delete_stream(stream_name)
    assert len(stored) == sends_first


class Careless(Interceptor):
    """Returns the ack itself, and cannot take some values."""

    async def publish(self, message: OutgoingMessage, send: Send) -> AckFuture:
        if message.value == b"odd":
            raise LookupError(message.value)
        future = await send(message)
        if message.value == b"ack":
            return await future  # type: ignore[return-value] # the mistake
        return future


async def test_what_is_no_future_is_refused_by_name(server: Server, stream_name: str) -> None:
    async with connected(server, Careless()) as client:
        await client.create_stream(stream_name)
        for publishing in (client.publish, client.publish_async):
            with pytest.raises(WrongType, match=r"future of the ack, not .*Careless"):
                await publishing(stream_name, b"ack")
        await client.delete_stream(stream_name)


async def test_other_exceptions_of_one_message_keep_the_outcomes_of_all(
    server: Server, stream_name: str
) -> None:
    async with connected(server, Careless()) as client:
        await client.create_stream(stream_name)
        with pytest.raises(PublishManyFailed) as caught:
            await client.publish_many(stream_name, [b"0", b"odd", b"1"])
        await client.delete_stream(stream_name)
    first, second, third = caught.value.outcomes
    assert isinstance(first, Ack)
    assert isinstance(second, LookupError)
    assert isinstance(third, PublishNotSent)
