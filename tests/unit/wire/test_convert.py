from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.model import (
    BrokerInfo,
    EventTimestamps,
    GroupInfo,
    PartitionInfo,
    PartitionRest,
    StreamInfo,
)
from liftbridge_aio.options import StreamOptions
from liftbridge_aio.wire import convert, proto
from liftbridge_aio.wire.convert import create_stream_request, metadata_from_wire
from liftbridge_aio.wire.rpc import FETCH_METADATA
from support.wire.proto_file import LIFTBRIDGE

WireRequest = LIFTBRIDGE.message("CreateStreamRequest")
WireMetadata = LIFTBRIDGE.message("FetchMetadataResponse")

# Each setting of a stream, its name on the wire, and a value with the one that goes over the wire.
SETTINGS: list[tuple[str, str, Any, int | bool]] = [
    ("retention_max_bytes", "retentionMaxBytes", 5, 5),
    ("retention_max_messages", "retentionMaxMessages", 6, 6),
    ("retention_max_age", "retentionMaxAge", 1.5, 1500),
    ("cleaner_interval", "cleanerInterval", timedelta(seconds=2), 2000),
    ("segment_max_bytes", "segmentMaxBytes", 7, 7),
    ("segment_max_age", "segmentMaxAge", 0.001, 1),
    ("compact_max_goroutines", "compactMaxGoroutines", 8, 8),
    ("compact_enabled", "compactEnabled", True, True),
    ("auto_pause_time", "autoPauseTime", 60, 60_000),
    ("auto_pause_disable_if_subscribers", "autoPauseDisableIfSubscribers", True, True),
    ("min_isr", "minIsr", 2, 2),
    ("optimistic_concurrency_control", "optimisticConcurrencyControl", True, True),
    ("encryption", "encryption", True, True),
]
ZEROS: list[tuple[str, str, Any]] = [
    ("retention_max_bytes", "retentionMaxBytes", 0),
    ("retention_max_age", "retentionMaxAge", 0),
    ("auto_pause_time", "autoPauseTime", 0.0),
    ("compact_enabled", "compactEnabled", False),
    ("auto_pause_disable_if_subscribers", "autoPauseDisableIfSubscribers", False),
    ("optimistic_concurrency_control", "optimisticConcurrencyControl", False),
    ("encryption", "encryption", False),
]


def sent(group: str | None = None, **options: Any) -> Any:
    """Make a request and read it with protobuf's own runtime."""
    request = create_stream_request(
        "orders",
        "shop.orders",
        partitions=3,
        replication_factor=-1,
        group=group,
        options=StreamOptions(**options),
    )
    return WireRequest.FromString(bytes(request))


# Streams


@pytest.mark.parametrize(("group", "wire"), [(None, {}), ("workers", {"group": "workers"})])
def test_settings_that_are_none_are_absent(group: str | None, wire: dict[str, str]) -> None:
    assert sent(group) == WireRequest(
        name="orders", subject="shop.orders", partitions=3, replicationFactor=-1, **wire
    )


@pytest.mark.parametrize(("option", "name", "value", "wire"), SETTINGS)
def test_each_setting_goes_to_its_own_field(
    option: str, name: str, value: Any, wire: int | bool
) -> None:
    request = sent(**{option: value})
    assert [field.name for field, _ in request.ListFields() if field.number > 5] == [name]
    assert getattr(request, name).value == wire


@pytest.mark.parametrize(("option", "name", "value"), ZEROS)
def test_zero_is_sent_because_it_is_not_absent(option: str, name: str, value: Any) -> None:
    request = sent(**{option: value})
    assert request.HasField(name)
    assert getattr(request, name).value == 0


def test_every_setting_of_the_wire_is_covered() -> None:
    settings = {field.name for field in WireRequest.DESCRIPTOR.fields if field.number > 5}
    assert settings == {name for _, name, _, _ in SETTINGS}


@given(st.floats(0.001, 1e6, allow_nan=False))
def test_durations_are_whole_milliseconds_close_to_what_was_asked(seconds: float) -> None:
    wire = sent(retention_max_age=seconds).retentionMaxAge.value
    assert abs(wire - 1000 * seconds) <= 1
    assert wire >= 1  # 0 would mean: no limit (W30)


