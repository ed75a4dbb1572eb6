"""Messages of megabytes in which nothing makes sense: refused at once, by both sides."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import pytest
from grpclib.const import Status

from contract.raw import Wire
from hostile.hostile_server import STREAM, HostileServer
from liftbridge_aio import Client, ClientOptions, LiftbridgeError, MessageTooLarge, ServerError
from liftbridge_aio.wire import proto, rpc
from liftbridge_aio.wire.metadata_codec import encode_metadata

MIB: Final = 2**20
BOUND: Final = 5.0
"""Seconds; they took up to a minute, in which nothing else ran."""

UNKNOWN: Final = b"\x78\x01"
PARTS: Final = {
    "unknown fields": UNKNOWN,
    "nameless brokers": b"\x0a\x00",
    "nameless streams": b"\x12\x00",
    "nameless groups": b"\x1a\x00",
}


class Padding(HostileServer):
    """Sends metadata, and then the same few bytes over and over."""

    def __init__(self, part: bytes, size: int) -> None:
        super().__init__()
        self.padding = part * (size // len(part))

    def reply(self, name: str) -> bytes:
        return super().reply(name) + self.padding


async def outcome(server: HostileServer) -> LiftbridgeError | None:
    """How a client fares there, in time."""
    began = time.monotonic()
    try:
        async with Client(server.address, options=ClientOptions(call_timeout=2.0)) as client:
            await client.fetch_partition_metadata(STREAM, 0)
    except LiftbridgeError as error:
        return error
    else:
        return None
    finally:
        assert time.monotonic() - began < BOUND


@pytest.mark.parametrize("name", PARTS)
async def test_a_reply_that_is_too_large(name: str) -> None:
    async with Padding(PARTS[name], 5 * MIB).listening() as server:
        error = await outcome(server)
    assert isinstance(error, MessageTooLarge)
    assert "4194304" in str(error)


@pytest.mark.parametrize("name", [one for one in PARTS if "nameless" in one])
async def test_metadata_of_nothing(name: str) -> None:
    async with Padding(PARTS[name], 3 * MIB).listening() as server:
        error = await outcome(server)
    assert isinstance(error, ServerError)
    assert "has no name" in str(error)


async def test_metadata_with_much_that_is_unknown() -> None:
    """It may be that of a newer server; what is known of it is taken."""
    server = Padding(UNKNOWN, 3 * MIB)
    async with (
        server.listening(),
        Client(server.address, options=ClientOptions(call_timeout=2.0)) as client,
    ):
        assert STREAM in client.metadata.streams
        with pytest.raises(MessageTooLarge, match="262144"):
            await client.fetch_partition_metadata(STREAM, 0)


async def test_metadata_of_thousands_of_partitions_is_taken() -> None:
    partition = proto.PartitionMetadata(leader="n1", replicas=["n1"], isr=["n1"])
    streams = [
        proto.StreamMetadata(
            name=f"stream-{number}", partitions=dict.fromkeys(range(10), partition)
        )
        for number in range(2000)
    ]
    many = encode_metadata(proto.FetchMetadataResponse(stream_metadata=streams))
    assert len(many) > rpc.SLOWLY_READ_BYTES

    async with (
        Padding(many, len(many)).listening() as server,
        Client(server.address) as client,
    ):
        streams_known = client.metadata.streams
        assert len(streams_known["stream-999"].partitions) == 10


# The broker


async def test_a_question_of_megabytes_is_refused(wire: Wire) -> None:
    names = proto.FetchMetadataRequest(streams=["a"] * 100_000)
    async with asyncio.timeout(BOUND):
        refusal = await wire.refusal(rpc.FETCH_METADATA, names)
    assert refusal.status is Status.RESOURCE_EXHAUSTED
    assert "262144" in refusal.text


async def test_large_publishes_are_taken_whatever_else_is_in_them(wire: Wire) -> None:
    value = bytes(MIB // 2)
    to_stream = proto.PublishRequest(stream="s", value=value, headers={"a": b"1"})
    to_subject = proto.PublishToSubjectRequest(subject="s", value=value, headers={"b": b"2"})
    to_stream._unknown_fields = to_subject._unknown_fields = UNKNOWN * MIB
    async with asyncio.timeout(BOUND):
        await wire.call(rpc.PUBLISH, to_stream)
        await wire.call(rpc.PUBLISH_TO_SUBJECT, to_subject)
        read = await wire.read("s")
    assert [one.value for one in read] == [value, value]
    assert [one.headers.get(name) for one, name in zip(read, "ab", strict=True)] == [b"1", b"2"]
