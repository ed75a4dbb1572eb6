from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._core.addresses import format_address, parse_address
from liftbridge_aio.errors import InvalidRequest, MalformedData
from liftbridge_aio.model import (
    Ack,
    AckPolicy,
    BrokerInfo,
    Message,
    Metadata,
    PartitionInfo,
    StartAt,
    StartPosition,
    StopAt,
    StopPosition,
    StreamInfo,
    datetime_from_ns,
    ns_from_datetime,
)

UTC_2026 = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
NS_2026 = 1_767_323_045_678_901_000
NAIVE = datetime(2026, 1, 2)  # noqa: DTZ001 - what is to be refused
OFFSETS = st.integers(0, 2**63 - 1)

zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)  # noqa: DTZ001 - zones says which

# Times


def test_a_known_instant_in_both_forms() -> None:
    assert ns_from_datetime(UTC_2026) == NS_2026
    assert datetime_from_ns(NS_2026) == UTC_2026
    assert datetime_from_ns(NS_2026 + 999) == UTC_2026, "what a datetime cannot hold is cut"


@given(moments)
def test_a_datetime_survives_the_way_over_nanoseconds(moment: datetime) -> None:
    back = datetime_from_ns(ns_from_datetime(moment))
    assert back == moment.astimezone(UTC)
    assert back.tzinfo is UTC


@given(st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_lose_less_than_a_microsecond(timestamp: int) -> None:
    assert 0 <= timestamp - ns_from_datetime(datetime_from_ns(timestamp)) < 1000


def test_naive_datetimes_are_refused_everywhere() -> None:
    for convert in (ns_from_datetime, StartAt.time, StopAt.time):
        with pytest.raises(InvalidRequest, match="aware"):
            convert(NAIVE)


def test_values_tell_their_times() -> None:
    message = Message("s", 0, 0, b"", b"", NS_2026)
    ack = Ack("s", "s", "s", 0, reception_timestamp=NS_2026, commit_timestamp=NS_2026 + 1000)
    stream = StreamInfo("s", "s", {}, creation_timestamp=NS_2026)
    assert message.time == ack.reception_time == stream.creation_time == UTC_2026
    assert ack.commit_time == UTC_2026 + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("stream_subject", "subject", "partition"),
    [
        ("orders", "orders", 0),
        ("orders", "orders.1", 1),
        ("orders.1", "orders.1", 0),
        ("orders.1", "orders.1.12", 12),
        ("*.in", "shop.in", 0),
        ("*.in", "shop.in.3", 3),
        ("shop.>", "shop.in.3", 0),
    ],
)
def test_an_ack_has_the_partition(stream_subject: str, subject: str, partition: int) -> None:
    assert Ack("s", stream_subject, subject, 5).partition == partition


@pytest.mark.parametrize(
    "subject", ["orders.", "orders.x", "orders.-1", "orders.1.2", f"orders.{'9' * 5000}"]
)
def test_an_ack_from_no_partition_is_malformed(subject: str) -> None:
    with pytest.raises(MalformedData, match="from no partition") as failed:
        _ = Ack("s", "orders", subject, 5).partition
    assert (failed.value.stream, failed.value.offset) == ("s", 5)


# Start and stop


@given(OFFSETS)
def test_offsets_and_nanoseconds_are_taken_as_they_are(number: int) -> None:
    assert StartAt.offset(number) == StartAt(StartPosition.OFFSET, number)
    assert StopAt.offset(number) == StopAt(StopPosition.OFFSET, number)
    assert StartAt.time(number) == StartAt(StartPosition.TIMESTAMP, number)
    assert StopAt.time(number) == StopAt(StopPosition.TIMESTAMP, number)


def test_times_of_any_zone_become_nanoseconds() -> None:
    elsewhere = UTC_2026.astimezone(timezone(timedelta(hours=-7)))
    assert StartAt.time(elsewhere).value == StopAt.time(elsewhere).value == NS_2026