# Metadata


def test_metadata_keeps_every_field() -> None:
    wire = WireMetadata(
        brokers=[{"id": "b", "host": "h", "port": 9, "partitionCount": 2, "leaderCount": 1}],
        streamMetadata=[
            {
                "name": "orders",
                "subject": "shop",
                "creationTimestamp": 5,
                "partitions": {
                    1: {"id": 1},
                    0: {
                        "id": 0,
                        "leader": "b",
                        "replicas": ["b", "c"],
                        "isr": ["b"],
                        "highWatermark": 7,
                        "newestOffset": 8,
                        "paused": True,
                        "readonly": True,
                        "messagesReceivedTimestamps": {"firstTimestamp": 1, "latestTimestamp": 2},
                        "pauseTimestamps": {"firstTimestamp": 3},
                        "readonlyTimestamps": {"latestTimestamp": 4},
                    },
                },
            }
        ],
        groupMetadata=[{"groupId": "g", "coordinator": "b", "epoch": 2**64 - 1}],
    )
    metadata, unknown_streams, unknown_groups = parsed(wire)
    assert metadata.brokers == {"b": BrokerInfo("b", "h", 9, 2, 1)}
    assert metadata.streams == {
        "orders": StreamInfo(
            "orders",
            "shop",
            {
                0: PartitionInfo(
                    0,
                    "b",
                    ("b", "c"),
                    ("b",),
                    7,
                    8,
                    paused=True,
                    readonly=True,
                    messages_received=EventTimestamps(1, 2),
                    pause=EventTimestamps(3, None),
                    readonly_changes=EventTimestamps(None, 4),
                ),
                1: PartitionInfo(1, "", (), (), 0, 0),
            },
            5,
        )
    }
    assert list(metadata.streams["orders"].partitions) == [0, 1]
    assert metadata.groups == {"g": GroupInfo("g", "b", 2**64 - 1)}
    assert metadata.last_updated is None
    assert not unknown_streams
    assert not unknown_groups


def test_entries_with_an_error_are_what_the_server_does_not_know() -> None:
    wire = WireMetadata(
        streamMetadata=[{"name": "gone", "error": 1}, {"name": "there"}],
        groupMetadata=[{"groupId": "gone", "error": 1}, {"groupId": "there"}],
    )
    metadata, unknown_streams, unknown_groups = parsed(wire)
    assert set(metadata.streams) == {"there"}
    assert set(metadata.groups) == {"there"}
    assert unknown_streams == {"gone"}
    assert unknown_groups == {"gone"}


def test_an_error_of_a_future_server_is_not_taken_for_a_stream() -> None:
    metadata, unknown_streams, _ = parsed(WireMetadata(streamMetadata=[{"name": "s", "error": 9}]))
    assert not metadata.streams
    assert unknown_streams == {"s"}


def parsed(wire: Any) -> Any:
    return metadata_from_wire(proto.FetchMetadataResponse.parse(wire.SerializeToString()))


def test_partitions_are_converted_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[int] = []
    after_leader = convert._after_leader

    def count(partition: proto.PartitionMetadata) -> PartitionRest:
        converted.append(partition.id)
        return after_leader(partition)

    monkeypatch.setattr(convert, "_after_leader", count)
    partitions = {number: {"id": number, "leader": "a", "isr": ["a"]} for number in range(100)}
    wire = WireMetadata(
        brokers=[{"id": "a"}], streamMetadata=[{"name": "s", "partitions": partitions}]
    )
    known, _, _ = metadata_from_wire(FETCH_METADATA.read_reply(wire.SerializeToString()))
    assert known.leader("s", 7) is known.brokers["a"]
    assert not converted

    info = known.partition("s", 7)
    assert info is not None
    assert info == PartitionInfo(7, "a", isr=("a",), high_watermark=0, newest_offset=0)
    assert pickle.loads(pickle.dumps(info)) == info  # noqa: S301 - our own
    assert converted == [7]
