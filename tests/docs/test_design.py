"""The maintainers' page says what is there: its map, its tables of retries, its references."""

from __future__ import annotations

import ast
import inspect
import itertools
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

import liftbridge_aio
from liftbridge_aio import errors
from liftbridge_aio._core import status
from liftbridge_aio._core.status import CallFailure, Code, Reach, StreamEnd, remedy, stream_end
from liftbridge_aio._publish import refusals
from liftbridge_aio._publish.refusals import PublishCode, publish_error
from liftbridge_aio.wire import rpc
from support.markdown import ROOT, names, table

PACKAGE: Final = ROOT / "liftbridge_aio"
DESIGN: Final = ROOT / "docs" / "design.md"
COMPATIBILITY: Final = ROOT / "docs" / "compatibility.md"
OTHER: Final = "something else altogether"


# The map


PACKAGES: Final = [
    init.parent for init in PACKAGE.rglob("__init__.py") if "Generated" not in init.read_text()
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_docstring_of_a_package_names_what_is_in_it(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = [path.stem for path in package.glob("*.py") if path.name != "__init__.py"]
    packages = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    named = re.findall(r"^- `([\w/]+)`: ", docstring, re.MULTILINE)
    assert named == sorted(modules) + sorted(packages)


@pytest.mark.parametrize("page", [DESIGN, COMPATIBILITY], ids=lambda page: page.name)
def test_every_file_that_is_named_exists(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = {name for name in names(text) if re.fullmatch(r"[\w./]+(\.(py|md|toml)|/)", name)}
    assert len(named) > 3
    assert [name for name in named if not any((p / name).exists() for p in (PACKAGE, ROOT))] == []


# Retries


@dataclass(frozen=True, slots=True)
class Rule:
    """A row: what it is about, column by column (None: anything), and what it says."""

    wanted: tuple[frozenset[str] | None, ...]
    texts: frozenset[str] | None
    says: str

    def fits(self, text: str, *values: str) -> bool:
        return (self.texts is None or any(part in text for part in self.texts)) and all(
            wanted is None or value in wanted
            for wanted, value in zip(self.wanted, values, strict=True)
        )


def rules(rows: list[list[str]], *columns: int, text: int, says: int) -> list[Rule]:
    return [
        Rule(tuple(alternatives(row[n]) for n in columns), alternatives(row[text]), row[says])
        for row in rows
    ]


def alternatives(cell: str) -> frozenset[str] | None:
    return None if cell == "any" else frozenset(names(cell) or [cell])


def said(table_of_rules: list[Rule], text: str, *values: str) -> str:
    return next(rule.says for rule in table_of_rules if rule.fits(text, *values))


def all_texts(table_of_rules: list[Rule]) -> list[str]:
    found = {text for rule in table_of_rules for text in rule.texts or ()}
    return [*sorted(found), OTHER]


CALLS: Final = rules(table(DESIGN, "RPC"), 0, 1, 2, 3, text=4, says=5)
PROCEDURES: Final = [value.name for value in vars(rpc).values() if isinstance(value, rpc.Rpc)]


def calls() -> Iterator[tuple[str, Reach, bool, Code, str]]:
    return itertools.product(PROCEDURES, Reach, (False, True), Code, all_texts(CALLS))


def test_the_table_of_calls_is_that_of_the_code() -> None:
    for call, reach, earlier_unknown, code, text in calls():
        failure = CallFailure(code, text, reach)
        decided = remedy(call, failure, earlier_unknown=earlier_unknown)
        earlier = "UNKNOWN" if earlier_unknown else "ANSWERED"
        shown = said(CALLS, text, call, reach.name, earlier, code.name)
        assert shown == decided.name, (call, reach, earlier, code, text)


def test_every_row_of_the_table_of_calls_decides_something() -> None:
    needed = {
        next(
            number
            for number, rule in enumerate(CALLS)
            if rule.fits(text, call, reach.name, "UNKNOWN" if earlier else "ANSWERED", code.name)
        )
        for call, reach, earlier, code, text in calls()
    }
    assert needed == set(range(len(CALLS)))


def test_the_table_of_calls_knows_every_text_of_the_code() -> None:
    known = {
        *status._NO_METADATA_LEADER,
        status._NATS_AWAY,
        *status._NOT_PARTITION_LEADER,
        *status._TIMED_OUT,
        status._NO_CURSORS_STREAM,
    }
    assert {text for rule in CALLS for text in rule.texts or ()} == known


READINGS: Final = rules(table(DESIGN, "Reading"), 0, 1, 2, text=3, says=4)


def test_the_table_of_subscriptions_is_that_of_the_code() -> None:
    for reverse, reach, code in itertools.product((False, True), Reach, Code):
        for text in all_texts(READINGS):
            decided = stream_end(CallFailure(code, text, reach), reverse=reverse)
            reading = "reverse" if reverse else "forward"
            shown = said(READINGS, text, reading, reach.name, code.name)
            assert shown == decided.name, (reading, reach, code, text)


def test_the_table_of_subscriptions_knows_every_end_and_every_text() -> None:
    assert {rule.says for rule in READINGS} == {end.name for end in StreamEnd}
    texts = {text for rule in READINGS for text in rule.texts or ()}
    assert texts >= {text for _, text, _ in status._ENDS if text}


ANSWERS: Final = rules(table(DESIGN, "Code"), 0, text=1, says=2)


def test_the_table_of_publishing_is_that_of_the_code() -> None:
    for code, text in itertools.product(PublishCode, all_texts(ANSWERS)):
        error = publish_error(code, text)
        assert said(ANSWERS, text, code.name) == type(error).__name__, (code, text)


def test_the_table_of_publishing_knows_every_text_and_what_is_tried_again() -> None:
    texts = {text for rule in ANSWERS for text in rule.texts or ()}
    assert texts == {*refusals._TOO_LARGE, "partition"}
    again = {row[2] for row in table(DESIGN, "Code") if not row[3].startswith("no")}
    assert again == {"StreamNotFound"}
    assert refusals.stream_unknown(PublishCode.NOT_FOUND, OTHER)


# The guide

SECTIONS: Final = """
    Generating gRPC API; Client Interface; CreateStream; DeleteStream; PauseStream;
    SetStreamReadonly; Subscribe; Publish; PublishAsync; PublishToSubject;
    Low-Level Publish Helpers; NewMessage; UnmarshalMessage; UnmarshalAck; FetchMetadata;
    FetchPartitionMetadata; SetCursor; FetchCursor; Close; Client Implementation;
    Messages and Acks; RPCs; Connection Pooling; CreateStream Implementation;
    DeleteStream Implementation; PauseStream Implementation; SetStreamReadonly Implementation;
    Subscribe Implementation; Publish Implementation; PublishAsync Implementation;
    Partitioner Implementation; PublishToSubject Implementation; FetchMetadata Implementation;
    FetchPartitionMetadata Implementation; SetCursor Implementation; FetchCursor Implementation;
    Close Implementation
"""


def test_every_section_of_the_guide_has_its_rows_in_its_order() -> None:
    shown = list(dict.fromkeys(row[0] for row in table(COMPATIBILITY, "Section")))
    assert shown == [" ".join(section.split()) for section in SECTIONS.split(";")]


def test_the_errata_cover_every_wrong_statement_that_is_known() -> None:
    letters = "".join(re.findall(r"^\| (\w) \|", COMPATIBILITY.read_text(), re.MULTILINE))
    assert letters == "abcdefg"


def known_names() -> dict[str, Any]:
    """Modules by their path in the package and by their last name, classes by their name."""
    found: dict[str, Any] = {}
    other_words = re.compile(r"\.(cli|broker|__main__|proto|stan|simulation)(\.|$)")
    for module in pkgutil.walk_packages(liftbridge_aio.__path__, "liftbridge_aio."):
        if other_words.search(module.name):
            continue
        loaded = __import__(module.name, fromlist=["_"])
        path = module.name.removeprefix("liftbridge_aio.")
        found |= {path: loaded, path.rpartition(".")[2]: loaded}
        found |= {n: v for n, v in vars(loaded).items() if inspect.isclass(v) and n[0].isupper()}
    return found


def references() -> list[str]:
    cells = [row[2] for row in table(COMPATIBILITY, "Section")]
    pattern = re.compile(r"[A-Za-z_][\w.]*(\(\w+=\))?")
    return [
        name
        for cell in cells
        for name in names(cell)
        if pattern.fullmatch(name) and not name.endswith((".py", ".md")) and not name.isupper()
    ]


def test_every_name_that_the_table_of_the_guide_gives_exists() -> None:
    known = known_names()
    missing = [name for name in references() if not exists(name, known)]
    assert missing == []
    assert len(references()) > 100


def exists(reference: str, known: dict[str, Any]) -> bool:
    path, _, argument = reference.removesuffix("=)").partition("(")
    owner, _, attribute = path.rpartition(".")
    if not owner:
        return path in known or path == "None"
    if owner not in known:
        return False
    home = known[owner]
    there = hasattr(home, attribute) or attribute in getattr(home, "__annotations__", {})
    if not there and inspect.isclass(home):
        there = f"self.{attribute}" in inspect.getsource(home)
    if not argument:
        return there
    return argument in inspect.signature(getattr(home, attribute)).parameters


DEFAULTS: Final = re.findall(
    r"`Client\.(\w+)\((\w+)=\)` is (`[\w.]+`|[\w-]+)", COMPATIBILITY.read_text()
)


@pytest.mark.parametrize(("call", "argument", "default"), DEFAULTS)
def test_defaults_of_the_guide_are_told_as_they_are(call: str, argument: str, default: str) -> None:
    signature = inspect.signature(getattr(liftbridge_aio.Client, call))
    shown = eval(default.strip("`"), dict(vars(liftbridge_aio)))  # noqa: S307
    assert signature.parameters[argument].default == shown


def test_every_error_that_the_tables_name_exists() -> None:
    shown = {row[2] for row in table(DESIGN, "Code")}
    assert all(issubclass(getattr(errors, name), errors.LiftbridgeError) for name in shown)
