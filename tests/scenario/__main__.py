"""`python -m scenario`: orders to invoices, totals and an archive, while everything is killed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from scenario.processes import Embedded, Real, Servers
from scenario.run import Scenario
from support.servers.build import build_nats, build_server, nats_path, pinned_version, server_path
from support.servers.cluster import LiftbridgeCluster


def main() -> int:
    """Run it, print its table, and say by the exit status whether everything held."""
    parser = argparse.ArgumentParser(prog="scenario", description=__doc__)
    parser.add_argument("--orders", type=int, default=30_000, help="how many (default: 30000)")
    parser.add_argument("--real", action="store_true", help="on three real nodes")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scenario-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        servers = _real(folder) if arguments.real else Embedded(folder)

        def tell(step: str) -> None:
            _write(f"{time.monotonic() - started:6.1f} s  {step}")

        found = asyncio.run(Scenario(servers, folder, arguments.orders, tell).run())
    _write(f"\n{found.table()}\n\n{found.seconds:.0f} seconds")
    return 0 if found.held else 1


def _real(folder: Path) -> Servers:
    build_server()
    build_nats()
    nodes = folder / "nodes"
    nodes.mkdir()
    return Real(LiftbridgeCluster(server_path(), nats_path(), nodes, pinned_version()))


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
