"""The plugin costs next to nothing to those who only have the package installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

pytest_plugins = ["pytester"]

HEAVY: Final = {"betterproto2", "fastapi", "google.protobuf", "grpclib", "h2", "hypothesis"}
MOST: Final = 0.005
"""Seconds of processor time that the plugin itself may take to load."""

# Compiled beforehand, as it is in installed packages; the quickest of several, because how busy the
# machine is, is no matter of ours.
LOAD: Final = """
import importlib.util
import sys
import time
import pytest
import liftbridge_aio

spec = importlib.util.find_spec("liftbridge_aio.pytest_plugin")
code = spec.loader.get_code(spec.name)
taken = []
for _ in range(5):
    module = importlib.util.module_from_spec(spec)
    began = time.process_time()
    exec(code, vars(module))
    taken.append(time.process_time() - began)
print(min(taken), *sys.modules)
"""


def test_loading_imports_nothing_heavy_and_is_quick() -> None:
    command = [sys.executable, "-W", "error", "-c", LOAD]
    result = subprocess.run(command, capture_output=True, check=True, text=True, timeout=30)
    seconds, *modules = result.stdout.split()
    assert "liftbridge_aio" in modules
    assert not HEAVY & set(modules)
    assert not [name for name in modules if name.startswith("liftbridge_aio.broker")]
    assert float(seconds) < MOST


def test_pytest_shows_fixtures_and_markers(pytester: pytest.Pytester) -> None:
    arguments = ("-pno:asyncio", "-pno:cacheprovider")
    fixtures = pytester.runpytest_inprocess("--fixtures", *arguments).stdout
    for name, doc in {
        "liftbridge_broker": "A running EmbeddedBroker of the test's own",
        "liftbridge_client": "A connected Client on `liftbridge_broker`",
        "liftbridge_cluster": "A running EmbeddedCluster of the test's own",
        "liftbridge_cluster_client": "A connected Client on `liftbridge_cluster`",
        "liftbridge_simulation": "A simulated world of brokers, processes and faults",
        "liftbridge_run": "A function that runs a coroutine in the loop of a sync test's broker",
    }.items():
        fixtures.fnmatch_lines([f"{name} -- *", f"    {doc}*"], consecutive=True)
    fixtures.no_fnmatch_line("_liftbridge_*")
    markers = pytester.runpytest_inprocess("--markers", *arguments).stdout
    for name in ("live", "broker(*)", "cluster(*)", "client(*)", "simulation(*)"):
        markers.fnmatch_lines([f"@pytest.mark.liftbridge_{name}: *"])
