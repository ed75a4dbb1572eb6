"""Committed readings: what they show, and where they stand in the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any

import pytest

from liftbridge_aio import (
    Checkpoint,
    Client,
    ClientOptions,
    EndReason,
    InvalidRequest,
    MalformedData,
    Message,
    PartitionPaused,
    PublishManyFailed,
    Record,
    StartAt,
    StopAt,
    StreamDeleted,
    StreamReset,
    UsageError,
    WrongType,
)
from liftbridge_aio.model import ACK_HEADER, UUID_HEADER, OutgoingMessage
from liftbridge_aio.queue import QueueOptions
from liftbridge_aio.transactions import (
    CompactedStream,
    MalformedAck,
    NewerFormat,
    ReadCommitted,
    TransactionActive,
    TransactionTruncated,
)
from liftbridge_aio.wire.envelope import encode_message
from support.clients import EARLIEST, Watcher, rest, take
from support.faults import eventually
from support.marks import ON_ONE_PATH
from support.raw import BOUND, Wire
from support.segments import become, create
from support.servers.node import Server
from support.transaction_logs import (
    Producers,
    followed,
    log_of,
    publish_own,
    publish_records,
    range_of,
    records_of,
)

pytestmark = ON_ONE_PATH

COMMITTED = True
NO_MEMORY = ReadCommitted(max_messages=1)
"""Reads nearly every transaction again."""


def words(messages: list[Message]) -> str:
    return " ".join(message.value.decode() for message in messages)


async def write(client: Client, stream: str, log: str, partition: int = 0) -> None:
    """Publish a log in words; see `log_of`."""
    records = [
        Record(each.value, headers=each.headers, partition=partition)
        for each in records_of(log_of(log))
    ]
    await publish_records(client, stream, records)


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    await client.create_stream(stream_name)
    return stream_name


LOG = "- A1c B1c A2c - B2/2/0 A3/1/0 A4c -"
SHOWN = "- - B1c A1c A2c -"
"""What is committed of it; the rest of A is open."""


@pytest.mark.parametrize("committed", [COMMITTED, NO_MEMORY, ReadCommitted(max_bytes=1)])
async def test_a_transaction_is_shown_at_its_ack(
    client: Client, stream: str, committed: bool | ReadCommitted
) -> None:
    await write(client, stream, LOG)
    async with client.read(stream, partition=0, committed=committed) as reading:
        found = await rest(reading)
        assert words(found) == SHOWN
        assert reading.end_reason is EndReason.STOP_REACHED
        assert reading.position == 9
    assert [message.offset for message in found] == [0, 4, 2, 1, 3, 8]
    assert [message.headers for message in found] == [{"word": b"yes"}] * 6


async def test_all_of_the_log_is_shown_uncommitted(client: Client, stream: str) -> None:
    """Acks included; the headers of transactions stand apart."""
    await write(client, stream, LOG)
    found = await rest(client.read(stream, partition=0))
    assert [message.offset for message in found] == list(range(9))
    acks = [message for message in found if ACK_HEADER in message.transaction_headers]
    assert [message.offset for message in acks] == [5, 6]
    assert all(message.headers == {} for message in acks)
    assert [len(found[n].transaction_headers) for n in (0, 1)] == [0, 1]


async def test_acks_are_shown_if_asked_for(client: Client, stream: str) -> None:
    await write(client, stream, "A1c - A2/0/0 A3c A2/-1/2")
    found = await rest(client.read(stream, partition=0, committed=ReadCommitted(acks=True)))
    assert [message.offset for message in found] == [1, 0, 2, 4]


async def test_a_forwarded_message_takes_no_part(client: Client, stream: str) -> None:
    await write(client, stream, "A1c A2/0/0")
    (message,) = await rest(client.read(stream, partition=0, committed=COMMITTED))
    await client.publish(stream, b"forwarded", headers=message.headers)
    (again,) = await client.last(stream, partition=0, n=1)
    assert again.transaction_headers == {}
    assert again.headers == {"word": b"yes"}


async def test_a_transaction_may_begin_before_the_start(client: Client, stream: str) -> None:
    await write(client, stream, LOG)
    for start, expected in ((3, "- B1c A1c A2c -"), (6, "A1c A2c -"), (7, "-")):
        found = await rest(
            client.read(stream, partition=0, start=StartAt.offset(start), committed=COMMITTED)
        )
        assert words(found) == expected


async def test_the_stop_counts_acks(client: Client, stream: str) -> None:
    await write(client, stream, LOG)
    for stop, expected in ((4, "- -"), (5, "- - B1c"), (6, "- - B1c A1c A2c")):
        reading = client.read(stream, partition=0, stop=StopAt.offset(stop), committed=NO_MEMORY)
        assert words(await rest(reading)) == expected


async def test_the_position_passes_over_what_is_not_shown(client: Client, stream: str) -> None:
    await write(client, stream, "- A1c A2c")
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as subscription:
        await take(subscription, 1)
        waiting = asyncio.create_task(anext(subscription))
        await eventually(lambda: subscription.position == 3)
        assert await subscription.lag() == 0
        await write(client, stream, "A3/1/0")
        async with asyncio.timeout(BOUND):
            assert (await waiting).offset == 1
        assert (subscription.position, await subscription.lag()) == (3, 1)  # its ack is not passed
        await take(subscription, 1)
        assert (subscription.position, await subscription.lag()) == (4, 0)


@pytest.mark.parametrize("committed", [COMMITTED, NO_MEMORY])
async def test_a_cursor_stands_between_transactions(
    client: Client, stream: str, committed: bool | ReadCommitted
) -> None:
    """Who leaves in the middle of a transaction gets the whole of it again."""

    async def read(count: int) -> str:
        async with client.subscribe(
            stream, partition=0, start=EARLIEST, cursor="reader", committed=committed
        ) as subscription:
            return words(await take(subscription, count))

    await write(client, stream, "- A1c A2c - A3/1/0 - B1c B2/6/0")
    assert await read(3) == "- - A1c"
    assert await client.fetch_cursor("reader", stream, 0) == 3
    assert await read(2) == "A1c A2c"
    assert await read(2) == "- B1c"
    assert await client.fetch_cursor("reader", stream, 0) == 7


async def test_seeks_count_acks(client: Client, stream: str) -> None:
    await write(client, stream, LOG)
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as subscription:
        assert words(await take(subscription, 6)) == SHOWN
        await subscription.seek(6)
        assert words(await take(subscription, 3)) == "A1c A2c -"


@pytest.mark.parametrize("most", [1, 2, 100])
@pytest.mark.parametrize("committed", [COMMITTED, NO_MEMORY])
async def test_batches(
    client: Client, stream: str, committed: bool | ReadCommitted, most: int
) -> None:
    await write(client, stream, LOG)
    async with client.read(stream, partition=0, committed=committed) as reading:
        lists = [each async for each in reading.batches(max_size=most)]
    assert words(list(chain.from_iterable(lists))) == SHOWN
    assert max(map(len, lists)) <= most


async def test_several_partitions(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=2)
    await write(client, stream_name, LOG, 0)
    await write(client, stream_name, "A1c A2/0/0", 1)
    async with client.read(stream_name, committed=NO_MEMORY) as reading:
        found = await rest(reading)
        assert reading.positions == {0: 9, 1: 2}
    by_partition = [[each for each in found if each.partition == n] for n in (0, 1)]
    assert [words(each) for each in by_partition] == [SHOWN, "A1c"]


@pytest.mark.parametrize("count", [0, 1, 3, 100])
async def test_the_last_ones(client: Client, stream: str, count: int) -> None:
    await write(client, stream, LOG + " C1c C2c C3c C4c C5c C6c C7c C8c")
    expected = SHOWN.split()[-count:] if count else []
    assert words(await client.last(stream, partition=0, n=count, committed=COMMITTED)) == " ".join(
        expected
    )


async def test_a_member_of_a_group(client: Client, stream: str) -> None:
    await write(client, stream, LOG)

    async def read(count: int) -> str:
        async with (
            asyncio.timeout(BOUND),
            client.group(stream, [stream], start=EARLIEST, committed=NO_MEMORY) as member,
        ):
            return words([await anext(member) for _ in range(count)])

    assert await read(4) == "- - B1c A1c"
    assert await read(3) == "A1c A2c -"


async def test_a_transaction_larger_than_the_buffer(client: Client, stream: str) -> None:
    count = 5_000
    log = " ".join(f"A{n}c" for n in range(1, count + 1)) + f" A{count + 1}/0/0"
    await write(client, stream, log)
    for committed in (COMMITTED, ReadCommitted(max_messages=100)):
        found = await rest(client.read(stream, partition=0, committed=committed))
        assert [message.offset for message in found] == list(range(count))


@pytest.mark.parametrize(
    ("headers", "value", "expected"),
    [
        ({ACK_HEADER: b"\2"}, b"", NewerFormat),
        ({ACK_HEADER: b"\1"}, b"\xff", MalformedAck),
        ({ACK_HEADER: b"garbage"}, b"", MalformedAck),
    ],
)
async def test_acks_that_cannot_be_understood_end_the_reading(
    client: Client,
    stream: str,
    headers: dict[str, bytes],
    value: bytes,
    expected: type[NewerFormat | MalformedAck],
) -> None:
    await write(client, stream, "- A1c")
    await publish_own(client, OutgoingMessage(stream, value, own_headers=headers))
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as reading:
        await take(reading, 1)
        with pytest.raises(expected) as caught:
            await anext(reading)
        assert (caught.value.stream, caught.value.partition, caught.value.offset) == (stream, 0, 2)
        assert reading.position == 2
    await client.publish(stream, b"behind")
    found = await rest(
        client.read(stream, partition=0, start=StartAt.offset(3), committed=COMMITTED)
    )
    assert words(found) == "behind"


async def test_malformed_acks_are_skipped_by_policy(client: Client, stream: str) -> None:
    await write(client, stream, "- A1c")
    garbage = OutgoingMessage(stream, b"", own_headers={ACK_HEADER: b"garbage"})
    await publish_own(client, garbage)
    await write(client, stream, "A2c A3/1/0")
    committed = ReadCommitted(on_malformed="skip", max_messages=1)
    skipping: Any = {"start": EARLIEST, "committed": committed}
    assert words(await rest(client.read(stream, partition=0, committed=committed))) == "- A1c A2c"
    async with client.group("g", [stream], **skipping) as group, asyncio.timeout(BOUND):
        assert words([await anext(group) for _ in range(3)]) == "- A1c A2c"
    async with (
        client.queue(stream, group="q", options=QueueOptions(**skipping)) as queue,
        asyncio.timeout(BOUND),
    ):
        assert [(await anext(queue)).value for _ in range(3)] == [b"-", b"A1c", b"A2c"]
    shown = client.committed_range(stream, partition=0, start=0, end=5, on_malformed="skip")
    assert words(await rest(shown)) == "- A1c A2c"
    assert (
        words(await rest(client.committed_range(stream, partition=0, start=3, end=5))) == "A1c A2c"
    )  # not its range
    explanation = await client.explain(stream, on_malformed="skip")
    assert (explanation.malformed, explanation.open) == (1, ())
    assert str(explanation).splitlines()[1:] == ["1 malformed ack was skipped"]


async def test_a_malformed_ack_is_told_with_its_place_and_a_way_past_it(
    client: Client, stream: str
) -> None:
    await write(client, stream, "- -")
    garbage = OutgoingMessage(stream, b"", own_headers={ACK_HEADER: b"garbage"})
    await publish_own(client, garbage)
    failing: list[Awaitable[object]] = [
        rest(client.committed_range(stream, partition=0, start=0, end=3)),
        client.explain(stream),
    ]
    for reading in failing:
        with pytest.raises(MalformedAck, match=r"on_malformed='skip'") as caught:
            await reading
        assert (caught.value.stream, caught.value.partition, caught.value.offset) == (stream, 0, 2)


@pytest.mark.parametrize("name", [ACK_HEADER, UUID_HEADER])
async def test_publishing_headers_of_transactions_is_refused(
    client: Client, stream: str, name: str
) -> None:
    await client.publish(stream, b"first", headers={"plain": b""})
    for value in ({name: b"\1"}, MappingProxyType({name: b"\1"})):
        with pytest.raises(InvalidRequest, match=name):
            await client.publish(stream, b"", headers=value)
        with pytest.raises(PublishManyFailed, match=name):
            await client.publish_many(stream, [Record(b"", headers=value)])
        with pytest.raises(InvalidRequest, match=name):
            await client.publish_to_subject(stream, b"", headers=value)
        with pytest.raises(InvalidRequest, match=name):
            encode_message(b"", headers=value)
    assert len(await rest(client.read(stream, partition=0))) == 1


@pytest.mark.parametrize(
    ("on_truncated", "expected"), [("error", None), ("emit", "- A2c -"), ("skip", "- -")]
)
async def test_a_transaction_whose_begin_is_gone(
    client: Client, wire: Wire, cleaned_stream: str, on_truncated: str, expected: str | None
) -> None:
    await create(wire, cleaned_stream, retention_max_messages=4)
    await write(client, cleaned_stream, "A1c A2c - A3/0/0 -")
    await become(wire, cleaned_stream, [1, 2, 3, 4])
    committed = ReadCommitted(on_truncated=on_truncated)  # type: ignore[arg-type]
    async with client.subscribe(
        cleaned_stream, partition=0, start=EARLIEST, committed=committed
    ) as reading:
        if expected is not None:
            assert words(await take(reading, len(expected.split()))) == expected
            return
        await take(reading, 1)
        with pytest.raises(TransactionTruncated, match="began at offset 0") as caught:
            await anext(reading)
        assert (caught.value.stream, caught.value.offset) == (cleaned_stream, 3)


async def test_what_does_not_go_with_it_is_refused(client: Client, stream: str) -> None:
    with pytest.raises(InvalidRequest, match="goes forward"):
        client.subscribe(stream, partition=0, reverse=True, committed=COMMITTED)
    with pytest.raises(WrongType, match="committed must"):
        client.subscribe(stream, partition=0, committed="read committed")  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="on_truncated"):
        ReadCommitted(on_truncated="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="max_messages"):
        ReadCommitted(max_messages=0)
    await client.publish(stream, b"")
    async with client.read(stream, partition=0, committed=COMMITTED) as reading:
        with pytest.raises(UsageError, match="raw"):
            await anext(reading.batches(raw=True))
        with pytest.raises(UsageError, match="columns"):
            await reading.read_columns(1)


@pytest.mark.parametrize("seed", range(2))
async def test_random_logs(client: Client, stream: str, seed: int) -> None:
    """Readings agree with the pure core, wherever they start and whatever they keep."""
    chance = random.Random(seed)
    producers = Producers(chance)
    while len(producers.words) < 150:
        producers.write()
    log = " ".join(producers.words)
    await write(client, stream, log)
    expected = followed(log_of(log))
    for committed in (COMMITTED, ReadCommitted(max_messages=chance.randrange(1, 6))):
        found = await rest(client.read(stream, partition=0, committed=committed))
        assert [message.offset for message in found] == [row.offset for row in expected]
    start = chance.randrange(150)
    found = await rest(
        client.read(stream, partition=0, start=StartAt.offset(start), committed=COMMITTED)
    )
    assert [each.offset for each in found if not each.value.endswith(b"o")] == [
        row.offset for row in expected if row.position >= start and not row.message.endswith("o")
    ]


# Ranges


async def ranged(client: Client, stream: str, start: int, end: int, **options: Any) -> str:
    return words(
        await rest(client.committed_range(stream, partition=0, start=start, end=end, **options))
    )


async def test_a_range_shows_transactions_whose_acks_are_in_it(client: Client, stream: str) -> None:
    await write(client, stream, LOG)
    assert await ranged(client, stream, 0, 9) == SHOWN
    assert await ranged(client, stream, 0, 6) == "- - B1c"
    assert await ranged(client, stream, 6, 7) == "A1c A2c"
    assert await ranged(client, stream, 7, 9) == "-"
    assert await ranged(client, stream, 0, 0) == ""
    assert await ranged(client, stream, 5, 5) == ""


async def test_a_range_recognises_repeats_within_the_look_back(client: Client, stream: str) -> None:
    await write(client, stream, "A1o A2o - A1o A2o A3o")
    assert await ranged(client, stream, 0, 6) == "A1o A2o - A3o"
    assert await ranged(client, stream, 3, 6) == "A3o"
    assert await ranged(client, stream, 3, 6, look_back=2) == "A3o"
    assert await ranged(client, stream, 3, 6, look_back=1) == "A1o A2o A3o"
    assert await ranged(client, stream, 3, 6, look_back=0) == "A1o A2o A3o"


async def test_the_transactions_of_an_ack_are_read_again_at_once(
    server: Server, client: Client, stream: str
) -> None:
    """One call for the union of their spans, in the order of the ack."""
    letters = "ABCDEFGH"
    begun = " ".join(f"{letter}1c" for letter in letters)
    ack = "+".join(f"{letter}2/{place}/0" for place, letter in enumerate(letters))
    await write(client, stream, f"{begun} - {ack}")
    hook = Watcher()
    async with Client(server.address, options=ClientOptions(hook=hook)) as watched:
        assert await ranged(watched, stream, 9, 10, look_back=0) == begun
    assert len(hook.subscriptions) == 2


async def test_ranges_are_refused_that_make_no_sense(client: Client, stream: str) -> None:
    for start, end in ((-1, 2), (3, 2), (0, 2**63)):
        with pytest.raises(InvalidRequest):
            client.committed_range(stream, partition=0, start=start, end=end)
    with pytest.raises(InvalidRequest, match="look_back"):
        client.committed_range(stream, partition=0, start=0, end=1, look_back=-1)


async def test_a_range_whose_transaction_is_truncated(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, retention_max_messages=4)
    await write(client, cleaned_stream, "A1c A2c - A3/0/0 -")
    await become(wire, cleaned_stream, [1, 2, 3, 4])
    with pytest.raises(TransactionTruncated):
        await ranged(client, cleaned_stream, 3, 5)
    assert await ranged(client, cleaned_stream, 3, 5, on_truncated="emit") == "A2c -"
    assert await ranged(client, cleaned_stream, 3, 5, on_truncated="skip") == "-"
    assert await ranged(client, cleaned_stream, 0, 3) == "-"


@pytest.mark.parametrize("seed", range(2))
async def test_ranges_of_random_logs(client: Client, stream: str, seed: int) -> None:
    """Ranges agree with the pure rule, wherever the log is cut."""
    chance = random.Random(seed)
    producers = Producers(chance)
    while len(producers.words) < 120:
        producers.write()
    log = log_of(" ".join(producers.words))
    await write(client, stream, " ".join(producers.words))
    cuts = sorted({0, len(log), *(chance.randrange(len(log)) for _ in range(5))})
    for start, end in pairwise(cuts):
        look_back = chance.randrange(30)
        found = await rest(
            client.committed_range(stream, partition=0, start=start, end=end, look_back=look_back)
        )
        expected = range_of(log, start, end, look_back)
        assert [message.offset for message in found] == [row.offset for row in expected]


# Checkpoints


@pytest.mark.parametrize("committed", [COMMITTED, NO_MEMORY, ReadCommitted(acks=True)])
async def test_a_checkpoint_resumes_behind_each_message(
    client: Client, stream: str, committed: bool | ReadCommitted
) -> None:
    """In the middle of transactions too, and single messages are not shown again."""
    await write(client, stream, "B1o A1c A2c - A3c A4/1/0 B1o B2o C1c B3o D1c C2/8/0+D2/10/0 B3o -")
    stop = StopAt.latest()
    whole = [
        each.offset for each in await rest(client.read(stream, partition=0, committed=committed))
    ]
    for count in range(len(whole) + 1):
        async with client.subscribe(
            stream, partition=0, start=EARLIEST, committed=committed
        ) as subscription:
            assert [each.offset for each in await take(subscription, count)] == whole[:count]
            checkpoint = subscription.checkpoint()
        if count:
            assert subscription.checkpoint() == checkpoint
        checkpoint = Checkpoint.from_bytes(bytes(checkpoint))
        async with client.subscribe(
            stream, partition=0, start=checkpoint, stop=stop, committed=committed
        ) as resumed:
            assert [each.offset for each in await rest(resumed)] == whole[count:]


@pytest.mark.parametrize("seed", range(2))
async def test_checkpoints_of_random_logs(client: Client, stream: str, seed: int) -> None:
    chance = random.Random(seed)
    producers = Producers(chance)
    while len(producers.words) < 120:
        producers.write()
    await write(client, stream, " ".join(producers.words))
    expected = [row.offset for row in followed(log_of(" ".join(producers.words)))]
    found: list[Message] = []
    start, last = EARLIEST, False
    while not last:
        committed = ReadCommitted(max_messages=chance.randrange(1, 9))
        async with client.read(stream, partition=0, start=start, committed=committed) as reading:
            async for batch in reading.batches(max_size=chance.randrange(1, 20)):
                found += batch
                break
            else:
                last = True
            start = reading.checkpoint()
    assert [message.offset for message in found] == expected


async def test_a_checkpoint_forgets_the_producers_beyond_its_bound(
    client: Client, stream: str
) -> None:
    """What they repeat is delivered again; nothing else is."""
    committed = ReadCommitted(max_producers=2)
    await write(client, stream, "A1o B1o C1o")
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=committed
    ) as subscription:
        assert words(await take(subscription, 3)) == "A1o B1o C1o"
        checkpoint = subscription.checkpoint()
    assert checkpoint.producers is not None
    assert len(checkpoint.producers) == 2
    await write(client, stream, "A1o B1o C1o")
    async with client.read(stream, partition=0, start=checkpoint, committed=COMMITTED) as resumed:
        assert words(await rest(resumed)) == "A1o"


async def test_a_checkpoint_of_several_partitions(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=2)
    await write(client, stream_name, LOG, 0)
    await write(client, stream_name, "A1c A2c A3/0/0", 1)
    every = None
    async with client.read(stream_name, partition=every, committed=COMMITTED) as reading:
        first = [await anext(reading) for _ in range(4)]
        checkpoint = reading.checkpoint()
    async with client.read(
        stream_name, start=checkpoint, partition=every, committed=COMMITTED
    ) as reading:
        both = first + await rest(reading)
    by_partition = [[each for each in both if each.partition == n] for n in (0, 1)]
    assert [words(each) for each in by_partition] == [SHOWN, "A1c A2c"]


async def test_a_checkpoint_before_the_first_message(client: Client, stream: str) -> None:
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as subscription:
        checkpoint = Checkpoint.from_bytes(bytes(subscription.checkpoint()))
    await write(client, stream, LOG)
    assert (
        words(await rest(client.read(stream, partition=0, start=checkpoint, committed=COMMITTED)))
        == SHOWN
    )


async def test_a_checkpoint_is_of_one_log(client: Client, stream: str) -> None:
    await write(client, stream, LOG)
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=COMMITTED
    ) as subscription:
        await take(subscription, 2)
        checkpoint = subscription.checkpoint()
        plain = client.subscribe(stream, partition=0, start=EARLIEST).checkpoint()
    with pytest.raises(InvalidRequest, match="read committed from it"):
        client.subscribe(stream, partition=0, start=checkpoint)
    with pytest.raises(InvalidRequest, match=f"one of {stream}/0"):
        client.subscribe(stream, partition=1, start=checkpoint, committed=COMMITTED)
    with pytest.raises(InvalidRequest, match="reverse"):
        client.subscribe(stream, partition=0, start=plain, reverse=True)
    with pytest.raises(MalformedData, match="version 0"):
        Checkpoint.from_bytes(b"")
    await client.delete_stream(stream)
    await client.create_stream(stream)
    await write(client, stream, LOG)
    with pytest.raises(StreamReset, match="created again"):
        async with client.subscribe(stream, partition=0, start=checkpoint, committed=COMMITTED):
            pass


# Single messages that are repeated behind a start


async def test_a_cursor_recognises_repeats_within_the_look_back(
    client: Client, stream: str
) -> None:
    async def read(count: int, committed: bool | ReadCommitted = COMMITTED) -> str:
        async with client.subscribe(
            stream, partition=0, start=EARLIEST, cursor="reader", committed=committed
        ) as subscription:
            return words(await take(subscription, count))

    await write(client, stream, "A1o A2o -")
    assert await read(3) == "A1o A2o -"
    await write(client, stream, "A1o A2o A3o")
    assert await read(1) == "A3o"
    await write(client, stream, "A2o A4o")
    assert await read(1, ReadCommitted(look_back=0)) == "A2o"
    assert await read(1) == "A4o"


async def test_a_group_recognises_repeats_within_the_look_back(client: Client, stream: str) -> None:
    async def read(count: int) -> str:
        async with (
            asyncio.timeout(BOUND),
            client.group(stream, [stream], start=EARLIEST, committed=COMMITTED) as member,
        ):
            return words([await anext(member) for _ in range(count)])

    await write(client, stream, "A1o A2o -")
    assert await read(3) == "A1o A2o -"
    await write(client, stream, "A1o A2o A3o")
    assert await read(1) == "A3o"


async def test_looking_back_does_not_wait_for_what_does_not_exist(
    client: Client, stream: str
) -> None:
    await write(client, stream, "A1o")
    async with client.subscribe(
        stream, partition=0, start=StartAt.offset(5), committed=COMMITTED
    ) as subscription:
        assert subscription.position == 5
        await write(client, stream, "- - - - A1o A2o")
        assert words(await take(subscription, 1)) == "A2o"


# Streams that do not suit transactions


async def test_a_compacted_stream_is_refused(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    """By producers as soon as its oldest messages have gaps, by readings at a gap."""
    await create(wire, cleaned_stream, compact_enabled=True)
    records = [
        Record(each.value, b"k" if number == 1 else None, headers=each.headers)
        for number, each in enumerate(records_of(log_of("- - - A1c A2/3/0 -")))
    ]
    await publish_records(client, cleaned_stream, records)
    await client.publish(cleaned_stream, b"-", b"k")
    await become(wire, cleaned_stream, [0, 2, 3, 4, 5, 6])
    producer = client.producer()
    with pytest.raises(CompactedStream, match="compacted"):
        await producer.publish(cleaned_stream, b"x")
    with pytest.raises(CompactedStream, match="compacted"):
        async with producer.transaction() as transaction:
            await transaction.publish(cleaned_stream, b"x")
    with pytest.raises(CompactedStream, match="no message at offset 1"):
        await rest(client.read(cleaned_stream, partition=0, committed=COMMITTED))
    all_the_same = client.read(
        cleaned_stream, partition=0, committed=ReadCommitted(on_truncated="emit")
    )
    assert words(await rest(all_the_same)) == "- - A1c - -"


# Why a reading shows nothing


async def test_open_transactions_are_explained_and_rolled_back(client: Client, stream: str) -> None:
    await write(client, stream, "A1c B1c A2c C1o D1c C2c D2o B0/1/0!")
    explanation = await client.explain(stream)
    [first, second] = explanation.open
    assert (first.begin, first.newest, first.messages) == (0, 2, 2)
    assert (second.begin, second.newest, second.messages) == (5, 5, 1)
    assert explanation.high_watermark == explanation.newest_offset == 7
    assert "messages: 2, offsets: 0 to 2" in str(explanation)
    with pytest.raises(TransactionActive) as caught:
        await client.abort_transaction(first)
    assert (caught.value.stream, caught.value.partition, caught.value.offset) == (stream, 0, 2)
    await client.abort_transaction(first, force=True)
    assert (await client.explain(stream)).open == (second,)
    await write(client, stream, "A3c A4/0/0")
    shown = await rest(client.read(stream, partition=0, committed=COMMITTED))
    assert words(shown) == "C1o D2o"
    assert "nothing is open" in str(await client.explain(stream, 0, StartAt.offset(6)))


# Parts that are read again


@pytest.fixture
def long_log(client: Client, stream: str) -> Callable[[int], Awaitable[None]]:
    async def write_it(count: int) -> None:
        log = " ".join(f"A{n}c" for n in range(1, count + 1)) + f" A{count + 1}/0/0 -"
        await write(client, stream, log)

    return write_it


async def test_leaving_while_a_part_is_read_again(
    client: Client, stream: str, long_log: Callable[[int], Awaitable[None]]
) -> None:
    """Nothing is left behind, and the position is before the transaction's ack."""
    await long_log(3000)
    for _ in range(5):
        async with client.subscribe(
            stream, partition=0, start=EARLIEST, committed=NO_MEMORY
        ) as reading:
            waiting = asyncio.create_task(anext(reading))
            await eventually(lambda: reading.position == 3000)
            waiting.cancel()
        assert reading.checkpoint().value == 3000
    assert not client.statistics().subscriptions
    found = await rest(
        client.read(stream, partition=0, start=reading.checkpoint(), committed=NO_MEMORY)
    )
    assert len(found) == 3001


