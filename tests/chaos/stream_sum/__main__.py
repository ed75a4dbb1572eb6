"""`python -m chaos.stream_sum`: stream-sum on three real or embedded nodes, for ten minutes."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from chaos.stream_sum.judge import Verdict
from chaos.stream_sum.run import stream_sum
from chaos.stream_sum.worker import EXACTLY_ONCE, PLAIN, UNFENCED
from support.servers.build import build_nats, build_server
from support.servers.cluster import LiftbridgeCluster
from support.servers.embedded_cluster import running_embedded_cluster


def main() -> int:
    """Run, print, and say by the exit status whether everything held."""
    parser = argparse.ArgumentParser(prog="chaos.stream_sum", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, help="which faults (default: new ones)")
    parser.add_argument("--way", choices=(EXACTLY_ONCE, PLAIN, UNFENCED), default=EXACTLY_ONCE)
    parser.add_argument("--embedded", action="store_true", help="on the embedded cluster")
    arguments = parser.parse_args()
    seed = arguments.seed
    if seed is None:
        seed = random.SystemRandom().randrange(10**6)
    _tell(f"seed {seed}")
    seconds = arguments.minutes * 60
    run = _embedded if arguments.embedded else _real
    verdict = asyncio.run(run(seconds, seed, arguments.way))
    _tell(verdict.text())
    return 1 if verdict.failures else 0


async def _embedded(seconds: float, seed: int, way: str) -> Verdict:
    async with running_embedded_cluster() as cluster:
        return await stream_sum(cluster, seconds, seed, way, _tell)


async def _real(seconds: float, seed: int, way: str) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="stream-sum-") as folder:
        cluster = LiftbridgeCluster(build_server(), build_nats(), Path(folder), "stream-sum")
        await asyncio.to_thread(cluster.open)
        try:
            return await stream_sum(cluster, seconds, seed, way, _tell)
        finally:
            await asyncio.to_thread(cluster.close)


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
