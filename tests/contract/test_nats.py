"""Messages over NATS, beside the API: plain messages, envelopes, and acks to an inbox.

Only a real server has NATS; the embedded broker cannot be reached this way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client as NatsClient

from liftbridge_aio.wire import proto, rpc
from support.nats_streams import taken
from support.raw import Wire, message
from support.servers.node import LiftbridgeNode

MAGIC = bytes.fromhex("b90e43b4")


@pytest.fixture
async def connection(real_server: LiftbridgeNode) -> AsyncIterator[NatsClient]:
    client = await nats.connect(real_server.nats_url)
    yield client
    await client.close()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def envelope(payload: bytes, *, kind: int = 0, checksum: int | None = None) -> bytes:
    if checksum is None:
        return MAGIC + bytes([0, 8, 0, kind]) + payload
    return MAGIC + bytes([0, 12, 1, kind]) + checksum.to_bytes(4, "big") + payload


PAYLOAD = bytes(proto.Message(value=b"in an envelope", offset=-1))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"plain", id="plain"),
        pytest.param(b"", id="empty"),
        pytest.param(MAGIC, id="magic alone"),
        pytest.param(MAGIC + bytes([0, 3, 0, 0]) + b"abc", id="header too short"),
        pytest.param(envelope(PAYLOAD, kind=1), id="an ack"),
        pytest.param(envelope(b"\xff\xff\xff"), id="no protobuf"),
        pytest.param(envelope(PAYLOAD, checksum=crc32c(PAYLOAD) ^ 1), id="wrong checksum"),
    ],
)
async def test_what_is_no_envelope_is_stored_as_it_is(
    real_wire: Wire, connection: NatsClient, stream_name: str, data: bytes
) -> None:
    await real_wire.create(stream_name)
    await connection.publish(stream_name, data, reply="some.reply")

    [stored] = await real_wire.stored(stream_name, 1)
    assert (stored.key, stored.value) == (b"", data)
    assert stored.reply_subject == "some.reply"
    assert stored.headers == {"subject": stream_name.encode(), "reply": b"some.reply"}


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checksum"])
async def test_an_envelope_is_unpacked_and_acked_to_its_inbox(
    real_wire: Wire, connection: NatsClient, stream_name: str, *, checked: bool
) -> None:
    await real_wire.create(stream_name)
    inbox = connection.new_inbox()
    acks = await connection.subscribe(inbox)
    payload = bytes(
        proto.Message(
            key=b"key",
            value=b"value",
            headers={"one": b"1"},
            offset=-1,
            ack_inbox=inbox,
            correlation_id="id",
            stream="ignored",
            partition=7,
            timestamp=7,
        )
    )
    data = envelope(payload, checksum=crc32c(payload) if checked else None)
    await connection.publish(stream_name, data)

    answer = (await acks.next_msg(timeout=5)).data
    assert answer[:8] == MAGIC + bytes([0, 8, 0, 1])
    ack = proto.Ack.parse(answer[8:])
    assert (ack.stream, ack.offset, ack.correlation_id) == (stream_name, 0, "id")
    assert ack.ack_inbox == inbox
    [stored] = await real_wire.stored(stream_name, 1)
    assert (stored.key, stored.value, stored.headers["one"]) == (b"key", b"value", b"1")
    assert (stored.stream, stored.partition) == (stream_name, 0)
    assert stored.timestamp == ack.reception_timestamp


async def test_an_envelope_without_payload_is_an_empty_message(
    real_wire: Wire, connection: NatsClient, stream_name: str
) -> None:
    await real_wire.create(stream_name)
    await connection.publish(stream_name, envelope(b""))

    [stored] = await real_wire.stored(stream_name, 1)
    assert stored.value == b""


async def test_without_an_inbox_or_with_policy_none_nothing_is_acked(
    real_wire: Wire, connection: NatsClient, stream_name: str
) -> None:
    await real_wire.create(stream_name)
    inbox = connection.new_inbox()
    acks = await connection.subscribe(inbox)
    silent = proto.Message(offset=-1, ack_inbox=inbox, ack_policy=proto.AckPolicy.NONE)
    for sent in (
        proto.Message(offset=-1, correlation_id="no inbox"),
        silent,
        proto.Message(offset=-1, ack_inbox=inbox, correlation_id="acked"),
    ):
        await connection.publish(stream_name, envelope(bytes(sent)))

    ack = proto.Ack.parse((await acks.next_msg(timeout=5)).data[8:])
    assert (ack.correlation_id, ack.offset) == ("acked", 2)


@pytest.mark.parametrize("timeout", [10.0, None], ids=["deadline", "no deadline"])
async def test_unary_publishes_ack_to_the_inbox_they_name(
    real_wire: Wire, connection: NatsClient, stream_name: str, timeout: float | None
) -> None:
    await real_wire.create(stream_name)
    inbox = connection.new_inbox()
    acks = await connection.subscribe(inbox)
    await taken(connection)

    request = message(stream_name, ack_inbox=inbox, correlation_id="publish")
    await real_wire.call(rpc.PUBLISH, request, timeout=timeout)
    to_subject = proto.PublishToSubjectRequest(
        subject=stream_name, ack_inbox=inbox, correlation_id="to subject"
    )
    await real_wire.call(rpc.PUBLISH_TO_SUBJECT, to_subject, timeout=timeout)
    heard = {
        proto.Ack.parse((await acks.next_msg(timeout=5)).data[8:]).correlation_id for _ in range(2)
    }
    assert heard == {"publish", "to subject"}
