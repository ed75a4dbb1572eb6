"""Messages of megabytes in which nothing makes sense: refused at once, by both sides."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, Final

import pytest
from grpclib.const import Status

from liftbridge_aio import Client, ClientOptions, LiftbridgeError, MessageTooLarge, ServerError
from liftbridge_aio.wire import proto, rpc
from liftbridge_aio.wire.metadata_codec import encode_metadata
from support.peers.hostile_server import STREAM, HostileServer
from support.raw import Wire

MIB: Final = 2**20
BOUND: Final = 5.0
"""Seconds; they took up to a minute, in which nothing else ran."""
HELD: Final = 0.3
"""Seconds of work at a time, after which others must have run; they were up to nine."""

MANY_PARTITIONS: Final = encode_metadata(
    proto.FetchMetadataResponse(
        stream_metadata=[
            proto.StreamMetadata(
                name="a", partitions={number: proto.PartitionMetadata() for number in range(10_000)}
            )
        ]
    )
)
UNKNOWN: Final = b"\x78\x01"
PARTS: Final = {
    "unknown fields": UNKNOWN,
    "nameless brokers": b"\x0a\x00",
    "nameless streams": b"\x12\x00",
    "nameless groups": b"\x1a\x00",
    "the same stream": b"\x12\x07\x0a\x01a\x22\x02\x08\x00",
    "partitions of one stream": MANY_PARTITIONS,
}


class Padding(HostileServer):
    """Sends metadata, and then the same few bytes over and over."""

    def __init__(self, part: bytes, size: int) -> None:
        super().__init__()
        self.padding = part * (size // len(part))

    def reply(self, name: str) -> bytes:
        return super().reply(name) + self.padding


class Pulse:
    """Measures for how long at a time others could not run, in seconds of this thread's work."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest, last = max(self.longest, now - last), now

    def stop(self) -> None:
        self._beating.cancel()


async def outcome(server: HostileServer) -> LiftbridgeError | None:
    """Return the error of a client of this server, within the time limit."""
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


@pytest.mark.parametrize("name", [one for one in PARTS if one != "unknown fields"])
async def test_metadata_of_more_than_any_cluster_has(name: str) -> None:
    async with Padding(PARTS[name], 3 * MIB).listening() as server:
        pulse = Pulse()
        error = await outcome(server)
        pulse.stop()
    assert isinstance(error, ServerError)
    assert "at most 65536" in str(error)
    assert pulse.longest < HELD, f"the event loop was held for {pulse.longest:.2f} s"


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


def numbered(count: int, name: str, **partition: Any) -> bytes:
    """Metadata of so many streams of one partition, with five digits for a name's last part."""
    only = proto.StreamMetadata(
        name=f"{name}00000", partitions={0: proto.PartitionMetadata(**partition)}
    )
    template = encode_metadata(proto.FetchMetadataResponse(stream_metadata=[only]))
    return b"".join(template.replace(b"00000", b"%05d" % number) for number in range(count))


SERVERS: Final = ["server-1", "server-2", "server-3"]
LARGE: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "real": (
        29_000,
        {"name": "customers.orders.", "leader": "server-1", "replicas": SERVERS, "isr": SERVERS},
    ),
    "as many as are taken": (32_000, {"name": ""}),
}


@pytest.mark.parametrize("name", LARGE)
async def test_others_run_while_large_metadata_is_read(name: str) -> None:
    count, content = LARGE[name]
    data = numbered(count, **content)
    assert len(data) <= 4 * MIB
    gc.collect()
    gc.freeze()  # what other tests have left costs a collection as much as what is measured
    try:
        async with Padding(data, len(data)).listening() as server:
            pulse = Pulse()
            async with Client(server.address) as client:
                pulse.stop()
                assert len(client.metadata.streams) > count
    finally:
        gc.unfreeze()
    assert pulse.longest < HELD, f"the event loop was held for {pulse.longest:.2f} s"


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
