"""The pages say what is true: their code runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import re
import shlex
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster, Faults
from liftbridge_aio.cli import app as command_line
from support.markdown import ROOT, Block, blocks, names

pytest_plugins = ["pytester"]

DOCS: Final = ROOT / "docs"
PAGES: Final = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
PYTHON: Final = [(page, block) for page in PAGES for block in blocks(page, "python")]
COMMANDS: Final = sorted(
    {
        line
        for page in PAGES
        for block in blocks(page, "console")
        for line in block.code.splitlines()
        if line.startswith("liftbridge-aio ")
    }
)
ELSEWHERE: Final = {
    *(
        "bridges.md",
        "durable-streams.md",
        "gateway.md",
        "gazette.md",
        "moving-from-nats-streaming.md",
        "moving-from-nsq.md",
        "nats.md",
        "nsq.md",
        "security.md",
        "simulation.md",
        "spark.md",
        "stan.md",
        "web.md",
    ),
}
"""Pages whose code runs in tests beside those of what they describe."""


def with_setup(setup: str | None) -> list[Any]:
    return [
        pytest.param(page, block, id=f"{page.stem}-{block}")
        for page, block in PYTHON
        if block.setup == setup and page.name not in ELSEWHERE
    ]


def pages_with(setup: str) -> list[Path]:
    found = [page for page, block in PYTHON if block.setup == setup and page.name not in ELSEWHERE]
    return list(dict.fromkeys(found))


def compiled(page: Path, block: Block, head: str = "") -> Any:
    code = f"{head}\n{textwrap.indent(block.code, '    ')}" if head else block.code
    above = "\n" * (block.line - (2 if head else 1))  # so that errors name the line of the page
    return compile(above + code, str(page), "exec", dont_inherit=True)


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client of an embedded broker, which the environment names."""
    async with EmbeddedBroker(cursors_partitions=3) as broker, Client(broker.address) as client:
        monkeypatch.setenv("LIFTBRIDGE_SERVERS", broker.address)
        yield client


# Code


@pytest.mark.parametrize(("page", "block"), with_setup(None))
def test_code_without_setup_runs_by_itself(page: Path, block: Block) -> None:
    exec(compiled(page, block), {"__name__": "page"})  # noqa: S102


@pytest.mark.parametrize("page", pages_with("client"), ids=lambda page: page.stem)
async def test_code_for_a_connected_client_runs_from_top_to_bottom(
    page: Path, client: Client
) -> None:
    for block in blocks(page, "python"):
        if block.setup == "client":
            namespace: dict[str, Any] = {}
            exec(compiled(page, block, "async def example(client):"), namespace)  # noqa: S102
            async with asyncio.timeout(10):
                await namespace["example"](client)


@pytest.mark.usefixtures("client")
async def test_the_steps_of_the_tutorial_run_one_after_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = [block.code for page, block in PYTHON if block.setup == "tutorial"]
    code = "async def tutorial():\n" + textwrap.indent("\n".join(steps), "    ")
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # noqa: S102
    async with asyncio.timeout(20):
        await namespace["tutorial"]()
    assert capsys.readouterr().out.splitlines() == [
        "stored at offset 0",
        "30 stored",
        "31 read",
        "31 handled",
        "b'2 eggs'",
    ]


@pytest.mark.parametrize(
    "block", [block for _, block in PYTHON if block.setup == "tutorial"], ids=str
)
def test_the_steps_of_the_tutorial_can_be_pasted_into_a_prompt(block: Block) -> None:
    lines = block.code.splitlines()
    for statement in ast.parse(block.code).body:
        assert statement.end_lineno is not None
        following = lines[statement.end_lineno : statement.end_lineno + 1]
        is_compound = statement.end_lineno > statement.lineno and hasattr(statement, "body")
        assert not is_compound or following in ([], [""]), "a prompt needs an empty line after it"


async def test_the_worker_of_the_front_page_handles_messages(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    [(page, block)] = [(page, block) for page, block in PYTHON if block.setup == "handler"]
    namespace: dict[str, Any] = {}
    exec(compiled(page, block), namespace)  # noqa: S102
    work = asyncio.create_task(namespace["work"]())
    said = ""
    async with asyncio.timeout(20):
        while "orders" not in (await client.fetch_metadata()).streams:
            pass
        while "bread" not in said:
            await client.publish("orders", b"bread")
            said += capsys.readouterr().out
    work.cancel()
    await asyncio.wait([work])


def test_the_file_of_tests_passes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)  # where the live test would fail
    [block] = [block for page, block in PYTHON if block.setup == "pytest" and page.stem != "web"]
    pytester.makepyfile(block.code)
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, skipped=1)


def test_every_setup_is_known() -> None:
    setups = {block.setup for page, block in PYTHON if page.name not in ELSEWHERE}
    # That of NATS runs beside the tests of leases, in tests/contract.
    assert setups == {None, "client", "handler", "nats", "pytest", "transactions", "tutorial"}


# Commands


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
        "bridge",
        "broker",
        "cursor",
        "demo",
        "doctor",
        "gateway",
        "groups",
        "metadata",
        "partitions",
        "pipeline",
        "publish",
        "queue",
        "streams",
        "subscribe",
        "tail",
        "transactions",
    }


# Links and names


def headings(page: Path) -> set[str]:
    return {
        re.sub(r"[^\w-]", "", line.lstrip("# ").lower().replace(" ", "-"))
        for line in page.read_text().splitlines()
        if line.startswith("#")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not heading or heading in headings(there), target


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text()
    listed = set(re.findall(r"^([\w-]+)$", index, re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} <= listed


@pytest.mark.parametrize("described", [Faults, EmbeddedCluster])
def test_the_methods_that_are_named_exist(described: type) -> None:
    text = (DOCS / "embedded-broker.md").read_text()
    part = {Faults: "## Faults", EmbeddedCluster: "## Clusters"}[described]
    section = text.partition(part)[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in names(row.split("|")[1])}
    assert named
    assert [name for name in sorted(named) if not callable(getattr(described, name, None))] == []
