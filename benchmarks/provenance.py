"""Provenance of results: the machine, the versions and the command that made them."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.servers.build import ServerUnavailable, find_go

from .serving import EMBEDDED, REAL, server_version


def provenance(words: Sequence[str], server: str) -> dict[str, Any]:
    """Provenance in result files; no paths, no names of machines.

    Args:
        words: The arguments of the command line.
        server: `real`, `embedded`, or the path of a binary.
    """
    return {
        "command": command_line(words, server),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "cpu": cpu_model(_read(Path("/proc/cpuinfo"))),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {
            "server": server_version(server),
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "go": _go_version(),
        },
    }


def command_line(words: Sequence[str], server: str) -> str:
    """The command, without what it tells of this machine: files, and the path of the server."""
    kept = []
    binary = Path(server).name
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        name, equals, _value = word.partition("=")
        if name in {"--json", "--chart"}:
            skip = not equals
            continue
        kept.append(word if server in {REAL, EMBEDDED} else word.replace(server, binary))
    return shlex.join(["python", "-m", "benchmarks", *kept])


def cpu_model(cpuinfo: str) -> str:
    """The name of the processor in the text of `/proc/cpuinfo`."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _go_version() -> str | None:
    try:
        go = find_go()
    except ServerUnavailable:
        return None
    said = subprocess.run(  # noqa: S603 - no shell, and our own words
        [go.command, "env", "GOVERSION"],
        env=os.environ | {"GOTOOLCHAIN": "local"} | go.environment,
        capture_output=True,
        check=True,
        text=True,
        timeout=30,
    )
    return said.stdout.strip()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
