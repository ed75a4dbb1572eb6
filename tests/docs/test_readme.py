"""What the front page says is true: its code runs, its commands exist, its tables are complete."""

from __future__ import annotations

import asyncio
import re
import shlex
import textwrap
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

import liftbridge_aio
from chaos.plan import Kind
from chaos.table import COLUMNS as CHAOS_COLUMNS
from liftbridge_aio import errors, telemetry
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.cli import app as command_line
from liftbridge_aio.options import ClientOptions, Duration, StreamOptions, seconds
from support.markdown import ROOT, Block, blocks, names, table

pytest_plugins = ["pytester"]

README: Final = ROOT / "README.md"
PYTHON: Final = blocks(README, "python")
CONSOLE: Final = [line for block in blocks(README, "console") for line in block.code.splitlines()]
COMMANDS: Final = [line for line in CONSOLE if line.startswith("liftbridge-aio ")]


# Code


@pytest.mark.parametrize("block", [b for b in PYTHON if b.setup is None], ids=str)
def test_code_without_setup_runs_by_itself(block: Block) -> None:
    exec(compiled(block), {"__name__": "readme"})  # noqa: S102


@pytest.mark.parametrize("block", [b for b in PYTHON if b.setup == "client"], ids=str)
async def test_code_for_a_connected_client_runs(block: Block) -> None:
    async with EmbeddedBroker() as broker, liftbridge_aio.Client(broker.address) as client:
        await client.create_stream("orders", partitions=3)
        await client.publish_many("orders", [b"%d" % number for number in range(10)])
        namespace: dict[str, Any] = {}
        exec(compiled(block, "async def example(client):"), namespace)  # noqa: S102
        async with asyncio.timeout(10):
            await namespace["example"](client)


def test_every_setup_is_known() -> None:
    assert {block.setup for block in PYTHON} == {None, "client", "fastapi", "pytest"}


def test_the_file_of_tests_passes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)  # where the live test would fail
    (block,) = [block for block in PYTHON if block.setup == "pytest"]
    pytester.makepyfile(block.code)
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, skipped=1)


@pytest.fixture
async def servers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async with EmbeddedBroker() as broker:
        monkeypatch.setenv("LIFTBRIDGE_SERVERS", broker.address)
        yield broker.address


async def test_the_fastapi_service_publishes_and_is_healthy(servers: str) -> None:
    app = the_service("fastapi")["app"]
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://service") as http,
    ):
        assert (await http.get("/health")).status_code == 503  # there is no stream yet
        async with liftbridge_aio.Client(servers) as client:
            await client.create_stream("orders")
        for number, body in enumerate([b"bread", b"milk"]):
            assert (await http.post("/orders", content=body)).json() == {"offset": number}
        assert (await http.get("/health")).json()["status"] == "ready"


def the_service(setup: str) -> dict[str, Any]:
    (block,) = [block for block in PYTHON if block.setup == setup]
    namespace: dict[str, Any] = {"__name__": "readme"}
    exec(compiled(block), namespace)  # noqa: S102
    return namespace


def compiled(block: Block, head: str = "") -> Any:
    code = f"{head}\n{textwrap.indent(block.code, '    ')}" if head else block.code
    above = "\n" * (block.line - (2 if head else 1))  # so that errors name the line of the page
    return compile(above + code, str(README), "exec", dont_inherit=True)


# Commands


def test_the_three_commands_come_first_and_word_for_word() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install nox"
    first, *others = CONSOLE[:3]
    assert first == f"{install} && .venv/bin/nox -s demo"
    assert others == [".venv/bin/nox -s tests", ".venv/bin/nox -s pipeline"]
    tasks = (ROOT / "noxfile.py").read_text()
    for command in CONSOLE[:3]:
        assert f"def {command.rpartition(' ')[2]}(" in tasks


def test_there_is_no_other_kind_of_command() -> None:
    assert len(COMMANDS) == len(CONSOLE) - 5


def test_the_command_for_the_benchmarks_is_one() -> None:
    (bench,) = [line for line in CONSOLE[3:] if "nox -s bench" in line]
    assert bench == ".venv/bin/nox -s bench -- goals"
    assert "def bench(" in (ROOT / "noxfile.py").read_text()
    assert "| `goals` |" in (ROOT / "benchmarks" / "README.md").read_text()


