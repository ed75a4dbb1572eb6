"""`Publisher.submit_now` and `Publisher.submit` leave the same state."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

import pytest

from liftbridge_aio import (
    Ack,
    AckPolicy,
    Client,
    OutgoingMessage,
    StreamOptions,
)
from liftbridge_aio._publish.publisher import Publisher
from liftbridge_aio.broker import EmbeddedBroker

MESSAGE = OutgoingMessage("orders", b"value", partition=0)
MESSAGES = [
    MESSAGE,
    replace(MESSAGE, partition=None),
    replace(MESSAGE, partition=None, key=b"k"),
    replace(MESSAGE, key=b""),
    replace(MESSAGE, key=b"k" * 200, headers={"trace": b"0123456789abcdef", "": b""}),
    replace(MESSAGE, headers={}),
    replace(MESSAGE, ack_policy=AckPolicy.ALL),
    replace(MESSAGE, ack_policy=AckPolicy.NONE, headers={"h": b"v" * 300}),
    replace(MESSAGE, expected_offset=2),
]


def state_of(publisher: Publisher) -> dict[str, Any]:
    """All that a message changes, but for the time."""
    [route] = publisher._dispatcher.routes.values()
    queue = route.queue
    [session] = publisher._dispatcher.sessions
    return {
        "window": (publisher._window.messages, publisher._window.bytes),
        "queue": (queue.state, queue.probe, queue.accepted, len(queue.waiting), route.unsettled),
        "session": (session.in_flight, [each.frame for each in session.outbox]),
        "table": [
            (
                key,
                each.correlation_id,
                asdict(each.terms),
                each.expected_offset,
                each.frame,
                each.route is route,
                each.session is session,
                each.done(),
            )
            for key, each in publisher.table.unsettled.items()
        ],
        "deadlines": publisher._deadlines.shortest_timeout,
    }


def submit_now(publisher: Publisher, message: OutgoingMessage) -> asyncio.Future[Ack | None] | None:
    return publisher.submit_now(
        *(message.stream, message.value, message.key, message.headers),
        {
            "partition": message.partition,
            "ack_policy": message.ack_policy,
            "expected_offset": message.expected_offset,
        },
    )


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("message", MESSAGES)
async def test_both_ways_leave_the_same_state(message: OutgoingMessage, busy: bool) -> None:
    states = []
    for fast in (True, False):
        async with EmbeddedBroker() as broker, Client(broker.address) as client:
            await client.create_stream(
                "orders", options=StreamOptions(optimistic_concurrency_control=False)
            )
            await client.publish(
                "orders", b"opens the queue", message.key, partition=message.partition
            )
            parts = client._parts
            assert parts is not None
            publisher = parts.publisher
            publisher._id_prefix = "the-same-in-both-"
            if busy:
                submit_now(publisher, MESSAGE)
            if fast:
                future = submit_now(publisher, message)
            else:
                future = await publisher.submit(message)
            assert future is not None
            states.append(state_of(publisher))
            await future
    assert states[0] == states[1]
