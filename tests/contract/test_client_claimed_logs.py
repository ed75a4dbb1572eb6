"""Logs with one writer at a time: what is appended, who is fenced, what is found after a crash."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import AckPolicy, Client, InvalidRequest
from liftbridge_aio.transactions import ClaimedLog, LogRecord, ProducerFenced
from liftbridge_aio.transactions.claimed_log import _FRESH
from liftbridge_aio.transactions.core.records import HEADER, WRITER_BYTES, Kind, Mark
from support.clients import read_out
from support.marks import ON_ONE_PATH

pytestmark = ON_ONE_PATH

LARGE = bytes(range(256)) * 4 * 1300
"""Three messages."""


@pytest.fixture
async def log(client: Client, stream_name: str) -> ClaimedLog:
    return await ClaimedLog.open(client, stream_name)


async def everything(log: ClaimedLog, start: int = 0) -> list[LogRecord]:
    return [record async for record in log.records(start)]


async def test_the_next_writer_finds_all_records(client: Client, log: ClaimedLog) -> None:
    assert await log.last() is None
    assert [await log.append(value) for value in (b"1", LARGE, b"")] == [1, 4, 5]
    following = await ClaimedLog.open(client, log.stream)
    assert following.claim == 6
    written = [LogRecord(1, b"1"), LogRecord(4, LARGE), LogRecord(5, b"")]
    assert await everything(following) == written
    assert await everything(following, 3) == written[2:]
    assert await following.last() == written[2]
    assert await following.append(b"4") == 7


async def test_the_writer_before_is_fenced(client: Client, log: ClaimedLog) -> None:
    await log.append(b"1")
    following = await ClaimedLog.open(client, log.stream)
    await following.append(b"2")
    for _ in range(2):
        with pytest.raises(ProducerFenced, match="at offset 2") as caught:
            await log.append(b"in vain")
        assert caught.value.offset == 2
    assert await following.append(b"3") == 4
    last = await ClaimedLog.open(client, log.stream)
    assert [record.value for record in await everything(last)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("records", [0, 1, 2, 5])
async def test_a_log_created_again_fences_the_old_writer(
    client: Client, log: ClaimedLog, records: int
) -> None:
    await log.append(b"old")
    await log.append(b"old")
    await client.delete_stream(log.stream)
    following = await ClaimedLog.open(client, log.stream)
    for _ in range(records):
        await following.append(b"new")
    await asyncio.sleep(_FRESH)
    for _ in range(2):
        with pytest.raises(ProducerFenced, match="created again"):
            await log.append(b"in vain")
    await following.append(b"new")
    last = await ClaimedLog.open(client, log.stream)
    assert [record.value for record in await everything(last)] == [b"new"] * (records + 1)


async def test_a_foreign_record_without_a_claim_fences(client: Client, log: ClaimedLog) -> None:
    await log.append(b"1")
    foreign = Mark(Kind.PART, bytes(WRITER_BYTES)).encode()
    await client.publish(
        log.stream, b"2", headers={HEADER: foreign}, ack_policy=AckPolicy.ALL, expected_offset=2
    )
    with pytest.raises(ProducerFenced, match="appended to"):
        await log.append(b"in vain")


async def test_of_writers_that_open_it_together_one_can_append(
    client: Client, stream_name: str
) -> None:
    logs = await asyncio.gather(*(ClaimedLog.open(client, stream_name) for _ in range(5)))
    results = await asyncio.gather(*(log.append(b"x") for log in logs), return_exceptions=True)
    assert sum(isinstance(result, ProducerFenced) for result in results) == 4
    assert sum(isinstance(result, int) for result in results) == 1


async def test_the_last_record_is_found_behind_many_claims(client: Client, log: ClaimedLog) -> None:
    offset = await log.append(LARGE)
    for _ in range(30):
        log = await ClaimedLog.open(client, log.stream)
    assert await log.last() == LogRecord(offset, LARGE)


async def test_a_record_of_which_a_part_is_missing_is_passed_over(
    client: Client, log: ClaimedLog
) -> None:
    await log.append(b"1")
    await log.append(LARGE)
    [*_, begin, _, _] = await read_out(client, log.stream)
    following = await ClaimedLog.open(client, log.stream)
    await client.publish(log.stream, begin.value, headers=begin.headers, ack_policy=AckPolicy.ALL)
    last = await ClaimedLog.open(client, following.stream)
    assert [record.value for record in await everything(last)] == [b"1", LARGE]


async def test_messages_of_others_are_no_records(client: Client, log: ClaimedLog) -> None:
    """Who appends without an expected offset breaks no fence, and harms no record."""
    await log.append(b"1")
    await client.publish(log.stream, b"foreign", ack_policy=AckPolicy.ALL)
    assert await log.append(b"2") == 3
    following = await ClaimedLog.open(client, log.stream)
    assert [record.value for record in await everything(following)] == [b"1", b"2"]


async def test_a_stream_without_concurrency_control_is_refused(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    with pytest.raises(InvalidRequest, match="optimistic_concurrency_control"):
        await ClaimedLog.open(client, stream_name)
