"""Placement and failover of partitions, and what requires a majority of the brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from liftbridge_aio.broker.cluster.cursors import cursors_stream
from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.model import AckPolicy
from support.broker.pure_brokers import PureCluster, incoming, stream


def three_brokers() -> PureCluster:
    return PureCluster("n1", "n2", "n3")


def placement(cluster: PureCluster, name: str) -> list[tuple[tuple[str, ...], str]]:
    """Replicas and leader of each partition."""
    found = cluster.controller.leader().stream(name)
    assert found is not None
    return [(one.replicas, one.leader) for one in found.partitions.values()]


def refusal(call: Callable[[], object]) -> tuple[Code, str]:
    with pytest.raises(BrokerError) as refused:
        call()
    return refused.value.code, refused.value.text


def test_placement_is_as_measured_on_three_real_servers() -> None:
    cluster = three_brokers()
    cluster.create(cursors_stream("ns.cursors", 3))
    assert placement(cluster, "__cursors") == [(("n1", "n2", "n3"), "n1")] * 3

    for name, server_id in (("a", "n1"), ("b", "n2"), ("c", "n3")):
        cluster.create(stream(name))
        assert placement(cluster, name) == [((server_id,), server_id)]


def test_all_partitions_of_a_stream_go_to_the_same_brokers() -> None:
    cluster = three_brokers()
    cluster.create(stream("a", partitions=3))
    assert placement(cluster, "a") == [(("n1",), "n1")] * 3

    cluster.create(stream("b", replicas=2))
    assert placement(cluster, "b") == [(("n2", "n3"), "n2")]
    cluster.create(stream("c", replicas=2))
    assert placement(cluster, "c") == [(("n2", "n3"), "n3")]


def test_the_least_loaded_brokers_get_a_partition_even_dead_ones() -> None:
    cluster = three_brokers()
    cluster.create(stream("a"))
    cluster.stop("n2")
    cluster.create(stream("b", replicas=3))

    assert placement(cluster, "b") == [(("n2", "n3", "n1"), "n2")]


def test_pauses_and_deletions_lower_the_load() -> None:
    cluster = three_brokers()
    cluster.create(stream("a"), stream("b"), stream("c"))
    cluster.controller.pause("b", [], 2)
    cluster.create(stream("d"))
    assert placement(cluster, "d") == [(("n2",), "n2")]

    cluster.controller.delete_stream("c", 3)
    cluster.create(stream("e"))
    assert placement(cluster, "e") == [(("n3",), "n3")]


def replicated(cluster: PureCluster) -> PureCluster:
    """The stream `s` on all brokers, led by n1, with one committed message."""
    cluster.create(stream("s", replicas=3))
    cluster.publish("n1", "s", 0, incoming(b"first", AckPolicy.ALL))
    cluster.replicate("s")
    return cluster


def test_two_of_two_followers_depose_a_leader_which_stays_in_sync() -> None:
    cluster = replicated(three_brokers())
    cluster.stop("n1")

    cluster.report("n2", "s")
    cluster.report("n2", "s")
    assert cluster.decided("s").leader == "n1"
    cluster.report("n3", "s")

    decided = cluster.decided("s")
    assert (decided.leader, decided.leader_epoch) == ("n2", 2)
    assert decided.isr == ["n1", "n2", "n3"]
    assert [cluster.node("n2").leads(decided), cluster.partition("n3", "s").is_following] == [
        True,
        True,
    ]


def test_one_follower_is_enough_where_two_are_in_sync() -> None:
    cluster = replicated(three_brokers())
    cluster.shrink("n1", "n3", "s")
    cluster.stop("n1")

    cluster.report("n2", "s")

    assert cluster.decided("s").leader == "n2"


def test_reports_are_dropped_when_another_broker_leads_the_metadata() -> None:
    cluster = PureCluster("n1", "n2", "n3", "n4", "n5")
    cluster.create(stream("other"), stream("s", replicas=4))
    assert placement(cluster, "s") == [(("n2", "n3", "n4", "n5"), "n2")]
    cluster.report("n3", "s")
    cluster.stop("n1")
    assert cluster.controller.leader().server_id == "n2"
    cluster.report("n4", "s")
    assert cluster.decided("s").leader == "n2"

    cluster.start("n1")
    cluster.stop("n2")
    assert cluster.controller.leader().server_id == "n1"
    cluster.report("n5", "s")
    assert cluster.decided("s").leader == "n2"
    cluster.report("n4", "s")
    assert cluster.decided("s").leader != "n2"


def test_the_new_leader_is_the_one_in_sync_that_leads_least() -> None:
    cluster = replicated(three_brokers())
    cluster.create(stream("b"), stream("c"))
    assert [placement(cluster, name)[0][1] for name in ("s", "b", "c")] == ["n1", "n1", "n2"]
    cluster.stop("n1")

    cluster.report("n2", "s")
    cluster.report("n3", "s")

    assert cluster.decided("s").leader == "n3"


def test_a_replica_out_of_sync_is_not_elected() -> None:
    cluster = replicated(three_brokers())
    for replica in ("n2", "n3"):
        cluster.shrink("n1", replica, "s")
    cluster.stop("n1")

    answer = refusal(lambda: cluster.report("n2", "s"))

    assert answer == (Code.FAILED_PRECONDITION, "No ISR candidates")
    assert cluster.decided("s").leader == "n1"


def test_a_report_about_an_earlier_leader_is_refused() -> None:
    cluster = replicated(three_brokers())
    cluster.controller.hold("n3")
    cluster.controller.move_leader(cluster.decided("s"), "n2", 2)

    text = "Leader generation mismatch, current leader: n2 epoch: 2, got leader: n1 epoch: 1"
    assert refusal(lambda: cluster.report("n3", "s")) == (Code.FAILED_PRECONDITION, text)


def test_a_report_about_a_deleted_partition_is_refused() -> None:
    cluster = replicated(three_brokers())
    cluster.controller.hold("n3")
    cluster.controller.delete_stream("s", 2)

    text = "No such partition [stream=s, partition=0]"
    assert refusal(lambda: cluster.report("n3", "s")) == (Code.FAILED_PRECONDITION, text)


def test_a_new_leader_may_show_less_than_was_committed_at_first() -> None:
    cluster = three_brokers()
    cluster.create(stream("s", replicas=3))
    acks = cluster.publish("n1", "s", 0, incoming(b"first", AckPolicy.ALL))
    for follower in ("n2", "n3", "n2", "n3"):
        cluster.fetch(follower, "s")
    assert len(acks) == 1
    assert cluster.watermarks("s") == [0, -1, 0]

    cluster.controller.move_leader(cluster.decided("s"), "n2", 2)
    assert cluster.watermarks("s") == [0, -1, 0]

    cluster.replicate("s")
    assert cluster.watermarks("s") == [0, 0, 0]


def test_a_held_broker_applies_nothing_by_restarting() -> None:
    cluster = replicated(three_brokers())
    cluster.controller.hold("n3")
    cluster.create(stream("t"))
    cluster.stop("n3")
    cluster.start("n3")
    assert cluster.node("n3").stream("t") is None

    cluster.controller.release("n3", 3)
    assert cluster.node("n3").stream("t") is not None


def test_a_held_leader_commits_nothing_once_it_has_a_successor() -> None:
    cluster = replicated(three_brokers())
    cluster.controller.hold("n1")
    cluster.report("n2", "s")
    cluster.report("n3", "s")
    assert cluster.decided("s").leader == "n2"

    both = cluster.publish("n2", "s", 0, incoming(b"second", AckPolicy.LEADER))
    assert [ack.offset for ack in both] == [1, 1]  # each considers the other deposed or dead
    everyone = cluster.publish("n2", "s", 0, incoming(b"third", AckPolicy.ALL))
    cluster.replicate("s")
    assert everyone == []

    cluster.controller.release("n1", 2)
    cluster.replicate("s")
    assert [ack.offset for ack in everyone] == [2]
    assert len({tuple(cluster.values(one, "s")) for one in cluster.contexts}) == 1


def test_a_replica_that_joins_the_isr_has_all_committed_messages() -> None:
    """Otherwise it could lead next, and messages acked with ALL would be lost."""
    cluster = replicated(three_brokers())
    cluster.shrink("n1", "n3", "s")
    acks = cluster.publish("n1", "s", 0, incoming(b"second", AckPolicy.ALL))
    for _ in range(3):
        cluster.fetch("n2", "s")
    assert len(acks) == 1

    text = "n3 lacks messages that were committed"
    assert refusal(lambda: cluster.expand("n1", "n3", "s")) == (Code.FAILED_PRECONDITION, text)

    cluster.replicate("s")
    cluster.expand("n1", "n3", "s")
    assert cluster.decided("s").isr == ["n1", "n2", "n3"]


def test_a_lagging_new_leader_adds_only_complete_replicas_to_the_isr() -> None:
    cluster = PureCluster("n1", "n2", "n3", "n4")
    cluster.create(stream("s", replicas=4))
    cluster.shrink("n1", "n4", "s")
    acks = cluster.publish("n1", "s", 0, incoming(b"first", AckPolicy.ALL))
    for follower in ("n2", "n3", "n2", "n3"):
        cluster.fetch(follower, "s")
    assert (len(acks), cluster.watermarks("s")) == (1, [0, -1, 0, -1])
    cluster.controller.move_leader(cluster.decided("s"), "n2", 2)

    text = "n4 lacks messages that were committed"
    for _ in range(2):
        answer = refusal(lambda: cluster.expand("n2", "n4", "s"))
        assert answer == (Code.FAILED_PRECONDITION, text)
        cluster.fetch("n4", "s")
    cluster.expand("n2", "n4", "s")
    assert cluster.decided("s").isr == ["n1", "n2", "n3", "n4"]


def test_a_held_leader_adds_no_replica_to_the_isr() -> None:
    """It would not learn of it, and would commit without them."""
    cluster = replicated(three_brokers())
    cluster.shrink("n1", "n3", "s")
    cluster.controller.hold("n1")

    answer = refusal(lambda: cluster.expand("n1", "n3", "s"))

    assert answer == (Code.INTERNAL, "no known metadata leader")
    assert cluster.decided("s").isr == ["n1", "n2"]


MINORITY = (Code.INTERNAL, "no known metadata leader")


@pytest.mark.parametrize("how", ["stopped", "held", "one of each"])
def test_nothing_is_decided_without_a_majority_of_the_brokers(how: str) -> None:
    cluster = replicated(three_brokers())
    lost = {"stopped": ["stop", "stop"], "held": ["hold", "hold"], "one of each": ["stop", "hold"]}
    for server_id, kind in zip(("n2", "n3"), lost[how], strict=True):
        if kind == "stop":
            cluster.stop(server_id)
        else:
            cluster.controller.hold(server_id)
    controller = cluster.controller
    partition = cluster.partition("n1", "s")

    assert not controller.has_leader()
    for call in (
        lambda: cluster.create(stream("t")),
        lambda: controller.delete_stream("s", 2),
        lambda: controller.pause("s", [], 2),
        lambda: controller.set_readonly("s", [], 2, readonly=True),
        lambda: controller.shrink_isr(partition, "n2", 2),
        lambda: controller.expand_isr(partition, "n2", 2),
        lambda: controller.report_leader(partition, "n2", 2),
        lambda: controller.move_leader(partition, "n2", 2),
    ):
        assert refusal(call) == MINORITY
    assert controller.last_index == 1

    acks = cluster.publish("n1", "s", 0, incoming(b"still"))
    assert [ack.offset for ack in acks] == [1]  # policy LEADER needs no majority

    cluster.start(*(one for one in ("n2", "n3") if not cluster.node(one).is_running))
    for server_id in ("n2", "n3"):
        controller.release(server_id, 3)
    controller.pause("s", [], 4)
    assert [cluster.partition(one, "s").is_paused for one in cluster.contexts] == [True] * 3


def test_a_minority_cannot_resume_a_paused_partition() -> None:
    cluster = replicated(three_brokers())
    cluster.controller.pause("s", [], 2)
    cluster.stop("n2", "n3")

    assert refusal(lambda: cluster.publish("n1", "s")) == MINORITY


def test_a_restarted_broker_drops_a_stream_deleted_meanwhile() -> None:
    cluster = replicated(three_brokers())
    cluster.stop("n3")
    cluster.controller.delete_stream("s", 2)
    cluster.create(stream("s", replicas=3))
    cluster.start("n3")
    cluster.replicate("s")

    assert cluster.values("n3", "s") == []
    acks = cluster.publish("n3", "s", 0, incoming(b"anew", AckPolicy.ALL))
    cluster.replicate("s")
    assert [ack.offset for ack in acks] == [0]


def test_watchers_are_called_after_each_operation() -> None:
    cluster = three_brokers()
    seen: list[int] = []

    def look() -> None:
        seen.append(cluster.controller.last_index)

    cluster.controller.watch(look)
    cluster.create(stream("a"), stream("b"))
    cluster.controller.unwatch(look)
    cluster.create(stream("c"))

    assert seen == [1, 2]
    assert [index for index, _ in cluster.controller.operations_after(1)] == [2, 3]
