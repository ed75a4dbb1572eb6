"""Sending a message at once, which only the data lane can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio.net.fast_call import FastCall
from liftbridge_aio.wire.framing import PREFIX_BYTES, framed
from support.peers.scripted_peer import BOUND, FIRST_WINDOW, PeerStream
from support.peers.streaming import Calls, calling


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    async with calling("lane", in_memory=True) as calls:
        yield calls


async def open_call(calls: Calls) -> tuple[FastCall, PeerStream]:
    call, stream = await calls.open()
    assert isinstance(call, FastCall)
    return call, stream


async def test_it_is_sent_before_the_call_returns(calls: Calls) -> None:
    call, stream = await open_call(calls)
    assert call.send_now([framed(b"one")])
    assert call.send_now([framed(b"")])
    assert stream.messages == [b"one", b""]
    await call.send([b"two"])
    assert call.send_now([framed(b"three")])
    assert stream.messages == [b"one", b"", b"two", b"three"]
    call.close()


async def test_it_is_not_sent_in_part(calls: Calls) -> None:
    call, stream = await open_call(calls)
    await call.send([bytes(FIRST_WINDOW - PREFIX_BYTES - 10)])
    assert not call.send_now([framed(bytes(6))])
    assert stream.room == 10
    assert call.send_now([framed(bytes(5))])
    assert stream.room == 0
    call.close()


async def test_it_does_not_get_into_a_message_that_waits(calls: Calls) -> None:
    call, stream = await open_call(calls)
    sending = asyncio.create_task(call.send([bytes(2 * FIRST_WINDOW)]))
    await asyncio.sleep(0)
    assert stream.room == 0
    assert not call.send_now([framed(b"at once")])
    calls.peer.allow(2**20)
    calls.peer.allow(2**20, stream)
    calls.send()
    # There is credit, and the task that waits for it has not got to run.
    assert not call.send_now([framed(b"at once")])
    async with asyncio.timeout(BOUND):
        await sending
    assert call.send_now([framed(b"at once")])
    assert stream.messages == [bytes(2 * FIRST_WINDOW), b"at once"]
    call.close()


async def test_it_waits_for_the_transport_like_others(calls: Calls) -> None:
    call, stream = await open_call(calls)
    calls.protocol.pause_writing()
    assert not call.send_now([framed(b"one")])
    assert stream.body == b""
    calls.protocol.resume_writing()
    assert call.send_now([framed(b"one")])
    call.close()


@pytest.mark.parametrize("happening", ["leave", "reset", "end", "goaway", "close"])
async def test_nothing_is_sent_on_a_call_that_is_over(calls: Calls, happening: str) -> None:
    call, stream = await open_call(calls)
    if happening == "leave":
        call.close()
    elif happening == "close":
        calls.connection.close()
    else:
        calls.peer.accept(stream)
        if happening == "reset":
            calls.peer.reset(stream)
        elif happening == "end":
            calls.peer.end(stream)
            calls.peer.reset(stream, 0)
        else:
            calls.peer.go_away()
        calls.send()
    assert not call.send_now([framed(b"one")])
    assert stream.body == b""
    call.close()
