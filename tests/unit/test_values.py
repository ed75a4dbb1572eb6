"""Values in messages: what is written is read, and what cannot be read is told apart."""

from __future__ import annotations

import inspect
import lzma
import pickle
import zlib
from collections.abc import Mapping
from typing import Any, assert_type

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liftbridge_aio import (
    AckPolicy,
    Client,
    ConsumerGroup,
    InvalidRequest,
    MergedSubscription,
    Message,
    MessageTooLarge,
    Subscription,
    UndecodableMessage,
    WrongType,
)
from liftbridge_aio._client.typed_stream import TypedStream
from liftbridge_aio._subscribe.typed_reader import TypedReader
from liftbridge_aio.compression import ENCODING_HEADER, Compression, Gzip, Zlib, Zstd
from liftbridge_aio.serializers import (
    BYTES,
    JSON,
    BytesSerializer,
    MsgspecSerializer,
    PydanticSerializer,
)
from liftbridge_aio.values import (
    Decoded,
    Undecodable,
    Undecoded,
    ValueCodec,
)
from support.examples import examples

LIMIT = 2**20


def codec(compression: Compression | None = None, limit: int = LIMIT) -> ValueCodec[bytes]:
    return ValueCodec(BYTES, compression, limit)


def message(value: bytes, headers: Mapping[str, bytes] | None = None, offset: int = 7) -> Message:
    return Message("orders", 2, offset, b"", value, 0, headers or {})


def gzipped(value: bytes, offset: int = 7) -> Message:
    return message(Gzip().compress(value), {ENCODING_HEADER: b"gzip"}, offset)


class Order(pydantic.BaseModel):
    number: int = 0


class Payment(msgspec.Struct):
    cents: int


class Lazy(BytesSerializer):
    """Fails as a serialiser of somebody else may."""

    def serialize(self, value: bytes, /) -> Any:
        if value == b"poison":
            raise LookupError("no such thing\nand more about it")
        return bytearray(value)

    def deserialize(self, data: bytes, /) -> bytes:
        raise LookupError(data)


@pytest.mark.parametrize("writer", [None, Gzip(), Zlib(9, 0), Zstd(min_bytes=0), Gzip(min_bytes=0)])
@pytest.mark.parametrize("reader", [None, Gzip(), Zstd()])
@settings(max_examples=examples(25))  # of each pair
@given(
    value=st.binary() | st.integers(0, 3000).map(bytes),
    headers=st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
)
def test_every_reader_reads_what_every_writer_writes_and_headers_stay(
    writer: Compression | None,
    reader: Compression | None,
    value: bytes,
    headers: Mapping[str, bytes] | None,
) -> None:
    data, sent = codec(writer).encode(value, headers)
    assert codec(reader).decode(message(data, sent)) == value
    assert {**(sent or {}), **(headers or {})} == (sent or {})
    assert set(sent or {}) - set(headers or {}) <= {ENCODING_HEADER}
    assert len(data) <= len(value)


def test_without_compression_neither_value_nor_headers_are_touched() -> None:
    value, headers = bytes(10_000), {"a": b"b"}
    data, sent = codec().encode(value, headers)
    assert data is value
    assert sent is headers


@pytest.mark.parametrize("compression", [None, Gzip()])
def test_a_header_with_the_name_of_ours_is_refused(compression: Compression | None) -> None:
    with pytest.raises(InvalidRequest, match=ENCODING_HEADER):
        codec(compression).encode(b"value", {ENCODING_HEADER: b"mine"})


def test_nothing_is_compressed_that_readers_would_refuse() -> None:
    codec(Gzip(), 1000).encode(bytes(1000), None)
    with pytest.raises(MessageTooLarge, match="max_decompressed_bytes"):
        codec(Gzip(), 1000).encode(bytes(1001), None)


def test_what_gufo_liftbridge_writes_is_read() -> None:
    # Its messages, written down: zlib.compress and lzma.compress, the name of the method as header.
    value = b"to and fro " * 99
    for method, compress in (("zlib", zlib.compress), ("lzma", lzma.compress)):
        sent = message(compress(value), {"X-Msg-Encoding": method.encode("utf-8")})
        assert codec().decode(sent) == value


def test_what_it_would_read_is_written() -> None:
    value = b"to and fro " * 99
    data, headers = codec(Zlib()).encode(value, None)
    assert headers == {"X-Msg-Encoding": b"zlib"}
    assert zlib.decompress(data) == value