async def test_a_seek_while_a_part_is_read_again(
    client: Client, stream: str, long_log: Callable[[int], Awaitable[None]]
) -> None:
    await long_log(3000)
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=NO_MEMORY
    ) as reading:
        waiting = asyncio.create_task(anext(reading))
        await eventually(lambda: reading.position == 3000)
        await reading.seek(3001)
        async with asyncio.timeout(BOUND):
            assert (await waiting).value == b"-"
        assert reading.position == 3002


async def test_a_slow_reader_with_a_tiny_buffer(
    server: Server, stream: str, long_log: Callable[[int], Awaitable[None]]
) -> None:
    await long_log(2000)
    options = ClientOptions(max_buffered_bytes=2**16)
    for committed in (COMMITTED, ReadCommitted(max_messages=7)):
        async with Client(server.address, options=options) as small:
            found = await rest(small.read(stream, partition=0, committed=committed))
        assert [message.offset for message in found] == [*range(2000), 2001]


async def test_a_part_that_is_gone_with_its_stream_is_not_another_one(
    client: Client, stream: str
) -> None:
    """The transaction is not looked for in the log of a stream that was created again."""
    await write(client, stream, "- A1c A2c A3/1/0 -")
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=NO_MEMORY
    ) as reading:
        await eventually(lambda: reading.last_offset == 4)
        await client.delete_stream(stream)
        await client.create_stream(stream)
        await write(client, stream, "- - - - - -")
        await take(reading, 1)
        with pytest.raises((StreamReset, StreamDeleted)):
            await take(reading, 2)


async def test_a_paused_partition_ends_a_part_too(client: Client, stream: str) -> None:
    await write(client, stream, "- A1c A2c A3/1/0")
    async with client.subscribe(
        stream, partition=0, start=EARLIEST, committed=NO_MEMORY
    ) as reading:
        await eventually(lambda: reading.last_offset == 3)
        await client.pause_stream(stream)
        await take(reading, 1)
        with pytest.raises(PartitionPaused):
            await take(reading, 1)
        checkpoint = reading.checkpoint()
    async with client.subscribe(
        stream,
        partition=0,
        start=checkpoint,
        stop=StopAt.offset(3),
        committed=NO_MEMORY,
        unpause=True,
    ) as reading:
        assert words(await rest(reading)) == "A1c A2c"


async def test_values_of_a_committed_reading(client: Client, stream: str) -> None:
    await write(client, stream, LOG)
    values = client.values(stream)
    found = [
        item.value
        async for item in values.read(client.read(stream, partition=0, committed=COMMITTED))
    ]
    assert b" ".join(found).decode() == SHOWN
