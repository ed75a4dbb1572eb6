"""Fetching, committing, in-sync replicas, and truncation after a change of leader."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.model import Ack, AckPolicy
from support.broker.pure_brokers import SECOND, PureCluster, incoming, stream


def cluster_with(min_isr: int = 1, replicas: int = 3) -> PureCluster:
    """Three brokers and the stream `s`, led by n1."""
    cluster = PureCluster("n1", "n2", "n3")
    cluster.create(stream("s", replicas=replicas, min_isr=min_isr))
    assert cluster.decided("s").leader == "n1"
    return cluster


def put(cluster: PureCluster, value: bytes, policy: AckPolicy = AckPolicy.ALL) -> list[Ack]:
    return cluster.publish("n1", "s", 0, incoming(value, policy))


def in_sync(cluster: PureCluster) -> list[tuple[str, ...]]:
    """The replicas in sync, as each broker knows them."""
    return [cluster.partition(one, "s").info().isr for one in cluster.contexts]


def test_the_watermark_of_followers_lags_by_one_fetch() -> None:
    cluster = cluster_with()
    acks = put(cluster, b"a")
    assert (cluster.watermarks("s"), acks) == ([-1, -1, -1], [])

    cluster.fetch("n2", "s")
    cluster.fetch("n3", "s")
    assert [cluster.values(one, "s") for one in ("n1", "n2", "n3")] == [[b"a"]] * 3
    assert (cluster.watermarks("s"), acks) == ([-1, -1, -1], [])

    cluster.fetch("n2", "s")
    assert (cluster.watermarks("s"), acks) == ([-1, -1, -1], [])
    cluster.fetch("n3", "s")
    assert cluster.watermarks("s") == [0, -1, 0]
    assert [ack.offset for ack in acks] == [0]
    cluster.fetch("n2", "s")
    assert cluster.watermarks("s") == [0, 0, 0]


def test_a_fetch_says_if_another_one_brings_something() -> None:
    cluster = cluster_with(replicas=2)
    follower = next(one for one in ("n2", "n3") if cluster.partition(one, "s").is_following)
    assert not cluster.fetch(follower, "s")
    put(cluster, b"a")

    assert [cluster.fetch(follower, "s") for _ in range(3)] == [True, True, False]
    assert cluster.partition(follower, "s").log.high_watermark == 0


def test_nothing_is_fetched_in_another_epoch() -> None:
    cluster = cluster_with()
    put(cluster, b"a")
    cluster.controller.hold("n3")  # and still considers n1 the leader of epoch 1
    for leader in ("n2", "n1"):
        cluster.controller.move_leader(cluster.decided("s"), leader, 2)
    assert cluster.partition("n3", "s").leader == "n1"

    assert not cluster.fetch("n3", "s")
    assert cluster.values("n3", "s") == []

    cluster.controller.release("n3", 3)
    assert cluster.fetch("n3", "s")
    assert cluster.values("n3", "s") == [b"a"]


def test_a_long_backlog_comes_in_batches() -> None:
    cluster = cluster_with()
    for number in range(2_500):
        put(cluster, str(number).encode(), AckPolicy.NONE)

    rounds = 0
    while cluster.partition("n2", "s").log.newest_offset < 2_499:
        cluster.fetch("n2", "s")
        rounds += 1

    assert rounds == 3
    assert cluster.values("n2", "s") == [str(number).encode() for number in range(2_500)]


def test_a_replica_that_caught_up_is_in_sync_again() -> None:
    cluster = cluster_with()
    cluster.shrink("n1", "n3", "s")
    put(cluster, b"a")
    cluster.replicate("s")

    cluster.expand("n1", "n3", "s")

    assert in_sync(cluster) == [("n1", "n2", "n3")] * 3
    acks = put(cluster, b"b")
    for _ in range(3):
        cluster.fetch("n2", "s")
    assert acks == []
    cluster.replicate("s")
    assert len(acks) == 1


def test_silent_and_lagging_followers_are_out_of_sync() -> None:
    cluster = cluster_with()
    leadership = cluster.partition("n1", "s").leadership
    assert leadership is not None

    def late() -> list[str]:
        now = cluster.clock.now
        return [one for one in leadership.followers if leadership.is_out_of_sync(one, SECOND, now)]

    cluster.clock.now += SECOND
    assert late() == []
    cluster.fetch("n2", "s")
    cluster.clock.now += 1
    assert late() == ["n3"]

    put(cluster, b"a")
    cluster.clock.now += SECOND - 1
    assert late() == ["n3"]
    cluster.clock.now += 1
    cluster.fetch("n3", "s")  # fetched something, so not caught up
    assert late() == ["n2", "n3"]
    cluster.fetch("n3", "s")
    assert late() == ["n2"]


def test_only_the_leader_of_the_latest_epoch_changes_the_isr() -> None:
    cluster = cluster_with()
    cluster.controller.hold("n1")
    cluster.controller.move_leader(cluster.decided("s"), "n2", cluster.clock.now)
    text = "Leader generation mismatch, current leader: n2 epoch: 2, got leader: n1 epoch: 1"

    for change in (cluster.shrink, cluster.expand):
        with pytest.raises(BrokerError) as refused:
            change("n1", "n3", "s")
        assert (refused.value.code, refused.value.text) == (Code.FAILED_PRECONDITION, text)
    assert in_sync(cluster) == [("n1", "n2", "n3")] * 3


def test_readonly_and_resumed_replicas_still_follow() -> None:
    cluster = cluster_with()
    put(cluster, b"a")
    cluster.controller.set_readonly("s", [], 2, readonly=True)
    cluster.replicate("s")
    assert cluster.watermarks("s") == [0, 0, 0]

    cluster.controller.pause("s", [], 3)
    assert not cluster.fetch("n2", "s")
    cluster.controller.resume("s", (0,), 4)
    put(cluster, b"b")
    cluster.replicate("s")

    assert cluster.watermarks("s") == [1, 1, 1]


def test_a_new_leader_keeps_messages_above_its_watermark() -> None:
    cluster = cluster_with()
    put(cluster, b"a")
    cluster.fetch("n2", "s")
    cluster.fetch("n3", "s")
    assert cluster.watermarks("s") == [-1, -1, -1]
    cluster.stop("n1")
    cluster.controller.move_leader(cluster.decided("s"), "n2", 2)

    cluster.start("n1")
    cluster.replicate("s")

    assert [cluster.values(one, "s") for one in ("n1", "n2", "n3")] == [[b"a"]] * 3
    assert cluster.watermarks("s") == [0, 0, 0]


def test_an_epoch_without_messages_does_not_spread() -> None:
    """Otherwise n2 would count n1's messages as its own, and n1 would truncate committed ones."""
    cluster = cluster_with()
    put(cluster, b"a")
    cluster.replicate("s")
    put(cluster, b"b")  # n1 alone has it
    cluster.stop("n1")
    cluster.controller.move_leader(cluster.decided("s"), "n2", 2)  # and writes nothing
    cluster.start("n1")
    cluster.controller.move_leader(cluster.decided("s"), "n1", 3)
    for follower in ("n2", "n3", "n2", "n3"):
        cluster.fetch(follower, "s")
    assert cluster.watermarks("s") == [1, 0, 1]

    cluster.controller.move_leader(cluster.decided("s"), "n2", 4)
    cluster.fetch("n1", "s")

    assert cluster.watermarks("s") == [1, 0, 1]
    cluster.replicate("s")
    assert [cluster.values(one, "s") for one in ("n1", "n2", "n3")] == [[b"a", b"b"]] * 3
