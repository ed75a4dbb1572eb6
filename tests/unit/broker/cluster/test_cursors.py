"""Cursors, and what a server loses of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from liftbridge_aio.broker.cluster.cursors import (
    NO_CURSOR,
    CursorStore,
    cursors_stream,
    refused_cursor,
)
from liftbridge_aio.broker.errors import BrokerError, Code, PublishRefused
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.model import CURSORS_STREAM, AckPolicy, Message
from liftbridge_aio.wire import proto
from support.broker.pure_brokers import PureCluster, SingleBroker, incoming

MANY = 512
"""Number of cached cursors."""


class Cursors:
    """The cursors of one broker, stored and looked up as by its service."""

    def __init__(self, cluster: PureCluster, server_id: str) -> None:
        self._cluster = cluster
        self._server_id = server_id
        self._store = CursorStore(cluster.node(server_id))

    def put(self, offset: int, cursor_id: str = "c", stream: str = "s") -> None:
        key, partition = self._store.locate(cursor_id, stream, 0)
        cursor = proto.Cursor(stream=stream, partition=0, cursor_id=cursor_id, offset=offset)
        sent = incoming(bytes(cursor), AckPolicy.ALL, key=key)
        acks = self._cluster.publish(self._server_id, CURSORS_STREAM, partition.number, sent)
        self._cluster.replicate(CURSORS_STREAM, partition.number)
        assert len(acks) == 1
        self._store.cache(key, offset)

    def get(self, cursor_id: str = "c", stream: str = "s") -> int:
        key, partition = self._store.locate(cursor_id, stream, 0)
        offset = self._store.cached(key)
        return self._store.look_up(key, partition) if offset is None else offset


def cursors_of(partitions: int) -> tuple[SingleBroker, Cursors]:
    broker = SingleBroker(cursors_stream("ns.cursors", partitions), max_message_bytes=2**20)
    return broker, Cursors(broker, broker.SERVER_ID)


def test_the_latest_cursors_are_cached_and_the_others_looked_up() -> None:
    _, cursors = cursors_of(1)
    for name in ("old", "used"):
        cursors.put(5, name)
        cursors.put(3, name)
    for number in range(MANY - 1):
        cursors.put(number, f"other {number}")
        assert cursors.get("used") == 3

    assert cursors.get("old") == 5


def test_each_message_of_the_log_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, cursors = cursors_of(1)
    count = 3 * MANY
    for number in range(count):
        cursors.put(number, f"c{number}")
    returned: list[int] = []
    read = PartitionLog.read

    def reading(log: PartitionLog, offset: int, limit: int) -> Sequence[Message]:
        messages = read(log, offset, limit)
        returned.append(len(messages))
        return messages

    monkeypatch.setattr(PartitionLog, "read", reading)
    assert [cursors.get(f"c{number}") for number in range(count)] == list(range(count))
    assert sum(returned) == count


def test_a_truncated_log_has_lost_its_cursors() -> None:
    broker, cursors = cursors_of(1)
    for number in range(MANY + 1):
        cursors.put(7, f"c{number}")
    assert cursors.get("c0") == 7

    broker.own(CURSORS_STREAM, 0).log.truncate(0)
    cursors.put(3, "c0")
    for number in range(1, MANY + 1):
        assert cursors.get(f"other {number}") == NO_CURSOR
    assert cursors.get("c0") == 3


def test_foreign_messages_in_the_cursors_stream_are_ignored() -> None:
    broker, cursors = cursors_of(1)
    cursors.put(7)
    for junk in (b"\x08", b"", b"\xff\xff"):
        broker.send(CURSORS_STREAM, 0, incoming(junk, key=b"c,s,0"))
        broker.pause(CURSORS_STREAM)
        broker.send(CURSORS_STREAM)

        assert cursors.get() == 7


def test_no_cursors_without_their_stream() -> None:
    broker = SingleBroker()
    cursors = Cursors(broker, broker.SERVER_ID)

    with pytest.raises(BrokerError, match="Cursors stream does not exist") as refused:
        cursors.get()
    assert refused.value.code is Code.INTERNAL


def test_a_refused_cursor_is_an_internal_error_and_not_cached() -> None:
    broker, cursors = cursors_of(1)
    broker.set_readonly(CURSORS_STREAM, readonly=True)

    with pytest.raises(PublishRefused) as refused:
        cursors.put(1)

    error = refused_cursor(refused.value)
    assert error.code is Code.INTERNAL
    assert error.text == "rpc error: code = FailedPrecondition desc = readonly partition: 0"
    assert cursors.get() == NO_CURSOR


def test_a_new_leader_knows_the_cursors_and_an_old_one_drops_its_cache() -> None:
    cluster = PureCluster("n1", "n2", "n3", max_message_bytes=2**20)
    cluster.create(cursors_stream("ns.cursors", 1))
    old, new = Cursors(cluster, "n1"), Cursors(cluster, "n2")
    old.put(5)
    old.put(4)
    partition = cluster.decided(CURSORS_STREAM)

    cluster.controller.move_leader(partition, "n2", now=2)
    assert new.get() == 5
    new.put(6)
    cluster.controller.move_leader(partition, "n1", now=3)

    assert old.get() == 6


def test_a_new_leader_may_not_yet_know_of_the_latest_cursor() -> None:
    """As on a real server (liftbridge#319), which answers so until the cursor is set again."""
    cluster = PureCluster("n1", "n2", "n3", max_message_bytes=2**20)
    cluster.create(cursors_stream("ns.cursors", 1))
    cluster.publish("n1", CURSORS_STREAM, 0, incoming(bytes(proto.Cursor(offset=7)), key=b"c,s,0"))
    for _ in range(2):
        cluster.fetch("n2", CURSORS_STREAM)
        cluster.fetch("n3", CURSORS_STREAM)
    assert cluster.watermarks(CURSORS_STREAM) == [0, -1, 0]

    cluster.controller.move_leader(cluster.decided(CURSORS_STREAM), "n2", now=2)
    cursors = Cursors(cluster, "n2")
    assert cursors.get() == NO_CURSOR
    cluster.replicate(CURSORS_STREAM)
    assert cluster.watermarks(CURSORS_STREAM) == [0, 0, 0]
    assert cursors.get() == NO_CURSOR

    cursors.put(8)
    assert cursors.get() == 8
