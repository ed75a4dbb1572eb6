"""Publishing to NATS subjects through the client."""

from __future__ import annotations

import time
from typing import Any

import pytest

from liftbridge_aio import (
    AckPolicy,
    AckTimeout,
    Client,
    ClientOptions,
    IncorrectOffset,
    InvalidRequest,
    MessageTooLarge,
    PublishOutcomeUnknown,
    StreamOptions,
)
from liftbridge_aio.model import Acked
from support.clients import read_out, stored, values
from support.servers.node import Server


@pytest.mark.parametrize("policy", [AckPolicy.LEADER, AckPolicy.ALL])
async def test_the_stream_that_listens_stores_and_acks(
    client: Client, stream_name: str, policy: Acked
) -> None:
    subject = f"{stream_name}.subject"
    await client.create_stream(stream_name, subject)
    await client.publish(stream_name, b"first")

    ack = await client.publish_to_subject(
        subject,
        b"value",
        key=b"key",
        headers={"one": b"1"},
        ack_policy=policy,
        correlation_id="mine",
    )
    assert ack is not None
    assert (ack.stream, ack.partition_subject, ack.msg_subject) == (stream_name, subject, subject)
    assert (ack.offset, ack.correlation_id, ack.ack_policy) == (1, "mine", policy)
    [_, message] = await read_out(client, stream_name)
    assert (message.key, message.value, message.headers["one"]) == (b"key", b"value", b"1")
    assert message.timestamp == ack.reception_timestamp


@pytest.mark.parametrize("tail", ["", ".*"])
async def test_an_ack_has_the_partition_that_stored_the_message(
    client: Client, stream_name: str, tail: str
) -> None:
    await client.create_stream(stream_name, f"{stream_name}{tail}", partitions=3)
    subject = stream_name + tail.replace("*", "in")
    acks = {
        b"first": await client.publish(stream_name, b"first"),
        b"third": await client.publish(stream_name, b"third", partition=2),
        b"subject": await client.publish_to_subject(subject, b"subject"),
        b"numbered": await client.publish_to_subject(f"{subject}.2", b"numbered"),
    }
    assert [ack.partition for ack in acks.values()] == [0, 2, 0, 2]
    for value, ack in acks.items():
        messages = await read_out(client, stream_name, ack.partition)
        assert messages[ack.offset].value == value


async def test_every_stream_on_a_subject_stores_the_message(
    client: Client, stream_name: str
) -> None:
    names = [f"{stream_name}-{n}" for n in range(3)]
    for name in names:
        await client.create_stream(name, stream_name)

    ack = await client.publish_to_subject(stream_name, b"value")
    assert ack is not None
    assert ack.stream in names
    for name in names:
        assert await stored(client, name, 1) == [b"value"]


async def test_a_publish_is_acked_under_its_own_stream_whoever_else_listens(
    client: Client, stream_name: str
) -> None:
    names = [f"{stream_name}-{n}" for n in range(3)]
    for name in names:
        await client.create_stream(name, stream_name)

    for n in range(30):
        ack = await client.publish(names[n % 3], b"%d" % n)
        assert ack is not None
        assert (ack.stream, ack.offset) == (names[n % 3], n)
    for name in names:
        assert await stored(client, name, 30) == [b"%d" % n for n in range(30)]


async def test_without_ack_policy_nothing_is_waited_for(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    began = time.monotonic()

    await client.publish_unacked_to_subject(stream_name, b"value")
    await client.publish_unacked_to_subject("nobody.listens", b"")
    assert time.monotonic() - began < 4
    assert await stored(client, stream_name, 1) == [b"value"]


@pytest.mark.parametrize("of_the_call", [True, False], ids=["call", "client"])
async def test_where_nobody_listens_the_ack_times_out(
    server: Server, stream_name: str, of_the_call: bool
) -> None:
    options = ClientOptions() if of_the_call else ClientOptions(ack_timeout=0.3)
    async with Client(server.address, options=options) as client:
        began = time.monotonic()
        with pytest.raises(AckTimeout, match=stream_name) as failed:
            await client.publish_to_subject(
                stream_name, b"value", timeout=0.3 if of_the_call else None
            )
    assert isinstance(failed.value, PublishOutcomeUnknown)
    assert isinstance(failed.value, TimeoutError)
    assert 0.25 < time.monotonic() - began < 4


async def test_under_concurrency_control_only_the_first_message_is_taken(
    client: Client, stream_name: str
) -> None:
    options = StreamOptions(optimistic_concurrency_control=True)
    await client.create_stream(stream_name, options=options)

    ack = await client.publish_to_subject(stream_name, b"first")
    assert ack is not None
    assert ack.offset == 0
    with pytest.raises(IncorrectOffset) as refused:
        await client.publish_to_subject(stream_name, b"second")
    assert refused.value.stream == stream_name
    assert values(await read_out(client, stream_name)) == [b"first"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"subject": ""}, id="empty"),
        pytest.param({"subject": "a b"}, id="blank"),
        pytest.param({"subject": "a."}, id="empty-token"),
        pytest.param({"subject": "a.*"}, id="star"),
        pytest.param({"subject": "a.>"}, id="greater"),
        pytest.param({"value": "text"}, id="value-str"),
        pytest.param({"key": "text"}, id="key-str"),
        pytest.param({"headers": {"a": "text"}}, id="header-str"),
        pytest.param({"headers": {"reply": b""}}, id="reply"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_it_is_sent(
    client: Client, stream_name: str, changes: dict[str, Any]
) -> None:
    await client.create_stream(stream_name)

    with pytest.raises(InvalidRequest):
        await client.publish_to_subject(
            **{"subject": stream_name, "value": b"value", "timeout": 1, **changes}
        )
    assert await read_out(client, stream_name) == []


async def test_what_is_larger_than_the_server_takes_is_refused(
    server: Server, stream_name: str
) -> None:
    async with Client(server.address, options=ClientOptions(max_message_bytes=2**22)) as client:
        await client.create_stream(stream_name)

        with pytest.raises(MessageTooLarge, match="maximum payload"):
            await client.publish_to_subject(stream_name, bytes(2**20 + 1), timeout=1)
        assert await read_out(client, stream_name) == []