@pytest.mark.parametrize("number", [-1, 2**63])
def test_what_does_not_fit_the_wire_is_refused(number: int) -> None:
    for make in (StartAt.offset, StopAt.offset, StartAt.time, StopAt.time):
        with pytest.raises(InvalidRequest, match=str(number)):
            make(number)


@pytest.mark.parametrize("year", [1969, 2263])
def test_times_that_no_log_can_hold_are_refused(year: int) -> None:
    for make in (StartAt.time, StopAt.time):
        with pytest.raises(InvalidRequest, match="1970"):
            make(datetime(year, 12, 31, tzinfo=UTC))


def test_ago_keeps_the_span_until_the_reading_starts() -> None:
    hour = timedelta(hours=1)
    assert StartAt.ago(hour) == StartAt(StartPosition.TIMESTAMP, delta=hour)
    with pytest.raises(InvalidRequest, match="past"):
        StartAt.ago(-hour)


# Addresses


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("localhost", ("localhost", 9292)),
        ("localhost:1", ("localhost", 1)),
        (" 10.0.0.1:65535\n", ("10.0.0.1", 65535)),
        ("my_host-1.example.org:80", ("my_host-1.example.org", 80)),
        ("[::1]:9293", ("::1", 9293)),
        ("[::1]", ("::1", 9292)),
        ("::1", ("::1", 9292)),
        ("2001:db8::1", ("2001:db8::1", 9292)),
        ("2001:db8:0:0:0:0:0:1", ("2001:db8:0:0:0:0:0:1", 9292)),
        ("[fe80::1%eth0]:7", ("fe80::1%eth0", 7)),
        ("::ffff:127.0.0.1", ("::ffff:127.0.0.1", 9292)),
    ],
)
def test_addresses_are_split(address: str, parsed: tuple[str, int]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    "address",
    [
        *("", ":9292", "host:", "host:0", "host:65536", "host:port", "host:٣", "host:-1"),
        *("host:1:2", "host name:1", "[::1", "[::1]9292", "[::1]:", "[]:1", "[host]:1"),
        *("http://host", "http://host:9292", "user@host:9292", "a..b", "a" * 64),
        *("ann%3Ahush%40a", "host:1?ca=ca.pem"),
    ],
)
def test_other_texts_are_no_addresses(address: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_address(address)


@pytest.mark.parametrize("address", ["::1:9292", "2001:db8::1:80", "1:2:3:4:5:6:7:8:9292"])
def test_an_ipv6_address_that_may_have_a_port_needs_brackets(address: str) -> None:
    host, _, port = address.rpartition(":")
    with pytest.raises(InvalidRequest) as caught:
        parse_address(address)
    assert f"[{host}]:{port}" in str(caught.value)
    assert parse_address(f"[{host}]:{port}") == (host, int(port))


@pytest.mark.parametrize("address", ["", "host:0", "host:65536", "a..b", "user/host"])
def test_what_is_no_address_is_repeated_where_it_holds_no_secret(address: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_address(address)
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize("address", ["ann:hush", "ann:hush:1", "ann@hush", "a?hush", "a%40hush"])
def test_what_may_be_a_secret_is_not_repeated(address: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_address(address)
    assert "hush" not in str(caught.value)


@given(
    st.ip_addresses().map(str)
    | st.from_regex(r"[a-z][a-z0-9-]{0,9}(\.[a-z0-9-]{1,9}){0,2}", fullmatch=True),
    st.integers(1, 65535),
)
def test_what_is_joined_can_be_split(host: str, port: int) -> None:
    assert parse_address(format_address(host, port)) == (host, port)
    assert BrokerInfo("id", host, port).address == format_address(host, port)


# Values


def test_messages_and_acks_can_be_copied_and_pickled() -> None:
    for value in (Message("s", 0, 0, b"k", b"v", 1), Ack("s", "s", "s", 3)):
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - made here


def unread_message(reads: list[bytes]) -> Message:
    """A message as the codec makes it; what is read goes to `reads`."""

    def read_headers(data: bytes) -> tuple[dict[str, bytes], dict[str, bytes]]:
        reads.append(data)
        return {"name": data}, {"txn-uuid": data}

    row = ("s", 1, 2, b"k", b"v", 3, b"unread", "subject", "reply")
    [message] = Message.received([row], read_headers)
    return message


READ_HEADERS = {"name": b"unread"}, {"txn-uuid": b"unread"}
READ_MESSAGE = Message(
    "s", 1, 2, b"k", b"v", 3, READ_HEADERS[0], "subject", "reply", READ_HEADERS[1]
)


@pytest.mark.parametrize(
    "use",
    [
        lambda message: message,
        copy.copy,
        copy.deepcopy,
        lambda message: pickle.loads(pickle.dumps(message)),  # noqa: S301 - made here
        dataclasses.replace,
        lambda message: Message(**dataclasses.asdict(message)),
        lambda message: eval(repr(message)),  # noqa: S307 - made here
    ],
    ids=["equality", "copy", "deepcopy", "pickle", "replace", "asdict", "repr"],
)
def test_unread_headers_make_no_difference(use: Callable[[Message], Message]) -> None:
    assert use(unread_message([])) == READ_MESSAGE


def test_headers_can_be_given_to_an_unread_message() -> None:
    reads: list[bytes] = []
    message = unread_message(reads)
    message.headers = {}
    assert message.headers == {}
    assert reads == []
    assert dataclasses.replace(unread_message(reads), headers={}) == message
    assert message.headers == {}


def test_rows_may_bring_headers_that_are_read_already() -> None:
    row = ("s", 1, 2, b"k", b"v", 3, READ_HEADERS, "subject", "reply")
    assert Message.received([row], lambda _: ({}, {})) == [READ_MESSAGE]


def test_messages_have_no_other_attributes() -> None:
    message = unread_message([])
    with pytest.raises(AttributeError, match="no attribute 'header'"):
        message.header  # type: ignore[attr-defined]  # noqa: B018 - a slip of the pen
    with pytest.raises(AttributeError):
        message.other = 1  # type: ignore[attr-defined]


def test_a_snapshot_answers_for_what_it_knows() -> None:
    broker = BrokerInfo("a", "host", 1)
    led, orphaned, strange = (
        PartitionInfo(number, leader) for number, leader in enumerate(("a", "", "gone"))
    )
    metadata = Metadata(
        brokers={"a": broker},
        streams={"s": StreamInfo("s", "s", {0: led, 1: orphaned, 2: strange})},
    )
    assert metadata.partition_count("s") == 3
    assert metadata.partition("s", 1) is orphaned
    assert [metadata.leader("s", number) for number in range(4)] == [broker, None, None, None]
    assert metadata.partition_count("t") is None
    assert metadata.partition("t", 0) is None
    assert metadata.leader("t", 0) is None


def unread_ack(reads: list[bytes]) -> Ack:
    """An ack as the codec makes it; what is read goes to `reads`."""

    def read_rest(data: bytes) -> tuple[str, str, str, AckPolicy, int, int]:
        reads.append(data)
        return "s.1", "s.1", "inbox", AckPolicy.ALL, 5, 6

    [ack] = Ack.received([("s", 2, "id", b"unread")], read_rest)
    return ack


READ_ACK = Ack("s", "s.1", "s.1", 2, "inbox", "id", AckPolicy.ALL, 5, 6)


@pytest.mark.parametrize(
    "use",
    [
        lambda ack: ack,
        copy.copy,
        copy.deepcopy,
        lambda ack: pickle.loads(pickle.dumps(ack)),  # noqa: S301 - made here
        dataclasses.replace,
    ],
    ids=["equality", "copy", "deepcopy", "pickle", "replace"],
)
def test_an_unread_ack_makes_no_difference(use: Callable[[Ack], Ack]) -> None:
    assert use(unread_ack([])) == READ_ACK
    assert repr(unread_ack([])) == repr(READ_ACK)
