"""Requests whose fields make no sense: refused by a status, and the broker lives on (W30)."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator
from typing import Any, Final

import betterproto2
import pytest
from grpclib.exceptions import GRPCError

from hostile.targets import UNARY
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.wire import rpc
from liftbridge_aio.wire.rpc import Rpc
from support.raw import Wire

ROUNDS: Final = 25
TEXTS: Final = (
    "",
    "s",
    "s",
    "t",
    "x" * 50_000,
    "a b",
    "a..b",
    ">",
    "../up",
    "\0",
    "ü",
    "__cursors",
)
INT32: Final = (0, 0, 1, -1, 2**31 - 1, -(2**31))
INT64: Final = (0, 1, -1, 2**63 - 1, -(2**63))


def absurd(chance: random.Random, kind: type[Any], depth: int = 0) -> Any:
    """Fill a message with values at the edges of what its fields can hold."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        meta = field.metadata["betterproto"]
        if chance.random() < 0.4:
            continue
        if meta.map_meta is not None:
            values[field.name] = {"h": b"", "x" * 1000: b"1"}
            continue
        value = _value(chance, kind, field.name, meta, depth)
        values[field.name] = [value] * chance.randrange(4) if meta.repeated else value
    return kind(**values)


def _value(chance: random.Random, kind: type[Any], name: str, meta: Any, depth: int) -> Any:
    proto_type = meta.proto_type
    if proto_type == betterproto2.TYPE_MESSAGE:
        inner = kind._betterproto.cls_by_field[name]
        return absurd(chance, inner, depth + 1)
    if proto_type == betterproto2.TYPE_STRING:
        return chance.choice(TEXTS)
    if proto_type == betterproto2.TYPE_BYTES:
        return bytes(chance.choice((0, 1, 100_000)))
    if proto_type == betterproto2.TYPE_BOOL:
        return chance.random() < 0.5
    if proto_type == betterproto2.TYPE_INT32:
        return chance.choice(INT32)
    if proto_type == betterproto2.TYPE_ENUM:
        inner = kind._betterproto.cls_by_field[name]
        return inner(chance.choice((0, 1, 2, 77)))
    number = chance.choice(INT64)
    return abs(number) if proto_type == betterproto2.TYPE_UINT64 else number


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with EmbeddedBroker() as broker:
        connection = Wire(broker.host, broker.port)
        await connection.create("s")
        await connection.create("alive")
        yield connection
        connection.close()


async def ask(wire: Wire, procedure: Rpc[Any, Any], request: Any) -> str:
    """Make a call; the text of its refusal."""
    try:
        if procedure is rpc.SUBSCRIBE:
            return (await wire.refusal(procedure, request)).text
        await wire.call(procedure, request, timeout=2.0)
    except AssertionError:
        return ""  # it was not refused
    except GRPCError as error:
        return error.message or ""
    except TimeoutError:
        return ""
    return ""


@pytest.mark.parametrize("procedure", [*UNARY, rpc.PUBLISH, rpc.SUBSCRIBE], ids=lambda it: it.name)
async def test_absurd_requests(wire: Wire, procedure: Rpc[Any, Any]) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    chance = random.Random(procedure.name)
    requests = [absurd(chance, procedure.request) for _ in range(ROUNDS)]
    texts = await asyncio.gather(*(ask(wire, procedure, request) for request in requests))
    # grpclib's word for a coroutine that failed
    assert "Internal Server Error" not in texts, requests[texts.index("Internal Server Error")]
    assert await wire.publish("alive", b"x")
    assert not problems
