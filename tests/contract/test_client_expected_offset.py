"""Optimistic concurrency through the client: the expected offset, and publishing again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from liftbridge_aio import (
    Ack,
    AckPolicy,
    Backoff,
    Client,
    ClientOptions,
    IncorrectOffset,
    InvalidRequest,
    PublishOutcomeUnknown,
    PublishRefused,
    Retry,
    StreamOptions,
)
from liftbridge_aio.model import Acked
from liftbridge_aio.testing import FaultProxy
from support.clients import Watcher, read_out, values
from support.servers.node import Server

CONTROLLED = StreamOptions(optimistic_concurrency_control=True)
SOON = Retry(attempts=10, backoff=Backoff(initial=0.01, maximum=0.05))


def offset(ack: Ack | None) -> int:
    assert ack is not None
    return ack.offset


@pytest.mark.parametrize("policy", [AckPolicy.LEADER, AckPolicy.ALL])
async def test_the_expected_offset_must_be_the_next_one(
    client: Client, stream_name: str, policy: Acked
) -> None:
    await client.create_stream(stream_name, options=CONTROLLED)

    for n in range(3):
        ack = await client.publish(stream_name, b"%d" % n, expected_offset=n, ack_policy=policy)
        assert offset(ack) == n
    for wrong in (0, 2, 4):
        with pytest.raises(IncorrectOffset) as refused:
            await client.publish(
                stream_name,
                b"wrong",
                expected_offset=wrong,
                ack_policy=policy,
                correlation_id=f"id-{wrong}",
            )
        assert (refused.value.stream, refused.value.partition) == (stream_name, 0)
        assert refused.value.correlation_id == f"id-{wrong}"
    assert values(await read_out(client, stream_name)) == [b"0", b"1", b"2"]


async def test_an_offset_that_is_not_given_is_not_checked(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, options=CONTROLLED)

    assert [offset(await client.publish(stream_name, b"")) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("wait", [True, False], ids=["publish", "publish_async"])
async def test_an_offset_that_is_not_checked_is_warned_of_once(
    client: Client, stream_name: str, caplog: pytest.LogCaptureFixture, wait: bool
) -> None:
    await client.create_stream(stream_name)

    with caplog.at_level(logging.WARNING, "liftbridge_aio.publisher"):
        for n, expected in enumerate((0, 7, 0)):
            if wait:
                ack = await client.publish(stream_name, b"", expected_offset=expected)
            else:
                ack = await (await client.publish_async(stream_name, b"", expected_offset=expected))
            assert offset(ack) == n
            assert len(caplog.messages) == (n > 0)
    [warning] = caplog.messages
    assert f"{stream_name!r} at offset 1 although expected_offset was 7" in warning
    assert "optimistic_concurrency_control=True" in warning


async def test_refused_offsets_are_no_warning_and_stay_unseen(
    client: Client, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create_stream(stream_name, options=CONTROLLED)

    with caplog.at_level(logging.WARNING, "liftbridge_aio.publisher"):
        await client.publish(stream_name, b"", expected_offset=0)
        refused = await client.publish_async(stream_name, b"", expected_offset=7)
        with pytest.raises(IncorrectOffset):
            await client.flush()
        assert refused.done()
    assert caplog.messages == []


@pytest.mark.parametrize("policy", [AckPolicy.NONE, int(AckPolicy.NONE)], ids=["enum", "number"])
async def test_an_expected_offset_without_ack_is_refused_before_it_is_sent(
    client: Client, stream_name: str, policy: AckPolicy
) -> None:
    await client.create_stream(stream_name, options=CONTROLLED)

    with pytest.raises(InvalidRequest, match="requires an ack"):
        await client.publish_async(stream_name, b"", expected_offset=0, ack_policy=policy)
    assert await read_out(client, stream_name) == []


async def test_a_controlled_stream_refuses_messages_without_ack(
    server: Server, stream_name: str
) -> None:
    watcher = Watcher()
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        await client.create_stream(stream_name, options=CONTROLLED)

        await client.publish_unacked(stream_name, b"")
        with pytest.raises(PublishRefused) as failed:
            await client.flush()
        assert (failed.value.stream, failed.value.partition) == (stream_name, 0)
        assert [event.error for event in watcher.failures] == [failed.value]
        assert await read_out(client, stream_name) == []


async def test_of_those_who_expect_the_same_offset_one_wins(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, options=CONTROLLED)

    outcomes = await asyncio.gather(
        *(client.publish(stream_name, b"%d" % n, expected_offset=0) for n in range(20)),
        return_exceptions=True,
    )
    winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Ack)]
    assert len(winners) == 1
    assert sum(isinstance(outcome, IncorrectOffset) for outcome in outcomes) == 19
    assert values(await read_out(client, stream_name)) == [b"%d" % winners[0]]


async def test_with_retry_a_wrong_offset_is_still_wrong(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, options=CONTROLLED)
    await client.publish(stream_name, b"same", expected_offset=0)

    with pytest.raises(IncorrectOffset):
        await client.publish(stream_name, b"same", expected_offset=0, retry=SOON)
    assert offset(await client.publish(stream_name, b"1", expected_offset=1, retry=SOON)) == 1
    assert values(await read_out(client, stream_name)) == [b"same", b"1"]


async def through(proxy: FaultProxy, **options: object) -> Client:
    """A client that knows no other way to the server."""
    mapped = ClientOptions(address_map=lambda _: proxy.address, **options)  # type: ignore[arg-type]
    client = Client(proxy.address, options=mapped)
    await client.connect()
    return client


async def test_a_lost_ack_is_an_unknown_outcome(server: Server, stream_name: str) -> None:
    async with FaultProxy(server.address) as proxy:
        client = await through(proxy)
        try:
            await client.create_stream(stream_name)
            await client.publish(stream_name, b"0")
            proxy.freeze()
            waiting = await client.publish_async(stream_name, b"1", correlation_id="id")
            await asyncio.sleep(0)  # the writer's turn
            await proxy.cut()
            proxy.thaw()
            with pytest.raises(PublishOutcomeUnknown) as failed:
                await waiting
            assert (failed.value.stream, failed.value.partition) == (stream_name, 0)
            assert failed.value.correlation_id == "id"
            assert await client.publish(stream_name, b"2") is not None
        finally:
            await client.aclose()


async def test_retry_with_expected_offset_stores_a_message_once_whatever_breaks(
    server: Server, stream_name: str
) -> None:
    async with FaultProxy(server.address) as proxy:
        client = await through(proxy)
        try:
            await client.create_stream(stream_name, options=CONTROLLED)
            await client.publish(stream_name, b"0", expected_offset=0)
            for n in range(1, 20):
                waiting = await client.publish_async(
                    stream_name,
                    b"%d" % n,
                    key=b"key",
                    headers={"n": b"%d" % n},
                    expected_offset=n,
                    retry=SOON,
                )
                for _ in range(n):  # cut it at another moment each time
                    await asyncio.sleep(0)
                await proxy.cut()
                assert offset(await waiting) == n
            assert values(await read_out(client, stream_name)) == [b"%d" % n for n in range(20)]
        finally:
            await client.aclose()
