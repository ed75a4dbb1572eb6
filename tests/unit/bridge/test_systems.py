"""URLs of bridges."""

from __future__ import annotations

import pytest

from liftbridge_aio.bridge.bridge import SYSTEMS, Bridge
from liftbridge_aio.bridge.liftbridge import LIFTBRIDGE
from liftbridge_aio.bridge.nsq import NSQ
from liftbridge_aio.bridge.stan import STAN
from liftbridge_aio.bridge.systems import Address, System, check_pair, parse_address
from liftbridge_aio.errors import InvalidRequest


def parsed(url: str) -> Address:
    return parse_address(url, SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda each: each.scheme)
def test_every_example_is_parsed(system: System) -> None:
    found = parsed(system.example)
    assert found.system is system
    assert len(found.servers) == 1
    assert found.names in {("cluster", "channel"), ("topic", "channel"), ("stream",)}


def test_servers_and_escaped_names() -> None:
    found = parsed("STAN://a:1,b:2/test-cluster/orders%2Enew")
    assert (found.servers, found.names) == (("a:1", "b:2"), ("test-cluster", "orders.new"))
    assert str(found) == "stan/test-cluster/orders.new"


def test_what_identifies_messages_has_no_password_and_no_channel_of_nsq() -> None:
    assert str(parsed("stan://ann:secret@a/c/orders")) == "stan/c/orders"
    assert str(parsed("nsq://a/orders/billing")) == "nsq/orders"
    assert str(parsed("liftbridge+tls://a/orders?ca=ca.pem")) == "liftbridge/orders"


def test_a_location_has_everything_but_the_password() -> None:
    assert parsed("stan://ann:secret@a:1,b/c/orders").location == "stan://a:1,b/c/orders"
    assert parsed("nsq://a:4150/orders/billing").location == "nsq://a:4150/orders/billing"


@pytest.mark.parametrize(
    ("system", "identity", "name"),
    [
        (STAN, b"17", "the message of sequence 17"),
        (LIFTBRIDGE, b"2/40", "the message of partition 2, offset 40"),
        (NSQ, b"127.0.0.1:4150/0a1b", "the message 0a1b of nsqd at 127.0.0.1:4150"),
    ],
)
def test_a_message_is_named_as_its_system_does(system: System, identity: bytes, name: str) -> None:
    assert system.message_name(identity) == name


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("kafka://a/b", "liftbridge://a/b"),
        ("orders", "liftbridge://a/b"),
        ("stan://a/channel", "liftbridge://a/b"),
        ("stan:///b/c", "liftbridge://a/b"),
        ("stan://a/b/", "liftbridge://a/b"),
        ("stan://a/b/c?d=e", "liftbridge://a/b"),
        ("stan://a/b/c", "nsq://a/b/c"),
        ("stan://a/b/c", "stan://d/b/c"),
        ("liftbridge://a,b/b", "liftbridge://c,b/b"),
        ("liftbridge://a/b", "nsq+lookup://a/b/c"),
        ("liftbridge://a/b", "nsq://a,b/b/c"),
        ("stan://a/b/c", "liftbridge://a/b.*"),
    ],
)
def test_what_is_no_pair_is_refused(source: str, target: str) -> None:
    with pytest.raises(InvalidRequest):
        check_pair(parsed(source), parsed(target))


@pytest.mark.parametrize("source", [NSQ, LIFTBRIDGE], ids=lambda each: each.scheme)
def test_a_sequence_to_begin_after_is_for_nats_streaming_only(source: System) -> None:
    with pytest.raises(InvalidRequest, match="NATS Streaming"):
        Bridge(source.example, "liftbridge://elsewhere:9292/copies", after=7)
