"""`liftbridge-aio doctor`: what is wrong with a cluster or the way to it, and what to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from cli.conftest import ON_EMBEDDED, Run
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.cli.doctor import Finding, Verdict, examine
from liftbridge_aio.cli.partition_states import PartitionState
from liftbridge_aio.errors import UnsupportedByServer
from liftbridge_aio.model import (
    ACTIVITY_STREAM,
    CURSORS_STREAM,
    BrokerInfo,
    EventTimestamps,
    Metadata,
    PartitionInfo,
    StreamInfo,
)

NOW = 1_000_000.0


def wrong(result: Any) -> list[str]:
    return [
        f"{finding['text']}: {finding['advice']}"
        for finding in result.json["findings"]
        if finding["verdict"] == "wrong"
    ]


def test_a_server_in_order_is_well(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream)
    found = run_on_each("doctor", "--json")
    assert found.json["well"] is True
    assert wrong(found) == []
    lines = run_on_each("doctor").out.splitlines()
    assert lines[0].startswith("ok     Python 3.")
    assert " answers in " in lines[1]
    assert "with a leader" in lines[-1]


@ON_EMBEDDED
def test_what_is_paused_or_read_only_is_a_note(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream, "--partitions", "3")
    run_on_each("streams", "pause", stream, "--partition", "0", "--partition", "2")
    run_on_each("streams", "readonly", stream, "--partition", "1")
    out = run_on_each("doctor").out
    paused, readonly = (
        next(line for line in out.splitlines() if line.startswith(f"note   {what} partitions: "))
        for what in ("paused", "read-only")
    )
    assert f"{stream} 0, 2" in paused
    assert "`streams resume --partition`" in paused
    assert f"{stream} 1" in readonly


def test_without_cursors_and_activity_there_are_notes(run: Run, bare_broker_address: str) -> None:
    notes = [
        line
        for line in run("doctor", servers=bare_broker_address).out.splitlines()
        if line.startswith("note")
    ]
    assert len(notes) == 2
    assert "cursors.stream.partitions" in notes[0]
    assert "activity.stream.enabled" in notes[1]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nothing listens, and which nobody else gets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def test_names_ports_and_protocols_that_are_wrong_are_told(
    run: Run, broker_address: str, closed_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:

        def talk() -> None:
            for _ in range(2):  # one to see whether it listens, and that of the client
                link, _ = mute.accept()
                with link:
                    link.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

        threading.Thread(target=talk, daemon=True).start()
        other = f"127.0.0.1:{mute.getsockname()[1]}"
        servers = f"{broker_address},nowhere.invalid:9292,127.0.0.1:{closed_port},{other}"
        name, port, protocol = wrong(run("doctor", "--json", servers=servers, code=1))
    assert name.startswith("nowhere.invalid:9292 has a name that cannot be resolved")
    assert "DNS" in name
    assert port.startswith(f"127.0.0.1:{closed_port} refuses connections: start the server")
    assert protocol.startswith(f"{other} accepts connections, but ")


def test_a_server_without_tls_is_told(run: Run, broker_address: str) -> None:
    [found] = wrong(run("doctor", "--json", "--tls", code=1))
    assert broker_address in found
    assert "--tls" in found


def test_a_policy_that_forbids_the_calls_is_told(run: Run, elsewhere: BlockingPortal) -> None:
    broker = EmbeddedBroker()
    with elsewhere.wrap_async_context_manager(broker):
        elsewhere.call(lambda: broker.faults.fail("FetchMetadata", code="PERMISSION_DENIED"))
        [found] = wrong(run("doctor", "--json", servers=broker.address, code=1))
    assert "policy" in found


def test_brokers_that_are_down_are_told(run: Run, elsewhere: BlockingPortal) -> None:
    cluster = EmbeddedCluster(3)
    with elsewhere.wrap_async_context_manager(cluster):
        first = cluster.addresses[0]
        run("streams", "create", "s", "--replication-factor", "3", servers=first)
        assert wrong(run("doctor", "--json", servers=first)) == []
        elsewhere.call(cluster.stop_node, "n3")
        found = wrong(run("doctor", "--json", servers=first, code=1))
    assert any("n3" in each for each in found)


def cluster_of(**partitions: PartitionInfo) -> tuple[Metadata, list[PartitionState]]:
    """A cluster of two brokers, and streams of a partition each."""
    streams = {CURSORS_STREAM: PartitionInfo(0, "a"), ACTIVITY_STREAM: PartitionInfo(0, "a")}
    metadata = Metadata(
        brokers={name: BrokerInfo(name, "127.0.0.1", 1) for name in "ab"},
        streams={
            name: StreamInfo(name, name, {0: info}) for name, info in (streams | partitions).items()
        },
    )
    return metadata, [PartitionState(name, info) for name, info in partitions.items()]


def faults(metadata: Metadata, states: list[PartitionState]) -> list[Finding]:
    return [each for each in examine(metadata, states, NOW) if each.verdict is not Verdict.OK]


def test_partitions_are_judged_by_leaders_replicas_and_times() -> None:
    early, late = (EventTimestamps(latest=round((NOW + ahead) * 1e9)) for ahead in (0.5, 12))
    metadata, states = cluster_of(
        good=PartitionInfo(0, "a", ("a", "b"), ("a", "b"), messages_received=early),
        headless=PartitionInfo(0, ""),
        behind=PartitionInfo(0, "b", ("a", "b"), ("b",)),
        ahead=PartitionInfo(0, "b", messages_received=late),
        lost=PartitionInfo(0, "c", ("c",), ("c",)),
    )
    assert [each.text for each in faults(metadata, states)] == [
        "broker c has replicas of partitions, but the servers do not list it",
        "partitions without a leader: headless 0",
        "partitions with replicas out of sync: behind 0",
        "the clock of broker b is at least 12.0 s ahead of this machine's",
    ]
    assert all(each.advice for each in faults(metadata, states))


def test_leaders_that_do_not_answer_are_told_with_the_reason() -> None:
    metadata, states = cluster_of(old=PartitionInfo(0, "a"))
    states = [PartitionState("old", states[0].info, UnsupportedByServer("unknown method"))]
    [found] = faults(metadata, states)
    assert found.text.startswith("partitions whose leader does not answer: old 0; the first: ")
    assert "unknown method" in found.text
