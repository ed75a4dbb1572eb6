"""Values through the client: published, read, compressed, and poison among them."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import msgspec
import pydantic
import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    ClientOptions,
    Hook,
    InvalidRequest,
    Message,
    MessageTooLarge,
    PublishManyFailed,
    StartAt,
    StreamDeleted,
    UndecodableMessage,
    WrongType,
)
from liftbridge_aio.compression import Compression, Gzip, Zlib, Zstd
from liftbridge_aio.serializers import (
    JSON,
    JsonSerializer,
    MsgspecSerializer,
    PydanticSerializer,
    Serializer,
)
from liftbridge_aio.telemetry import MessageSkipped
from liftbridge_aio.values import Decoded, Undecodable, Undecoded
from support.clients import EARLIEST, LATEST, read_out, values
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND
from support.servers.node import Server

pytestmark = ON_ONE_PATH


class Order(pydantic.BaseModel):
    number: int
    note: str = ""


class Payment(msgspec.Struct):
    number: int
    note: str = ""


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    await client.create_stream(stream_name)
    return stream_name


@pytest.fixture
async def poisoned(client: Client, stream: str) -> str:
    """A stream of good orders with all kinds of poison among them, at the offsets 1, 3, 4, 6.

    That at offset 4 is none for those who take a megabyte.
    """
    orders = client.values(stream, JSON)
    good = orders.record({"number": 1})
    await client.publish(stream, good.value)
    await client.publish(stream, b"{")
    await client.publish(stream, good.value)
    await client.publish(stream, b"noise", headers={"X-Msg-Encoding": b"gzip"})
    large = zlib.compress(b"[%s]" % (b" " * 2**20))
    await client.publish(stream, large, headers={"X-Msg-Encoding": b"zlib"})
    await client.publish(stream, good.value)
    await client.publish(stream, good.value, headers={"X-Msg-Encoding": b"brotli"})
    await client.publish(stream, good.value)
    return stream


POISON = [1, 3, 4, 6]
GOOD = [0, 2, 5, 7]


def as_json(number: int, note: str) -> object:
    return {"number": number, "note": note}


def as_model(number: int, note: str) -> Order:
    return Order(number=number, note=note)


@pytest.mark.parametrize(
    ("serializer", "make", "compression"),
    [
        pytest.param(JSON, as_json, None, id="json"),
        pytest.param(JSON, as_json, Zlib(), id="json-zlib"),
        pytest.param(PydanticSerializer(Order), as_model, Gzip(), id="pydantic-gzip"),
        pytest.param(MsgspecSerializer(Payment, "msgpack"), Payment, Zstd(), id="msgspec-zstd"),
    ],
)
async def test_values_come_back_and_long_ones_are_short_on_the_log(
    client: Client,
    stream: str,
    serializer: Serializer[Any],
    make: Any,
    compression: Compression | None,
) -> None:
    orders = client.values(stream, serializer, compression=compression)
    sent = [make(number, "x" * size) for number, size in enumerate([0, 9, 5000])]
    for value in sent[:2]:
        await orders.publish(value, b"key", {"trace": b"1"})
    await (await orders.publish_async(sent[2]))

    # Whoever reads need not know how it was compressed.
    plain = client.values(stream, serializer)
    async with (
        asyncio.timeout(BOUND),
        plain.subscribe(partition=0, start=EARLIEST, stop=LATEST) as reading,
    ):
        read = [decoded async for decoded in reading]
    assert [decoded.value for decoded in read] == sent
    messages = await read_out(client, stream)
    assert [decoded.message for decoded in read] == messages
    assert [message.headers.get("trace") for message in messages] == [b"1", b"1", None]
    assert [message.key for message in messages] == [b"key", b"key", b""]
    expected = None if compression is None else compression.encoding.encode()
    assert [m.headers.get("X-Msg-Encoding") for m in messages] == [None, None, expected]
    assert (len(messages[2].value) < 1000) == (compression is not None)


@ON_EMBEDDED
async def test_without_a_serialiser_values_are_bytes(client: Client, stream: str) -> None:
    blobs = client.values(stream, compression=Gzip())
    await blobs.publish(bytes(9999))
    async with asyncio.timeout(BOUND):
        async for blob in blobs.subscribe(start=EARLIEST):
            assert blob.value == bytes(9999)
            assert len(blob.message.value) < 999
            break


@ON_EMBEDDED
async def test_many_are_published_with_keys_of_their_own(client: Client, stream: str) -> None:
    orders = client.values(stream, PydanticSerializer(Order), compression=Zstd(min_bytes=0))
    sent = [Order(number=number, note="x" * 99) for number in range(20)]
    acks = await orders.publish_many(sent, key=lambda order: b"%d" % order.number)
    assert [ack.offset for ack in acks] == list(range(20))
    async with asyncio.timeout(BOUND):
        batches = [
            batch
            async for batch in orders.subscribe(partition=0, start=EARLIEST, stop=LATEST).batches(7)
        ]
    read = [decoded for batch in batches for decoded in batch]
    assert [decoded.value for decoded in read] == sent
    assert [decoded.message.key for decoded in read] == [b"%d" % number for number in range(20)]
    assert all(len(batch) <= 7 for batch in batches)
    assert [orders.decode(message) for message in await read_out(client, stream)] == sent


@ON_EMBEDDED
async def test_a_value_that_cannot_be_written_is_refused_before_anything_is_sent(
    client: Client, stream: str
) -> None:
    orders = client.values(stream, JSON, max_decompressed_bytes=100, compression=Gzip(min_bytes=0))
    for publish in (
        orders.publish(object(), partition=0),
        orders.publish_async(object(), partition=0),
        orders.publish_many([1, 2, object()]),
    ):
        with pytest.raises(InvalidRequest, match="cannot write this object") as caught:
            await publish
        assert not isinstance(caught.value, PublishManyFailed)
        assert caught.value.stream == stream
    with pytest.raises(MessageTooLarge):
        await orders.publish("x" * 101)
    with pytest.raises(InvalidRequest, match="X-Msg-Encoding"):
        await orders.publish(1, headers={"X-Msg-Encoding": b"mine"})
    assert await read_out(client, stream) == []


# Poison


@ON_EMBEDDED
async def test_poison_is_raised_with_its_place_and_the_reading_goes_on(
    client: Client, poisoned: str
) -> None:
    orders = client.values(poisoned, JSON, max_decompressed_bytes=2**19)
    async with (
        asyncio.timeout(BOUND),
        orders.subscribe(partition=0, start=EARLIEST, stop=LATEST) as reading,
    ):
        for offset in range(8):
            if offset in GOOD:
                assert (await anext(reading)).message.offset == offset
                continue
            with pytest.raises(UndecodableMessage) as caught:
                await anext(reading)
            error = caught.value
            assert (error.stream, error.partition, error.offset) == (poisoned, 0, offset)
            assert error.received is not None
            assert error.received.offset == offset
        with pytest.raises(StopAsyncIteration):
            await anext(reading)


@ON_EMBEDDED
@pytest.mark.parametrize("in_lists", [False, True])
async def test_poison_is_skipped_counted_and_told(
    server: Server, poisoned: str, in_lists: bool
) -> None:
    class Watcher(Hook):
        def message_skipped(self, event: MessageSkipped) -> None:
            skipped.append(event)

    skipped: list[MessageSkipped] = []
    async with (
        asyncio.timeout(BOUND),
        Client(server.address, options=ClientOptions(hook=Watcher())) as watched,
    ):
        orders = watched.values(
            poisoned, JSON, on_undecodable=Undecodable.SKIP, max_decompressed_bytes=2**19
        )
        reading = orders.subscribe(partition=0, start=EARLIEST, stop=LATEST)
        if in_lists:
            read = [decoded async for batch in reading.batches(3) for decoded in batch]
        else:
            read = [decoded async for decoded in reading]
        assert [decoded.message.offset for decoded in read] == GOOD
        assert reading.left_out == len(POISON)
        assert reading.source.statistics().delivered == len(GOOD) + len(POISON)
    assert [(event.stream, event.partition, event.offset) for event in skipped] == [
        (poisoned, 0, offset) for offset in POISON
    ]


@ON_EMBEDDED
async def test_poison_is_handed_over_raw(client: Client, poisoned: str) -> None:
    orders = client.values(
        poisoned, JSON, on_undecodable=Undecodable.RAW, max_decompressed_bytes=2**19
    )
    good: list[int] = []
    raw: list[int] = []
    async with asyncio.timeout(BOUND):
        async for item in orders.subscribe(partition=0, start=EARLIEST, stop=LATEST):
            match item:
                case Decoded(value, message):
                    assert value == {"number": 1}
                    good.append(message.offset)
                case Undecoded(message, error):
                    assert error.offset == message.offset
                    raw.append(message.offset)
    assert (good, raw) == (GOOD, POISON)


@ON_EMBEDDED
async def test_a_handler_can_wait_for_what_comes_after_poison(client: Client, stream: str) -> None:
    orders = client.values(stream, JSON, on_undecodable=Undecodable.SKIP)
    async with asyncio.timeout(BOUND), orders.subscribe(start=EARLIEST) as reading:
        step = asyncio.create_task(anext(reading))
        for _ in range(3):
            await client.publish(stream, b"{")
        await orders.publish([7])
        assert (await step).value == [7]


# Other sources


@ON_EMBEDDED
async def test_values_are_read_from_any_source_of_messages(client: Client, stream: str) -> None:
    orders = client.values(stream, JSON)
    await orders.publish_many([1, 2, 3])
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(stream, partition=0, start=EARLIEST) as subscription,
    ):
        reading = orders.read(subscription)
        assert reading.source is subscription
        assert (await anext(reading)).value == 1
        # The bytes can be read in between: there is one place, that of the subscription.
        assert values([await anext(subscription)]) == [b"2"]
        assert (await anext(reading)).value == 3
        assert [d.value async for d in orders.read(client.read(stream, partition=0))] == [1, 2, 3]
        last = await client.last(stream, partition=0, n=2)
        assert [orders.decode(message) for message in last] == [2, 3]
        no_source: Any = [1]
        with pytest.raises(WrongType):
            orders.read(no_source)


async def test_several_partitions_are_read_as_one(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=3)
    orders = client.values(stream_name, JSON, on_undecodable=Undecodable.SKIP)
    for partition in range(3):
        await orders.publish([partition, 0], partition=partition)
        await client.publish(stream_name, b"{", partition=partition)
        await orders.publish([partition, 1], partition=partition)
    async with asyncio.timeout(BOUND):
        async with orders.subscribe(start=EARLIEST, stop=LATEST) as reading:
            read = [decoded.value async for decoded in reading]
        assert reading.source.partitions == (0, 1, 2)
        listed = [
            decoded.value
            async for batch in orders.subscribe(
                partition=[2, 0], start=EARLIEST, stop=LATEST
            ).batches()
            for decoded in batch
        ]
    assert [value for value in read if value[0] == 1] == [[1, 0], [1, 1]]
    assert sorted(read) == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert sorted(listed) == [[0, 0], [0, 1], [2, 0], [2, 1]]


@ON_EMBEDDED
async def test_members_of_a_group_read_values(client: Client, stream: str) -> None:
    orders = client.values(stream, JSON, on_undecodable=Undecodable.RAW)
    await orders.publish(1)
    await client.publish(stream, b"{")
    await orders.publish(2)
    async with (
        asyncio.timeout(BOUND),
        client.group(f"group-{stream}", [stream], start=EARLIEST) as group,
    ):
        kinds = []
        async for item in orders.read(group):
            kinds.append(type(item))
            if item.message.offset == 2:
                break
    assert kinds == [Decoded, Undecoded, Decoded]
    assert await client.fetch_cursor(f"__group:group-{stream}", stream, 0) == 2


# Cursors


async def test_a_cursor_stays_before_poison_and_passes_what_is_skipped(
    client: Client, poisoned: str
) -> None:
    strict = client.values(poisoned, JSON)
    lenient = client.values(poisoned, JSON, on_undecodable=Undecodable.SKIP)

    async def read_strictly() -> None:
        async with strict.subscribe(
            partition=0, start=EARLIEST, stop=LATEST, cursor="reader"
        ) as reading:
            async for _ in reading:
                pass

    async with asyncio.timeout(BOUND):
        with pytest.raises(UndecodableMessage):
            await read_strictly()
        assert await client.fetch_cursor("reader", poisoned, 0) == 0
        async with lenient.subscribe(partition=0, start=EARLIEST, cursor="reader") as reading:
            assert (await anext(reading)).message.offset == 2
        assert await client.fetch_cursor("reader", poisoned, 0) == 2
        async with lenient.subscribe(
            partition=0, start=EARLIEST, stop=LATEST, cursor="reader"
        ) as reading:
            assert [decoded.message.offset async for decoded in reading] == [4, 5, 7]
        assert await client.fetch_cursor("reader", poisoned, 0) == 7


@ON_EMBEDDED
async def test_a_cursor_passes_nothing_of_a_list_that_was_not_handed_over(
    client: Client, poisoned: str
) -> None:
    orders = client.values(poisoned, JSON, max_decompressed_bytes=2**19)
    async with asyncio.timeout(BOUND):
        async with orders.subscribe(
            partition=0, start=EARLIEST, stop=LATEST, cursor="lists"
        ) as reading:
            batches = reading.batches(wait=0.2)
            assert [decoded.message.offset for decoded in await anext(batches)] == [0]
            with pytest.raises(UndecodableMessage):
                await anext(batches)
        assert await client.fetch_cursor("lists", poisoned, 0) == 1
        async with orders.subscribe(
            partition=0, start=EARLIEST, stop=LATEST, cursor="lists"
        ) as reading:
            read: list[int] = []
            batches = reading.batches()
            while True:
                try:
                    read += [decoded.message.offset for decoded in await anext(batches)]
                except UndecodableMessage:
                    continue
                except StopAsyncIteration:
                    break
        assert read == GOOD[1:]
        assert await client.fetch_cursor("lists", poisoned, 0) == 7


@pytest.mark.parametrize("kind", ["cursor", "merged", "group"])
async def test_who_leaves_at_poison_in_a_list_passes_nothing_of_the_rest(
    client: Client, stream: str, kind: str
) -> None:
    orders = client.values(stream, JSON)
    await client.publish_many(stream, [b"{" if n == 10 else b"%d" % n for n in range(20)])
    name = f"reader-{stream}"

    def source() -> Any:
        match kind:
            case "cursor":
                return client.subscribe(stream, partition=0, start=EARLIEST, cursor=name)
            case "merged":
                return client.subscribe(stream, partition=[0], start=EARLIEST, cursor=name)
        return client.group(name, [stream], start=EARLIEST)

    read: list[int] = []
    async with asyncio.timeout(BOUND):
        async with source() as left:
            batches = orders.read(left).batches(max_size=7, wait=BOUND)
            while len(read) < 10:
                read += [decoded.value for decoded in await anext(batches)]
            with pytest.raises(UndecodableMessage):
                await anext(batches)
        assert read == list(range(10))
        async with source() as taken_up:
            async for decoded in orders.read(taken_up):
                read.append(decoded.value)
                if decoded.value == 19:
                    break
    assert read == [n for n in range(20) if n != 10]


@ON_EMBEDDED
async def test_errors_of_the_subscription_come_through(client: Client, stream: str) -> None:
    async with asyncio.timeout(BOUND), client.values(stream, JSON).subscribe() as reading:
        step = asyncio.create_task(anext(reading))
        await client.delete_stream(stream)
        with pytest.raises(StreamDeleted):
            await step


@ON_EMBEDDED
async def test_values_may_be_told_of_before_the_client_is_connected(
    server: Server, stream: str
) -> None:
    later = Client(server.address)
    orders = later.values(stream, JSON)
    with pytest.raises(ClientClosed):
        orders.subscribe()
    with pytest.raises(ClientClosed):
        await orders.publish(1)
    async with asyncio.timeout(BOUND), later:
        await orders.publish(1)
        decoded = await anext(orders.subscribe(start=StartAt.earliest()))
    assert decoded.value == 1
    assert isinstance(decoded.message, Message)


@ON_EMBEDDED
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"stream": ""}, InvalidRequest),
        ({"stream": b"orders"}, WrongType),
        ({"on_undecodable": "skip"}, WrongType),
        ({"compression": "gzip"}, WrongType),
        ({"compression": Gzip}, WrongType),
        ({"serializer": None}, WrongType),
        ({"serializer": JsonSerializer}, WrongType),
        ({"max_decompressed_bytes": 0}, InvalidRequest),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(
    client: Client, arguments: dict[str, Any], error: type[Exception]
) -> None:
    values_of: Any = client.values
    with pytest.raises(error):
        values_of(**{"stream": "orders", "serializer": JSON} | arguments)
