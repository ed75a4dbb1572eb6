"""Publishes that fail while the client closes, and whose futures nobody keeps: told in one line."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from liftbridge_aio import Client, PublishOutcomeUnknown
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND, Options, eventually, in_flight, within

DROPPED = 1100
"""More than are remembered for the next flush, and no more than a server gives credit for."""


def written(client: Client) -> int:
    """Messages that were written and are not answered."""
    assert client._parts is not None
    return sum(session.in_flight for session in client._parts.publisher._dispatcher.sessions)


async def test_failures_that_nobody_looks_at_are_one_line_of_the_log(
    proxy: FaultProxy, options: Options, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes away in the middle of closing; asyncio complains of none of the futures."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    client = Client(proxy.address, options=options(close_timeout=1.0))
    await client.connect()
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"first")
    proxy.freeze()
    awaited = asyncio.create_task(client.publish(stream_name, b"somebody waits"))
    await eventually(lambda: in_flight(client) == 1)
    for _ in range(DROPPED):
        await client.publish_async(stream_name, b"")
    await eventually(lambda: written(client) == DROPPED + 1)
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0)
    await proxy.refuse()
    await proxy.cut()
    await within(BOUND, closing)
    with pytest.raises(PublishOutcomeUnknown):
        await awaited
    gc.collect()
    assert complaints == []
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert told[0].startswith(f"closed with {DROPPED} failed publishes")
