"""The plugin costs next to nothing to those who only have the package installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytest_plugins = ["pytester"]

HEAVY: Final = {"betterproto2", "fastapi", "google.protobuf", "grpclib", "h2", "hypothesis"}
MOST: Final = 0.005
"""Seconds of processor time that the plugin itself may take to load."""

LOAD: Final = """
import sys
import time
import pytest
import liftbridge_aio
began = time.process_time()
import liftbridge_aio.pytest_plugin
print(time.process_time() - began, *sys.modules)
"""


def load(bytecode: Path) -> tuple[float, set[str]]:
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    command = [sys.executable, "-W", "error", "-c", LOAD]
    result = subprocess.run(
        command, env=environment, capture_output=True, check=True, text=True, timeout=30
    )
    seconds, *modules = result.stdout.split()
    return float(seconds), set(modules)


def test_loading_imports_nothing_heavy_and_is_quick(tmp_path: Path) -> None:
    seconds = []
    for _ in range(5):  # the quickest: how busy the machine is, is no matter of ours
        taken, modules = load(tmp_path)
        seconds.append(taken)
        if taken < MOST:
            break
    assert "liftbridge_aio.pytest_plugin" in modules
    assert not HEAVY & modules
    assert not [name for name in modules if name.startswith("liftbridge_aio.broker")]
    assert min(seconds) < MOST


def test_pytest_shows_fixtures_and_markers(pytester: pytest.Pytester) -> None:
    arguments = ("-pno:asyncio", "-pno:cacheprovider")
    fixtures = pytester.runpytest_inprocess("--fixtures", *arguments).stdout
    for name, doc in {
        "liftbridge_broker": "A running EmbeddedBroker of the test's own",
        "liftbridge_client": "A connected Client on `liftbridge_broker`",
        "liftbridge_cluster": "A running EmbeddedCluster of the test's own",
        "liftbridge_cluster_client": "A connected Client on `liftbridge_cluster`",
        "liftbridge_run": "Runs a coroutine where the broker of a sync test lives",
    }.items():
        fixtures.fnmatch_lines([f"{name} -- *", f"    {doc}*"], consecutive=True)
    fixtures.no_fnmatch_line("_liftbridge_*")
    markers = pytester.runpytest_inprocess("--markers", *arguments).stdout
    for name in ("live", "broker(*)", "cluster(*)", "client(*)"):
        markers.fnmatch_lines([f"@pytest.mark.liftbridge_{name}: *"])
