"""`liftbridge-aio metadata`: the cluster as it is told, and which of its brokers answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio.from_thread import BlockingPortal

from cli.conftest import Run
from liftbridge_aio.broker import EmbeddedCluster
from liftbridge_aio.cli.connection import ConnectionFlags


def test_the_cluster_is_shown_with_what_each_broker_leads(
    run_on_each: Run, address: str, stream: str
) -> None:
    run_on_each("streams", "create", stream, "--partitions", "2", "--subject", f"{stream}.in")
    cluster = run_on_each("metadata", "--json").json
    [broker] = cluster["brokers"]
    assert broker["address"] == address == f"{broker['host']}:{broker['port']}"
    assert broker["answers"] is True
    assert 0 < broker["ping_milliseconds"] < 10_000
    everything = [one for stream in cluster["streams"] for one in stream["partitions"]]
    assert broker["leader_count"] == broker["partition_count"] == len(everything)
    [mine] = [one for one in cluster["streams"] if one["name"] == stream]
    assert mine["subject"] == f"{stream}.in"
    assert mine["partitions"] == [
        {
            "id": number,
            "leader": broker["id"],
            "replicas": [broker["id"]],
            "isr": [broker["id"]],
            "readonly": False,
        }
        for number in (0, 1)
    ]
    table = run_on_each("metadata").out
    assert table.startswith("Brokers: 1, streams: ")
    assert f"│ {address} │" in table
    assert " ms " in table


@pytest.fixture
def cluster(elsewhere: BlockingPortal) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(3)
    with elsewhere.wrap_async_context_manager(cluster):
        yield cluster


def test_a_broker_that_does_not_answer_is_told_of(
    run: Run, cluster: EmbeddedCluster, elsewhere: BlockingPortal
) -> None:
    run("streams", "create", "s", "--replication-factor", "3", servers=cluster.addresses[0])
    pings = run("metadata", "--json", servers=cluster.addresses[0]).json["brokers"]
    assert [broker["id"] for broker in pings] == ["n1", "n2", "n3"]
    assert all(broker["answers"] for broker in pings)
    assert [broker["partition_count"] for broker in pings] == [2, 2, 2]  # one is of __cursors
    assert sum(broker["leader_count"] for broker in pings) == 2

    dead = cluster.nodes["n2"].address
    elsewhere.call(cluster.stop_node, "n2")
    failed = run("metadata", "--json", servers=cluster.addresses[0], code=1)
    brokers = {broker["id"]: broker for broker in failed.json["brokers"]}
    assert [name for name in brokers if brokers[name]["answers"]] == ["n1", "n3"]
    assert brokers["n2"]["address"] in {None, dead}  # as long as the servers remember it
    [line] = failed.err.splitlines()
    assert line.startswith("error: 1 of 3 brokers do not answer")
    assert "n2" in line or dead in line
    assert "no answer" in run("metadata", servers=cluster.addresses[0], code=1).out

    unasked = run("metadata", "--no-ping", "--json", servers=cluster.addresses[0]).json["brokers"]
    assert not any("answers" in broker for broker in unasked)


def test_a_broker_that_is_asked_alone_is_the_only_one_asked() -> None:
    client = ConnectionFlags(servers="a:1,b:2").client(only="c:3")
    assert "c:3" in repr(client)
    assert "a:1" not in repr(client)
    assert client.options.address_map is not None
    assert client.options.address_map("d:4") == "c:3"


def test_the_end_of_a_paused_partition_is_asked_of_its_leader(
    run: Run, cluster: EmbeddedCluster
) -> None:
    run("publish", "s", "1", "2", "3", "--create", servers=cluster.addresses[0])
    for address in cluster.addresses:  # of which one leads it
        run("streams", "pause", "s", servers=address)
        tail = ("tail", "s", "--from", "last:1", "--no-follow", "--unpause", "--json")
        assert [one["value"] for one in run(*tail, servers=address).objects] == ["3"]


def test_a_partition_whose_leader_is_gone_hides_no_other(
    run: Run, cluster: EmbeddedCluster, elsewhere: BlockingPortal
) -> None:
    words = {"servers": cluster.addresses[0]}
    for stream in ("a", "b", "c"):
        run("streams", "create", stream, **words)
    listed = run("partitions", "list", "a", "b", "c", "--json", **words).json
    gone = next(one for one in listed if one["leader"] != "n1")
    elsewhere.call(cluster.stop_node, gone["leader"])
    short = ("--timeout", "1s")
    failed = run("partitions", "list", "a", "b", "c", "--json", *short, **words, code=1)
    [lost] = [one for one in failed.json if "error" in one]
    assert (lost["stream"], lost["leader"]) == (gone["stream"], gone["leader"])
    assert (lost["high_watermark"], lost["newest_offset"]) == (None, None)
    [line] = failed.err.splitlines()
    assert line.startswith("error: 1 of 3 partitions")
    shown = run("streams", "show", gone["stream"], *short, **words, code=1)
    assert "leader does not answer" in shown.out
