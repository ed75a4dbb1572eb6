"""The page for users of other clients: its code runs, and its names exist."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import pytest

import liftbridge_aio
from liftbridge_aio import Client, ClientOptions, Message, StreamOptions
from support.markdown import ROOT, names, table

PAGE: Final = ROOT / "docs" / "migration.md"
ROWS: Final = table(PAGE, "go-liftbridge")
CALL: Final = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)$")


def test_each_option_stands_once() -> None:
    options = [name for row in ROWS for name in names(row[0])]
    assert len(options) > 80
    assert sorted(options) == sorted(set(options))


def called() -> list[tuple[str, list[str]]]:
    calls = []
    for row in ROWS:
        for text in names(row[1]):
            call = CALL.search(text)
            if call is not None and call["name"] != "Client":
                arguments = re.findall(r"(\w+)=(?:,|$)", call["arguments"])
                calls.append((call["name"], arguments))
    return calls


@pytest.mark.parametrize(("name", "arguments"), called())
def test_a_call_exists_and_takes_these_arguments(name: str, arguments: list[str]) -> None:
    owner = liftbridge_aio.ConsumerGroup if name == "commit" else Client
    assert {*arguments} <= {*inspect.signature(getattr(owner, name)).parameters}


def test_other_names_exist() -> None:
    unknown = []
    faces: list[Any] = [liftbridge_aio, Client, ClientOptions, StreamOptions, Message]
    for row in ROWS:
        for text in names(row[1]):
            if "(" in text or text.startswith(("liftbridge_aio.", "-", "None")):
                continue
            owner, _, name = text.rpartition(".")
            places = [getattr(liftbridge_aio, owner)] if owner and owner != "client" else faces
            if not any(
                hasattr(place, name) or name in getattr(place, "__dataclass_fields__", ())
                for place in places
            ):
                unknown.append(text)
    assert unknown == []
