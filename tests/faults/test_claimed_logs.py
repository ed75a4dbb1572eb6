"""Claimed logs when claims, records and their acks are lost, and when servers are killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import Client, ClientOptions, PublishOutcomeUnknown, Retry
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.broker.faults.fault_plan import MessagePlace
from liftbridge_aio.transactions import ClaimedLog, ProducerFenced
from support.faults import (
    QUICK,
    Recorder,
)
from support.lone_servers import LoneServer

pytestmark = pytest.mark.parametrize("data_path", ["lane"], indirect=True)

LOG = "log"
OPTIONS = ClientOptions(backoff=QUICK, ack_timeout=0.2, publish_timeout=1)
SOON = Retry(attempts=3, backoff=QUICK)


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    async with Client(broker.address, options=OPTIONS) as client:
        yield client


async def reopened(client: Client) -> list[bytes]:
    log = await ClaimedLog.open(client, LOG)
    return [record.value async for record in log.records()]


@pytest.mark.parametrize("at", ["request", "reply"])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_lost_append_is_repeated(
    broker: EmbeddedBroker, client: Client, at: MessagePlace, times: int
) -> None:
    log = await ClaimedLog.open(client, LOG, retry=SOON)
    broker.faults.drop("PublishAsync", at=at, times=times)
    await log.append(b"1")
    await log.append(b"2")
    broker.faults.assert_all_applied()
    assert await reopened(client) == [b"1", b"2"]


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_a_lost_claim_is_repeated(
    broker: EmbeddedBroker, client: Client, at: MessagePlace
) -> None:
    await (await ClaimedLog.open(client, LOG)).append(b"1")
    broker.faults.drop("PublishAsync", at=at)
    log = await ClaimedLog.open(client, LOG, retry=SOON)
    await log.append(b"2")
    assert await reopened(client) == [b"1", b"2"]


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_an_unknown_outcome_is_settled_later(
    broker: EmbeddedBroker, client: Client, at: MessagePlace
) -> None:
    log = await ClaimedLog.open(client, LOG, retry=SOON)
    lost = broker.faults.drop("PublishAsync", at=at, times=None)
    for _ in range(2):
        with pytest.raises(PublishOutcomeUnknown, match="unknown if a record is stored"):
            await (log.append(b"1") if not log.in_doubt else log.settle())
        assert log.in_doubt
    lost.cancel()
    await log.settle()
    await log.settle()
    assert not log.in_doubt
    assert await log.append(b"2") == 2
    assert await reopened(client) == [b"1", b"2"]


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_who_was_fenced_meanwhile_learns_if_its_record_is_stored(
    broker: EmbeddedBroker, client: Client, at: MessagePlace
) -> None:
    log = await ClaimedLog.open(client, LOG, retry=SOON)
    lost = broker.faults.drop("PublishAsync", at=at, times=None)
    with pytest.raises(PublishOutcomeUnknown):
        await log.append(b"1")
    lost.cancel()
    following = await ClaimedLog.open(client, LOG)
    if at == "reply":
        await log.settle()
    else:
        with pytest.raises(ProducerFenced):
            await log.settle()
    assert [record.value async for record in following.records()] == [b"1"] * (at == "reply")
    with pytest.raises(ProducerFenced):
        await log.append(b"2")


async def test_an_append_that_is_cancelled_can_be_settled(
    broker: EmbeddedBroker, client: Client
) -> None:
    log = await ClaimedLog.open(client, LOG)
    stall = broker.faults.stall("PublishAsync")
    appending = asyncio.create_task(log.append(b"1"))
    await stall.wait()
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    stall.release()
    await log.settle()
    assert await reopened(client) == [b"1"]


async def test_a_lone_server_that_was_killed_shows_what_it_acked(
    crashable: LoneServer, recorder: Recorder, stream_name: str
) -> None:
    """It hides its last messages until the next one is published: the claim is that."""
    options = ClientOptions(backoff=QUICK, hook=recorder)
    async with Client(crashable.address, options=options) as client:
        log = await ClaimedLog.open(client, stream_name)
        await log.append(b"1")
        await crashable.crash()
        await crashable.start()
        following = await ClaimedLog.open(client, stream_name)
        last = await following.last()
        assert last is not None
        assert last.value == b"1"
        with pytest.raises(ProducerFenced):
            await log.append(b"2")
        await following.append(b"3")


async def test_an_ack_that_was_lost_with_the_server_is_found_out(
    crashable: LoneServer, recorder: Recorder, stream_name: str
) -> None:
    """The record is stored and hidden, and its writer must not take it for somebody else's."""
    options = ClientOptions(backoff=QUICK, hook=recorder)
    async with Client(crashable.address, options=options) as client:
        log = await ClaimedLog.open(client, stream_name)
        appending = asyncio.create_task(log.append(b"1"))
        await asyncio.sleep(0)
        await crashable.crash()
        await crashable.start()
        try:
            await appending
        except PublishOutcomeUnknown:
            await log.settle()
        await log.append(b"2")
        following = await ClaimedLog.open(client, stream_name)
        assert [record.value async for record in following.records()] == [b"1", b"2"]
