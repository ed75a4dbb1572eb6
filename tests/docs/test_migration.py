"""The page for users of other clients: its code runs, and its names exist."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

import liftbridge_aio
from liftbridge_aio import (
    Client,
    ClientOptions,
    ConsumerGroup,
    Message,
    StartAt,
    StreamOptions,
    Subscription,
)
from support.markdown import ROOT, names, table

PAGE: Final = ROOT / "docs" / "migration.md"
ROWS: Final = table(PAGE, "go-liftbridge")
OTHERS: Final = (
    "python-liftbridge",
    "gufo-liftbridge",
    "aiokafka, kafka-python, confluent-kafka",
    "nats-py",
)
OWNERS: Final = (Client, ConsumerGroup, Subscription, StartAt, StreamOptions, ClientOptions)
JETSTREAM: Final = re.compile(r"js\.(?P<name>\w+)\((?P<arguments>.*)\)$")
PLACES: Final = (*OWNERS, liftbridge_aio)
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
    owner = ConsumerGroup if name == "commit" else Client
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


@pytest.mark.parametrize("other", OTHERS)
def test_calls_and_arguments_for_users_of_other_clients_exist(other: str) -> None:
    texts = [text for row in table(PAGE, other) for text in names(row[1])]
    calls = {name for text in texts for name in re.findall(r"([A-Za-z]\w+)\(", text)}
    arguments = {name for text in texts for name in re.findall(r"\b([a-z]\w+)=", text)}
    methods = [value for owner in OWNERS for value in vars_of(owner) if callable(value)]
    known = {name for method in methods for name in inspect.signature(method).parameters}
    assert len(calls) > 2
    assert {name for name in calls if not any(hasattr(each, name) for each in PLACES)} == set()
    assert arguments - known == set()


def vars_of(owner: type) -> list[Any]:
    return [owner, *(getattr(owner, name) for name in dir(owner) if not name.startswith("_"))]


def test_calls_and_arguments_of_nats_py_exist() -> None:
    texts = [text for row in table(PAGE, "nats-py") for text in names(row[0])]
    calls = [call for text in texts if (call := JETSTREAM.search(text))]
    assert len(calls) > 4
    for call in calls:
        parameters = inspect.signature(getattr(JetStreamContext, call["name"])).parameters
        fields = StreamConfig.__dataclass_fields__
        assert {*re.findall(r"(\w+)=", call["arguments"])} <= {*parameters, *fields}
