"""Messages and acks that make no sense, in frames that do: order holds, and nothing hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from hostile.test_hostile_server import FINE, OPTIONS, PATIENCE, outcome, publish
from liftbridge_aio import (
    Client,
    InvalidRequest,
    LiftbridgeError,
    MalformedData,
    MessageTooLarge,
    StartAt,
    StreamReset,
)
from liftbridge_aio.wire import proto
from support.faults import nothing_left_behind, within
from support.peers.hostile_server import STORED, STREAM, Call, HostileServer, Line, ack, stored
from support.peers.http2_bytes import data, message, trailers

HUGE: Final = 2**63 - 1
RIGHT: Final = [stored(offset) for offset in range(STORED)]
HANDSHAKE: Final = b""
MANY: Final = {str(number): b"" for number in range(100_000)}


@dataclass(frozen=True)
class Said:
    """The messages that a server sends on a subscription, and their effect on the reader."""

    messages: list[bytes]
    offsets: list[int]
    error: type[LiftbridgeError] | None = None


def found(messages: list[bytes], *offsets: int) -> Said:
    """Messages of which these are handed out; where they are fewer than three, more is read."""
    return Said([HANDSHAKE, *messages], list(offsets))


def fails(error: type[LiftbridgeError], messages: list[bytes], *offsets: int) -> Said:
    """Messages of which one is told as an error, behind what came before it."""
    return Said([HANDSHAKE, *messages], list(offsets), error)


READ: Final = {
    "repeats": found(RIGHT * 3, 0, 1, 2),
    "backwards": found(RIGHT[::-1], 2, 3, 4),
    "a gap": found([RIGHT[0], RIGHT[2]], 0, 2, 3),
    "negative offset": found([stored(-1), *RIGHT], 0, 1, 2),
    "most negative offset": found([stored(-(2**63)), *RIGHT], 0, 1, 2),
    "huge offset": fails(InvalidRequest, [RIGHT[0], stored(HUGE)], 0, HUGE),
    "other partition": found([stored(offset, partition=7) for offset in range(3)], 0, 1, 2),
    "other stream": found([stored(offset, stream="other") for offset in range(3)], 0, 1, 2),
    "another message of an offset": fails(StreamReset, [*RIGHT[:2], stored(1, timestamp=9)], 0, 1),
    "a second handshake": fails(StreamReset, [HANDSHAKE, *RIGHT], 0),
    "times that cannot be": found([stored(0, timestamp=HUGE), stored(1, timestamp=-HUGE)], 0, 1, 2),
    "text that is no UTF-8": fails(MalformedData, [RIGHT[0], b"\x08\x01\x2a\x02\xff\xfe"], 0),
    "a field cut off": fails(MalformedData, [RIGHT[0], RIGHT[1][:-1]], 0),
    "headers of 100,000 names": fails(MessageTooLarge, [stored(0, headers=MANY)]),
}


def refused(code: int, correlation_id: str) -> bytes:
    """A refusal of a message, of a kind that may not exist."""
    error = proto.PublishAsyncError(code=proto.PublishAsyncErrorCode(code), message="no")
    return bytes(proto.PublishResponse(async_error=error, correlation_id=correlation_id))


ENDS: Final = {FINE, "PublishOutcomeUnknown", "PublishRefused"}
Answers = Callable[[str], list[bytes]]
ANSWERS: Final[dict[str, Answers]] = {
    "nothing at all": lambda it: [b"", ack(it)],
    "acks that nobody asked for": lambda it: [ack(f"x{n}") for n in range(1000)] + [ack(it)],
    "an ack without a name": lambda it: [ack(""), ack(it)],
    "the same ack many times": lambda it: [ack(it)] * 1000,
    "refusals that nobody asked for": lambda it: [refused(3, "x"), refused(3, ""), ack(it)],
    "an ack, then a refusal": lambda it: [ack(it), refused(3, it)],
    "a refusal of no known kind": lambda it: [refused(99, it)],
    "an ack with an error of no known kind": lambda it: [ack(it, ack_error=proto.AckError(99))],
    "an ack of another stream": lambda it: [ack(it, stream="other"), ack(it)],
    "times that cannot be": lambda it: [ack(it, commit_timestamp=-HUGE)],
    "text that is no UTF-8": lambda it: [b"\x1a\x02\xff\xfe", ack(it)],
    "no message": lambda it: [b"\xff" * 30, ack(it)],
    "an ack cut off": lambda it: [ack(it)[:-1]],
    "an ack with a name of 900 KB": lambda it: [ack("x" * 900_000), ack(it)],
}


@asynccontextmanager
async def meeting() -> AsyncIterator[tuple[HostileServer, Client]]:
    """A hostile server and a client of it; nothing is left of them."""
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    server = HostileServer()
    async with nothing_left_behind(), server.listening():
        async with Client(server.address, options=OPTIONS) as client:
            yield server, client
        for line in server.lines:
            await within(PATIENCE, line.gone.wait())
    assert not problems


async def read(client: Client) -> tuple[list[int], type[LiftbridgeError] | None]:
    """Read three messages; their offsets, and the error if there was one."""
    offsets: list[int] = []
    try:
        async with client.subscribe(STREAM, partition=0, start=StartAt.earliest()) as subscription:
            while len(offsets) < STORED:
                offsets.append((await anext(subscription)).offset)
    except LiftbridgeError as error:
        return offsets, type(error)
    return offsets, None


on_each_path = pytest.mark.parametrize("data_path", ["lane", "plain"], indirect=True)


@on_each_path
@pytest.mark.usefixtures("data_path")
async def test_messages() -> None:
    async with meeting() as (server, client):
        for title, said in READ.items():

            async def say(line: Line, call: Call, said: Said = said) -> bool:
                await line.accept(call)
                await line.say(data(call.number, b"".join(map(message, said.messages))))
                await line.say(trailers(call.number, 14))  # so that it is gone on behind them
                return False

            server.plans["Subscribe"] = say
            assert await within(PATIENCE, read(client)) == (said.offsets, said.error), title


@on_each_path
@pytest.mark.usefixtures("data_path")
async def test_answers_to_publishes() -> None:
    """Every publish ends by itself, and the next one is not harmed."""
    async with meeting() as (server, client):
        for title, answers in ANSWERS.items():

            async def say(line: Line, call: Call, answers: Answers = answers) -> bool:
                await line.accept(call)
                request = proto.PublishRequest.parse(call.latest)
                frames = b"".join(map(message, answers(request.correlation_id)))
                await line.say(data(call.number, frames))
                return False

            server.plans["PublishAsync"] = say
            assert await outcome(publish, client) in ENDS, title
            assert await outcome(publish, client) == FINE, title
