"""The guide: its code runs, its tables are complete, and what they name exists."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio import errors, stan
from support.markdown import ROOT, Block, blocks, names, table
from support.servers.streaming import StreamingServer
from support.streaming_clients import StartServer

GUIDE: Final = ROOT / "docs" / "stan.md"
COMPATIBILITY: Final = ROOT / "docs" / "stan-compatibility.md"
PYTHON: Final = [block for block in blocks(GUIDE, "python") if block.setup == "stan"]
SECTIONS: Final = """
    Basic Usage; Subscription Start (i.e. Replay) Options; Durable Subscriptions; Queue Groups;
    Creating a Queue Group; Start Position; Leaving the Group; Closing a Queue Group;
    Durable Queue Groups; Creating a Durable Queue Group; Start Position (durable);
    Leaving the Group (durable); Closing the Group; Wildcard Subscriptions;
    Asynchronous Publishing; Message Acknowledgements and Redelivery; Publisher rate limiting;
    Subscriber rate limiting
"""
BEHAVIOURS: Final = 59
TOUCHES_THE_STORE: Final = {"make", "server", "own_server", "store"}
"""Fixtures and parameters by which a test runs with each store."""


@pytest.fixture
def private_server(start_server: StartServer) -> StreamingServer:
    return start_server("MEMORY")


@pytest.mark.parametrize("block", PYTHON, ids=str)
async def test_its_code_runs(private_server: StreamingServer, block: Block) -> None:
    above = "\n" * (block.line - 2) + "async def example(nats_url):\n"
    body = block.code.replace("async def handle", "global handle\nasync def handle")
    body = body.replace("\norders = client", "\nglobal orders\norders = client")
    code = compile(above + textwrap.indent(body, "    "), str(GUIDE), "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)  # noqa: S102
    await namespace["example"](private_server.url)


def test_every_option_is_in_its_table() -> None:
    told = [names(row[0]) for row in table(GUIDE, "`ClientOptions`")]
    assert told == [[field.name] for field in fields(stan.ClientOptions)]
    told_of_subscriptions = GUIDE.read_text().partition("## Subscribing")[2]
    for name in inspect.signature(stan.Client.subscribe).parameters:
        assert name in {"self", "channel"} or f"{name}=" in told_of_subscriptions


def test_defaults_are_those_of_the_go_client() -> None:
    options = stan.ClientOptions()
    assert (options.request_timeout, options.ack_timeout) == (2, 30)
    assert (options.ping_interval, options.ping_max_out) == (5, 88)
    assert (options.max_in_flight, options.discover_prefix) == (16_384, "_STAN.discover")
    subscribe = inspect.signature(stan.Client.subscribe).parameters
    assert (subscribe["ack_wait"].default, subscribe["max_in_flight"].default) == (30, 1024)
    assert subscribe["manual_ack"].default is False


def test_every_error_that_is_named_exists_and_each_is_named() -> None:
    told = {name for row in table(GUIDE, "Error") for name in names(row[0])}
    assert [name for name in told if not hasattr(errors, name) and not hasattr(stan, name)] == []
    own = {
        name
        for name in stan.__all__
        if inspect.isclass(kind := getattr(stan, name)) and issubclass(kind, Exception)
    }
    assert own <= told
    tree = stan.errors.__doc__ or ""
    assert all(name in tree for name in own)


def test_every_event_is_told() -> None:
    told = {name for row in table(GUIDE, "Event") for name in names(row[0])}
    assert told == {kind.__name__ for kind in stan.Event.__args__}


def test_every_public_name_is_told() -> None:
    text = GUIDE.read_text() + COMPATIBILITY.read_text()
    untold = {"Event", "ClientState", "SubscriptionState", "DeliveryCounts", "PublishCounts"}
    missing = {name for name in stan.__all__ if name not in text}
    assert {name for name in missing - untold if not name.endswith("Statistics")} == set()


# The published guide


def test_every_section_of_the_published_guide_has_its_rows() -> None:
    shown = list(dict.fromkeys(row[0] for row in table(COMPATIBILITY, "Section")))
    assert shown == [" ".join(section.split()) for section in SECTIONS.split(";")]


def test_every_name_in_its_table_exists() -> None:
    cells = [name for row in table(COMPATIBILITY, "Section") for name in names(row[2])]
    assert len(cells) > 20
    for name in cells:
        owner, _, attribute = name.removesuffix("=)").partition(".")
        attribute, _, argument = attribute.partition("(")
        if name.startswith("Client(cl"):
            owner, attribute, argument = "Client", "__init__", name[7:-2]
        home = getattr(stan, owner, None) or getattr(errors, owner)
        there = not attribute or hasattr(home, attribute) or attribute in home.__annotations__
        assert there, name
        if argument:
            assert argument in inspect.signature(getattr(home, attribute)).parameters, name


def defined_tests() -> dict[str, set[str]]:
    """The parameters of each test of this folder, by its name."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name: {argument.arg for argument in node.args.args}
        for file in sorted(Path(__file__).parent.glob("test_*.py"))
        for node in ast.parse(file.read_text()).body
        if isinstance(node, functions) and node.name.startswith("test_")
    }


def test_every_row_has_tests_that_exist() -> None:
    defined = defined_tests()
    for heading in ("Section", "The guide says", "Behaviour"):
        for row in table(COMPATIBILITY, heading):
            cell = row[1] if heading == "Behaviour" else row[3]
            assert names(cell), row
            assert [name for name in names(cell) if name not in defined] == []


def test_every_behaviour_of_the_go_client_is_a_test_of_its_name() -> None:
    rows = table(COMPATIBILITY, "Behaviour")
    assert len({row[0] for row in rows}) == len(rows) == BEHAVIOURS
    assert f"{BEHAVIOURS} of {BEHAVIOURS}" in COMPATIBILITY.read_text()
    defined = defined_tests()
    for behaviour, cell, stores in rows:
        [test] = names(cell)
        assert test == f"test_{in_words(behaviour)}"
        assert (stores == "memory, file") is bool(TOUCHES_THE_STORE & defined[test]), test


def in_words(name: str) -> str:
    """Turn a name like `NATSConnID` into `nats_conn_id`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
