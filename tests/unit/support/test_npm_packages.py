"""Sources of the Node that runs servers from npm."""

from __future__ import annotations

import json

from support.servers.npm_packages import SOURCES, packages_path


def test_versions_are_exact_and_no_registry_is_named() -> None:
    package = json.loads((SOURCES / "package.json").read_text())
    lock = json.loads((SOURCES / "package-lock.json").read_text())["packages"]

    assert package["dependencies"] == {
        "@durable-streams/server": "0.3.7",
        "@durable-streams/server-conformance-tests": "0.3.6",
    }
    assert all("resolved" not in each for each in lock.values())
    assert all("integrity" in each for name, each in lock.items() if name)
    assert packages_path().name.startswith("npm-")