def test_the_command_for_the_faults_is_one_and_its_table_has_them_all() -> None:
    (line,) = [line for line in CONSOLE[3:] if "nox -s chaos" in line]
    assert re.fullmatch(r"\.venv/bin/nox -s chaos -- --minutes 10 --seed \d+", line)
    assert "def chaos(" in (ROOT / "noxfile.py").read_text()
    head, _, *rows = [row for row in README.read_text().splitlines() if row.count("|") > 10]
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns == [name for name, _, _ in CHAOS_COLUMNS]
    faults = [row.strip("|").split("|")[0].strip() for row in rows]
    assert faults == ["before the first fault", *(kind.value for kind in Kind), "all"]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_exists_and_takes_these_arguments(line: str) -> None:
    command, bound, _ = command_line.parse_args(
        shlex.split(line)[1:], exit_on_error=False, print_error=False
    )
    assert command.__module__.startswith("liftbridge_aio.cli.")
    assert bound is not None


def test_every_command_is_shown() -> None:
    shown = {line.split()[1] for line in COMMANDS}
    assert shown == {
        "bench",
        "broker",
        "cursor",
        "demo",
        "groups",
        "metadata",
        "partitions",
        "pipeline",
        "publish",
        "streams",
        "subscribe",
        "tail",
    }


# Tables


@pytest.mark.parametrize("options", [ClientOptions, StreamOptions])
def test_the_tables_of_options_name_every_field_and_its_default(
    options: type[ClientOptions | StreamOptions],
) -> None:
    rows = table(README, f"Field of `{options.__name__}`")
    shown = {names(field)[0]: evaluated(default) for field, default, _ in rows}
    real = options()
    assert shown == {field.name: getattr(real, field.name) for field in fields(options)}


def test_the_table_of_timeouts_agrees_with_the_options() -> None:
    options = ClientOptions()
    seen = set()
    for what, default, cell, _ in table(README, "What"):
        used = names(cell)
        seen |= set(used)
        if used == ["backoff"]:
            assert default == f"{options.backoff.initial:g} s to {options.backoff.maximum:g} s"
            continue
        total = sum(seconds(getattr(options, name)) for name in used)
        assert default == f"{total:g} s", what
    durations = {field.name for field in fields(ClientOptions) if field.type in _DURATION_TYPES}
    assert seen == durations | {"backoff"}


_DURATION_TYPES: Final = {"Duration", "Duration | None", Duration}


def evaluated(cell: str) -> Any:
    names_known = vars(liftbridge_aio) | {"NO_HOOK": telemetry.NO_HOOK}
    return eval(names(cell)[0], dict(names_known))  # noqa: S307


def test_the_tree_of_errors_is_the_tree() -> None:
    (block,) = blocks(README, "text")
    above: list[str] = []
    shown = {}
    for line in block.code.splitlines():
        name, *other = line.lstrip(" │├└─").split()
        depth = (len(line) - len(line.lstrip(" │├└─"))) // 4
        del above[depth:]
        parent = above[-1] if above else "Exception"
        shown[name] = {parent, *(base.strip("()") for base in other)}
        above.append(name)
    assert shown == {
        kind.__name__: {base.__name__ for base in kind.__bases__} for kind in all_errors()
    }


def test_the_table_of_errors_says_something_about_each() -> None:
    shown = [names(row[0])[0] for row in table(README, "Error")]
    assert sorted(shown) == sorted(kind.__name__ for kind in all_errors())


def all_errors() -> list[type[errors.LiftbridgeError]]:
    found = [errors.LiftbridgeError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return [kind for kind in found if kind.__module__ == errors.__name__]


def test_the_table_of_ends_names_every_reason() -> None:
    shown = {names(row[0])[0] for row in table(README, "`end_reason`")}
    assert shown == {f"EndReason.{reason.name}" for reason in liftbridge_aio.EndReason}


def test_the_table_of_events_names_every_method_of_a_hook() -> None:
    shown = {name for row in table(README, "Event") for name in names(row[0])}
    assert shown == {name for name in vars(telemetry.Hook) if not name.startswith("_")}


def test_links_lead_somewhere() -> None:
    text = README.read_text()
    headings = {
        "".join(c for c in line.lstrip("# ").lower().replace(" ", "-") if c.isalnum() or c in "-_")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings
        elif not target.startswith("https://"):
            assert Path(README.parent, target).exists(), target
