"""Encryption at rest, on a real server that has a key and on one that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire, message
from support.servers.node import LiftbridgeNode

SECRET = b"a value that must not lie about in the open"
ENCRYPTED: Final[dict[str, Any]] = {"encryption": proto.NullableBool(value=True)}
PLAIN: Final[dict[str, Any]] = {"encryption": proto.NullableBool(value=False)}


def on_disk(node: LiftbridgeNode, stream: str) -> bytes:
    """All that the server keeps of a stream."""
    folder: Path = node.folder / "data" / "streams" / stream
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("option", "legible"), [(ENCRYPTED, False), (PLAIN, True)], ids=["encrypted", "plain"]
)
async def test_values_are_encrypted_on_disk_and_read_back_in_clear(
    encrypted_wire: Wire,
    encrypted_server: LiftbridgeNode,
    stream_name: str,
    option: dict[str, Any],
    *,
    legible: bool,
) -> None:
    await encrypted_wire.create(stream_name, **option)
    acks = await encrypted_wire.publish(stream_name, SECRET, b"", key=b"the key stays legible")

    assert [ack.offset for ack in acks] == [0, 1]
    stored = await encrypted_wire.stored(stream_name, 2)
    assert [each.value for each in stored] == [SECRET, b""]
    kept = on_disk(encrypted_server, stream_name)
    assert b"the key stays legible" in kept
    assert (SECRET in kept) is legible


async def test_a_session_publishes_to_an_encrypted_stream(
    encrypted_wire: Wire, stream_name: str
) -> None:
    await encrypted_wire.create(stream_name, partitions=2, **ENCRYPTED)

    async with encrypted_wire.publish_session() as session:
        await session.send(
            *(message(stream_name, b"%d" % n, partition=1, correlation_id=f"{n}") for n in range(9))
        )
        replies = await session.take(9)
    assert {reply.async_error for reply in replies} == {None}
    stored = await encrypted_wire.stored(stream_name, 9, partition=1)
    assert [each.value for each in stored] == [b"%d" % n for n in range(9)]


async def test_without_key_an_encrypted_stream_is_refused(
    real_wire: Wire, stream_name: str
) -> None:
    request = proto.CreateStreamRequest(name=stream_name, subject=stream_name, **ENCRYPTED)
    end = await real_wire.refusal(rpc.CREATE_STREAM, request)
    assert end == End(
        Status.FAILED_PRECONDITION,
        "Failed on preconditions for stream's encryption handler: "
        "kwp: invalid AES key size; want 16 or 32, got 0",
    )
    stream = await real_wire.stream(stream_name)
    assert stream.error == proto.StreamMetadataError.UNKNOWN_STREAM