def test_a_compression_of_ones_own_is_read_by_those_who_have_it() -> None:
    class Reversed:
        encoding = "reversed"
        min_bytes = 0

        def compress(self, data: bytes, /) -> bytes:
            return data.rstrip()[::-1]

        def decompress(self, data: bytes, max_bytes: int, /) -> bytes:
            assert max_bytes == LIMIT
            return data[::-1] + b" "

    data, headers = codec(Reversed()).encode(b"abc ", None)
    assert (data, headers) == (b"cba", {ENCODING_HEADER: b"reversed"})
    assert codec(Reversed()).decode(message(data, headers)) == b"abc "
    with pytest.raises(UndecodableMessage, match="unknown encoding b'reversed'"):
        codec().decode(message(data, headers))


@pytest.mark.parametrize(
    ("received", "why"),
    [
        pytest.param(message(b"xx", {ENCODING_HEADER: b"gzip"}), "header", id="damaged"),
        pytest.param(
            message(b"x", {ENCODING_HEADER: b"\xff" * 999}), "unknown encoding", id="unknown"
        ),
        pytest.param(message(b"x", {ENCODING_HEADER: b""}), "unknown encoding", id="empty"),
        pytest.param(gzipped(bytes(LIMIT + 1)), "more than", id="bomb"),
        pytest.param(gzipped(b"{"), "Expecting property name", id="value"),
    ],
)
def test_what_cannot_be_read_says_where_why_and_what_to_do(received: Message, why: str) -> None:
    with pytest.raises(UndecodableMessage, match=why) as caught:
        ValueCodec(JSON, None, LIMIT).decode(received)
    error = caught.value
    assert (error.stream, error.partition, error.offset) == ("orders", 2, 7)
    assert error.received is received
    assert error.__cause__ is not None
    assert "on_undecodable" in str(error)
    assert len(str(error)) < 500
    assert pickle.loads(pickle.dumps(error)).received == received  # noqa: S301 - made here


def test_messages_of_an_extra_that_is_missing_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> None:
        raise ImportError("install it")

    sent = message(Zstd().compress(b"x"), {ENCODING_HEADER: b"zstd"})
    monkeypatch.setattr("liftbridge_aio.compression._zstd", missing)
    with pytest.raises(UndecodableMessage, match="ImportError: install it"):
        codec().decode(sent)


def test_whatever_a_serialiser_raises_is_told_apart() -> None:
    lazy = ValueCodec(Lazy(), None, LIMIT)
    with pytest.raises(UndecodableMessage, match="LookupError"):
        lazy.decode(message(b"x"))
    with pytest.raises(InvalidRequest, match="cannot write this bytes: LookupError: no such") as no:
        lazy.encode(b"poison", None)
    assert "and more" not in str(no.value)
    with pytest.raises(WrongType, match="must write bytes, not bytearray"):
        lazy.encode(b"x", None)


# Types, which mypy checks


async def read_typed(client: Client, policy: Undecodable, group: ConsumerGroup) -> None:
    """Never run: what each call gives to those who check types."""
    orders = client.values("orders", PydanticSerializer(Order))
    assert_type(orders, TypedStream[Order, Decoded[Order]])
    async for decoded in orders.subscribe():
        assert_type(decoded.value, Order)
    async for batch in orders.subscribe().batches():
        assert_type(batch, list[Decoded[Order]])
    assert_type(orders.subscribe(partition=0).source, Subscription)
    assert_type(orders.subscribe().source, MergedSubscription)
    assert_type(orders.read(group), TypedReader[Decoded[Order], ConsumerGroup])
    payments = client.values("payments", MsgspecSerializer(Payment), on_undecodable=Undecodable.RAW)
    assert_type(payments, TypedStream[Payment, Decoded[Payment] | Undecoded])
    skipping = client.values("numbers", JSON, on_undecodable=Undecodable.SKIP)
    assert_type(skipping, TypedStream[Any, Decoded[Any]])
    assert_type(client.values("blobs"), TypedStream[bytes, Decoded[bytes]])
    assert_type(
        client.values("blobs", on_undecodable=policy),
        TypedStream[bytes, Decoded[bytes] | Undecoded],
    )
    await orders.publish(7)  # type: ignore[arg-type]
    await orders.publish(Order(), ack_polcy=AckPolicy.ALL)  # type: ignore[call-arg]


def test_what_mypy_is_told_is_there() -> None:
    client = Client("localhost:9292")
    orders = client.values("orders", PydanticSerializer(Order), compression=Gzip(9))
    assert repr(orders) == (
        "<TypedStream orders PydanticSerializer(Order) Gzip(level=9, min_bytes=512)>"
    )
    assert inspect.iscoroutinefunction(read_typed)
