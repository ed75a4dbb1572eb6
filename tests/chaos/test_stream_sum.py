"""Stream-sum for less than a minute in all: what `python -m chaos.stream_sum` does for longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chaos.stream_sum.judge import Sum, Verdict, judge
from chaos.stream_sum.run import stream_sum
from chaos.stream_sum.worker import EXACTLY_ONCE, PLAIN
from support.servers.build import build_nats
from support.servers.cluster import Cluster, LiftbridgeCluster
from support.servers.embedded_cluster import running_embedded_cluster


@asynccontextmanager
async def real_cluster(binary: Path, folder: Path) -> AsyncIterator[Cluster]:
    cluster = LiftbridgeCluster(binary, await asyncio.to_thread(build_nats), folder, "stream-sum")
    await asyncio.to_thread(cluster.open)
    try:
        yield cluster
    finally:
        await asyncio.to_thread(cluster.close)


@pytest.mark.timeout(200)
async def test_on_real_nodes_each_chunk_is_summed_up_once(
    server_binary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_cluster(server_binary, tmp_path) as cluster:
        verdict = await stream_sum(cluster, 20, 2, EXACTLY_ONCE)
    with capsys.disabled():
        print(f"\n{verdict.text()}")  # noqa: T201 - what people look for in the log
    assert not verdict.failures, verdict.text()
    assert {"zombie", "summer killed", "server killed"} <= set(verdict.faults)


@pytest.mark.timeout(200)
async def test_on_embedded_nodes_each_chunk_is_summed_up_once() -> None:
    async with running_embedded_cluster() as cluster:
        verdict = await stream_sum(cluster, 10, 1, EXACTLY_ONCE)
    assert not verdict.failures, verdict.text()


@pytest.mark.timeout(200)
async def test_without_transactions_sums_come_twice() -> None:
    """That it shows what it is there to show; `--way unfenced` does so by hand."""
    async with running_embedded_cluster() as cluster:
        verdict = await stream_sum(cluster, 6, 1, PLAIN)
    assert verdict.doubled, verdict.text()


def test_the_judge_finds_what_is_lost_doubled_and_out_of_order() -> None:
    first, second, third = (Sum("a", number, number) for number in range(3))

    def judged(acked: list[Sum], raw: list[Sum], chunks: list[Sum], sums: list[Sum]) -> Verdict:
        verdict = Verdict()
        judge(verdict, acked, {0: raw}, {0: chunks}, {0: sums})
        return verdict

    whole = [first, second, third]
    assert not judged(whole, whole, whole, whole).failures
    assert judged(whole, whole, whole, [first, second, second, third]).doubled
    assert judged(whole, whole, whole, [first, third]).failures
    assert judged(whole, whole, whole, [second, first, third]).failures
    assert judged(whole, whole, whole[:2], whole[:2]).failures
    lost_by_server = judged(whole, whole[:2], whole[:2], whole[:2])
    assert not lost_by_server.failures
    assert lost_by_server.by_the_server
