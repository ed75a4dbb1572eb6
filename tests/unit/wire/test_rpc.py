from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.wire import proto, rpc
from liftbridge_aio.wire.convert import metadata_from_wire
from support.wire.proto_file import LIFTBRIDGE, Method

TABLE = [value for value in vars(rpc).values() if isinstance(value, rpc.Rpc)]


def test_the_table_is_the_service_of_the_proto_file() -> None:
    table = {
        Method(
            entry.name,
            entry.request.__name__,
            entry.reply.__name__,
            entry.streams_requests,
            entry.streams_replies,
        )
        for entry in TABLE
        if entry.service == "proto.API"
    }
    assert len(LIFTBRIDGE.methods) == 16
    assert table == set(LIFTBRIDGE.methods)


def test_each_procedure_has_a_constant_of_its_own_name() -> None:
    for name, value in vars(rpc).items():
        if isinstance(value, rpc.Rpc) and value is not rpc.HEALTH_CHECK:
            assert name.replace("_", "") == value.name.upper()


def test_paths_are_those_of_the_wire() -> None:
    assert rpc.PUBLISH_ASYNC.path == "/proto.API/PublishAsync"
    assert rpc.HEALTH_CHECK.path == "/grpc.health.v1.Health/Check"


PARTITION = proto.PartitionMetadata(
    id=1,
    leader="n1",
    replicas=["n1", "n2"],
    isr=["n1"],
    paused=True,
    messages_received_timestamps=proto.PartitionEventTimestamps(1, 2),
    pause_timestamps=proto.PartitionEventTimestamps(3, 4),
    readonly_timestamps=proto.PartitionEventTimestamps(5, 6),
)
METADATA = proto.FetchMetadataResponse(
    brokers=[proto.Broker(id="n1", host="h", port=9292)],
    stream_metadata=[proto.StreamMetadata(name="s", partitions={0: PARTITION, 1: PARTITION})],
    group_metadata=[proto.ConsumerGroupMetadata(group_id="g", coordinator="n1", epoch=3)],
)


def leaves(value: Any, path: str = "") -> dict[str, set[type]]:
    """The types of all simple values in values of values."""
    found: dict[str, set[type]] = {}
    inner: list[tuple[str, Any]]
    if dataclasses.is_dataclass(value):
        inner = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        inner = [("key", key) for key in value] + [("value", item) for item in value.values()]
    elif isinstance(value, tuple):
        inner = [("item", item) for item in value]
    else:
        return {path: {type(value)}}
    for name, item in inner:
        for where, types in leaves(item, f"{path}.{name}").items():
            found.setdefault(where, set()).update(types)
    return found


@given(st.data())
def test_a_reply_holds_what_its_types_say_or_is_refused(data: st.DataObject) -> None:
    garbled = bytearray(bytes(METADATA))
    for _ in range(data.draw(st.integers(1, 3))):
        garbled[data.draw(st.integers(0, len(garbled) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(MalformedData):
        whole = leaves(metadata_from_wire(METADATA)[0])
        found = metadata_from_wire(rpc.FETCH_METADATA.read_reply(bytes(garbled)))[0]
        for path, types in leaves(found).items():
            assert types <= whole.get(path, set()) | {type(None), int}, path
            assert int not in types or int in whole.get(path, {int}), path


def test_what_a_newer_server_may_say_is_read() -> None:
    """An entry of a map without a value, a code that is not known yet, and an unknown field."""
    stream = bytes.fromhex("0a0173") + bytes.fromhex("22020801") + bytes.fromhex("f80107")
    unknown = bytes.fromhex("0a0174") + bytes.fromhex("1863")
    reply = b"".join(b"\x12" + bytes([len(part)]) + part for part in (stream, unknown))
    known, unknown_streams, _ = metadata_from_wire(rpc.FETCH_METADATA.read_reply(reply))
    assert set(known.streams["s"].partitions) == {1}
    assert unknown_streams == {"t"}


@pytest.mark.parametrize("reply", [b"\x0a\x02\x08\x07", b"\x08\x07", b"\x0a\x05n", b"\xff"])
def test_a_reply_that_cannot_be_read_says_of_which_call(reply: bytes) -> None:
    with pytest.raises(MalformedData, match="FetchMetadata"):
        rpc.FETCH_METADATA.read_reply(reply)
