"""The tables of the reference are complete: options, errors, ends, events, faults, public names."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields
from typing import Any, Final

import pytest

import liftbridge_aio
from chaos.outages import OUTAGES
from chaos.verdict import COLUMNS as CHAOS_COLUMNS
from chaos.verdict import PEACE
from liftbridge_aio import errors, telemetry
from liftbridge_aio._client.reading import _BOUNDED_FOR
from liftbridge_aio.options import ClientOptions, Duration, StreamOptions, seconds
from liftbridge_aio.testing.simulation.faults import KINDS
from support.markdown import ROOT, blocks, names, table

DOCS: Final = ROOT / "docs"
OPTIONS: Final = DOCS / "options.md"
ERRORS: Final = DOCS / "errors.md"


@pytest.mark.parametrize("options", [ClientOptions, StreamOptions])
def test_the_tables_of_options_name_every_field_and_its_default(
    options: type[ClientOptions | StreamOptions],
) -> None:
    rows = table(OPTIONS, f"Field of `{options.__name__}`")
    shown = {names(field)[0]: evaluated(default) for field, default, _ in rows}
    real = options()
    assert shown == {field.name: getattr(real, field.name) for field in fields(options)}


def test_the_table_of_timeouts_agrees_with_the_options() -> None:
    options = ClientOptions()
    seen = set()
    for what, default, cell, _ in table(OPTIONS, "What"):
        used = names(cell)
        seen |= set(used)
        if used == ["backoff"]:
            assert default == f"{options.backoff.initial:g} s to {options.backoff.maximum:g} s"
            continue
        if used == ["resubscribe_timeout"]:
            assert options.resubscribe_timeout is None
            assert default == f"for ever; {_BOUNDED_FOR:g} s if it has a stop"
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
    (block,) = blocks(ERRORS, "text")
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


def test_each_error_has_a_section_that_says_what_to_do() -> None:
    shown = dict(
        re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", ERRORS.read_text(), re.MULTILINE | re.DOTALL)
    )
    assert sorted(shown) == sorted({kind.__name__ for kind in [*all_errors(), *public_errors()]})
    assert all("**What to do:** " in section for section in shown.values())


def all_errors() -> list[type[errors.LiftbridgeError]]:
    found = [errors.LiftbridgeError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return [kind for kind in found if kind.__module__ == errors.__name__]


def public_errors() -> list[type[BaseException]]:
    modules = sorted(MODULES - errors_elsewhere().keys())
    return [kind for module in modules for kind in errors_of(module)]


def errors_elsewhere() -> dict[str, list[str]]:
    """Packages whose errors are on their own page, which the tests of the package hold to them."""
    rows = table(ERRORS, "Package")
    return {names(package)[0]: sorted(names(shown)) for package, shown, _ in rows}


def test_errors_on_other_pages_are_named() -> None:
    shown = errors_elsewhere()
    assert shown.keys() <= MODULES
    for module, named in shown.items():
        own = [kind for kind in errors_of(module) if kind.__module__.startswith(module)]
        assert named == sorted(kind.__name__ for kind in own)


def errors_of(module: str) -> list[type[BaseException]]:
    return [
        value
        for value in vars(importlib.import_module(module)).values()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__.startswith("liftbridge_aio.")
    ]


def test_the_table_of_ends_names_every_reason() -> None:
    shown = {names(row[0])[0] for row in table(DOCS / "reading.md", "`end_reason`")}
    assert shown == {f"EndReason.{reason.name}" for reason in liftbridge_aio.EndReason}


def test_the_table_of_events_names_every_method_of_a_hook() -> None:
    shown = {name for row in table(DOCS / "observing.md", "Event") for name in names(row[0])}
    assert shown == {name for name in vars(telemetry.Hook) if not name.startswith("_")}


def test_the_table_of_loggers_is_that_of_the_code() -> None:
    made = re.compile(r'(?:getLogger\(|LOGGER: Final = )"(liftbridge_aio\.\w+)"')
    files = (ROOT / "liftbridge_aio").rglob("*.py")
    used = {name for file in files for name in made.findall(file.read_text())}
    assert [names(row[0])[0] for row in table(DOCS / "observing.md", "Logger")] == sorted(used)


def test_the_command_for_the_faults_is_one_and_its_table_has_them_all() -> None:
    page = DOCS / "faults.md"
    [line] = blocks(page, "console")[0].code.splitlines()
    assert re.fullmatch(r"\.venv/bin/nox -s chaos -- --minutes \d+ --seed \d+", line)
    assert "def chaos(" in (ROOT / "noxfile.py").read_text()
    head, _, *rows = [row for row in page.read_text().splitlines() if row.count("|") > 9]
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns == [*CHAOS_COLUMNS]
    faults = [row.strip("|").split("|")[0].strip() for row in rows]
    assert sorted(faults) == sorted([PEACE, *OUTAGES, "all"])


def test_the_tables_of_faults_have_the_whole_catalogue() -> None:
    page = DOCS / "proof.md"
    simulated, real = (
        [name for row in table(page, head) for name in names(row[0])]
        for head in ("Fault", "Fault of real nodes")
    )
    assert sorted(simulated) == sorted(KINDS)
    assert sorted(real) == sorted(OUTAGES.keys() - KINDS.keys())


def test_the_command_for_the_benchmarks_is_one() -> None:
    [block] = blocks(DOCS / "performance.md", "console")
    assert block.code == ".venv/bin/nox -s bench -- goals\n"
    assert "def bench(" in (ROOT / "noxfile.py").read_text()
    assert "| `goals` |" in (ROOT / "benchmarks" / "README.md").read_text()


# Public names

DIRECTIVES: Final = [
    line.split("::")
    for page in sorted((DOCS / "api").glob("*.md"))
    for line in page.read_text().splitlines()
    if line.startswith(".. ")
]
MODULES: Final = {name.strip() for kind, name in DIRECTIVES if kind == ".. automodule"}
SINGLE: Final = {name.strip() for kind, name in DIRECTIVES if kind != ".. automodule"}


def test_the_reference_has_every_public_name() -> None:
    missing = [
        name
        for name in liftbridge_aio.__all__
        if f"liftbridge_aio.{name}" not in SINGLE
        and not any(hasattr(importlib.import_module(module), name) for module in MODULES)
        and f"liftbridge_aio.groups.{name}" not in SINGLE
    ]
    assert missing == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_public_name_has_a_docstring(module: str) -> None:
    found = importlib.import_module(module)
    public = getattr(found, "__all__", None) or [
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module
    ]
    documented = {name: inspect.getdoc(getattr(found, name)) for name in public}
    assert [name for name, text in documented.items() if not text] == []
