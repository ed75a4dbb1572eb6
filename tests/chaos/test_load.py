"""Detection of everything that clients must never do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import pytest

from chaos.alarms import listening
from chaos.journal import Place
from chaos.leftovers import network_objects
from chaos.load import Load
from chaos.queues import Step, out_of_order
from chaos.readers import Member, Reader
from liftbridge_aio import AckPolicy, ClientOptions, LiftbridgeError, Message, StreamReset
from liftbridge_aio.net.connection_pool import ConnectionPool
from liftbridge_aio.testing import EventKind

PLACE: Final = Place("all", 0, AckPolicy.ALL)
WITHIN: Final = 5.0


class Reading:
    """A subscription or group of a client with a fault: a message, and then that."""

    def __init__(self, fault: BaseException | None) -> None:
        self._fault = fault
        self._given = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Reading:
        return self

    async def seek(self, *_: object) -> None:
        self._fault = None

    async def __anext__(self) -> Message:
        await asyncio.sleep(0)
        self._given += 1
        if self._given == 1:
            return Message("all", 0, 0, b"", b"p:all/0:1:1", timestamp=0)
        raise self._fault or StopAsyncIteration


class FaultyClient:
    """A client that does what it never should."""

    options: Final = ClientOptions()

    def __init__(self, fault: BaseException | None) -> None:
        self._fault = fault

    def subscribe(self, *_: object, **__: object) -> Reading:
        return Reading(self._fault)

    def group(self, *_: object, **__: object) -> Reading:
        return Reading(self._fault)

    async def publish_async(self, *_: object, **__: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        return future

    async def fetch_metadata(self, *_: object) -> None:
        raise self._fault or AssertionError

    async def fetch_partition_metadata(self, *_: object) -> None:
        pass

    async def ping(self) -> None:
        pass


async def found(load: Load) -> str:
    """Wait until something is found."""
    async with asyncio.timeout(WITHIN):
        while not load.findings:  # noqa: ASYNC110 - findings are a list
            await asyncio.sleep(0.001)
    return load.findings[0].text


@asynccontextmanager
async def at_work(load: Load, work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    task.add_done_callback(load.judge_end)
    try:
        yield
    finally:
        load.stop()
        task.cancel()
        await asyncio.wait([task])


FAULTS: Final[list[tuple[BaseException | None, str]]] = [
    (asyncio.CancelledError(), "was cancelled by the client"),
    (None, "ended without an error"),
    (LiftbridgeError("broke"), "ended with LiftbridgeError"),
    (KeyError("x"), "KeyError('x')"),
]


@pytest.mark.parametrize(("fault", "text"), FAULTS, ids=str)
@pytest.mark.parametrize("make", ["reader", "member"])
async def test_no_reading_ends_unseen(make: str, fault: BaseException | None, text: str) -> None:
    load = Load()
    client: Any = FaultyClient(fault)
    reading: Reader | Member
    if make == "reader":
        reading = Reader(load, client, PLACE, "plain")
    else:
        reading = Member(load, client, "member", "group", ["all"])
    async with at_work(load, reading.run()):
        assert text in await found(load)
        reading.stop()


async def test_a_member_reads_a_log_that_was_cut_from_its_beginning() -> None:
    load = Load()
    client: Any = FaultyClient(StreamReset("cut", stream="all", partition=0))
    member = Member(load, client, "member", "group", ["all"])
    async with at_work(load, member.run()):
        assert "StreamReset" in await found(load)
        member.stop()
    assert load.findings[0].reset == ("all", 0)


async def test_publishes_that_the_client_cancels_are_found_and_have_an_outcome() -> None:
    load = Load()
    client: Any = FaultyClient(None)
    async with at_work(load, load.publish_steadily(client, PLACE, 100.0)):
        assert "CancelledError" in await found(load)
        assert await load.settle(WITHIN) == 0
    kinds = [event.kind for event in load.journal.sends["all"].events]
    assert kinds[:2] == [EventKind.SENT, EventKind.UNKNOWN]


async def test_whatever_ends_before_its_time_is_found() -> None:
    load = Load()
    async with at_work(load, asyncio.sleep(0)):
        assert "ended before its time" in await found(load)


async def test_a_call_that_the_client_cancels_is_found() -> None:
    load = Load()
    client: Any = FaultyClient(asyncio.CancelledError())
    async with at_work(load, load.administer(client, PLACE)):
        assert "cancelled by the client" in await found(load)


def _in_the_loop() -> None:
    nothing: list[int] = []
    asyncio.get_running_loop().call_soon(nothing.pop)


def _in_the_log() -> None:
    logging.getLogger("liftbridge_aio.net").error("a task failed")


@pytest.mark.parametrize("fail", [_in_the_loop, _in_the_log])
async def test_errors_that_nobody_takes_are_found(fail: Callable[[], None]) -> None:
    load = Load()
    with listening(load):
        fail()
        assert await found(load)
    assert not any(finding.excusable for finding in load.findings)


def test_objects_of_the_network_that_are_left_are_seen() -> None:
    before = network_objects()
    left = ConnectionPool.__new__(ConnectionPool)
    assert "ConnectionPool" in (network_objects() - before)
    del left
    assert not network_objects() - before


def test_the_judge_of_a_queue_sees_what_is_handed_out_too_soon() -> None:
    by_key = {b"a": [b"1", b"3"], b"b": [b"2"]}
    good = [Step(b"1", ended=False), Step(b"2", ended=False), Step(b"1", ended=True)]
    assert not out_of_order(by_key, [*good, Step(b"3", ended=False), Step(b"1", ended=False)])
    [wrong] = out_of_order(by_key, [*good[:2], Step(b"3", ended=False)])
    assert wrong == "b'3' was handed out before b'1' of its key was handled"
