"""The guide to queues: its tables are complete."""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import Final

import pytest

import liftbridge_aio.queue
from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.queue import Delivery, Queue, QueueOptions, errors
from liftbridge_aio.queue.giving_up import HEADERS
from support.markdown import ROOT, names, table
from support.raw import BOUND

GUIDE: Final = ROOT / "docs" / "queues.md"


async def test_a_queue_needs_no_cursors() -> None:
    async with (
        asyncio.timeout(BOUND),
        EmbeddedBroker(cursors_partitions=0) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream("orders")
        for value in (b"first", b"second"):
            await client.publish("orders", value)
            # The second member begins where the first one has ended.
            async with client.queue("orders", group="g") as queue:
                delivery = await anext(queue)
                assert delivery.value == value
                await delivery.ack()


def test_its_tables_name_arguments_and_options() -> None:
    arguments = inspect.signature(Client.queue).parameters
    assert [names(row[0])[0] for row in table(GUIDE, "Argument")] == list(arguments)[1:]
    options = inspect.signature(QueueOptions).parameters
    shown = {names(row[0])[0]: row[1].strip("`") for row in table(GUIDE, "Option")}
    assert list(shown) == list(options)
    known = vars(liftbridge_aio) | vars(liftbridge_aio.queue)
    for name, default in shown.items():
        assert eval(default, known) == options[name].default, name  # noqa: S307 - our own page


def test_its_table_names_every_answer() -> None:
    shown = {name.removesuffix("()") for row in table(GUIDE, "Answer") for name in names(row[0])}
    coroutines = inspect.getmembers(Delivery, inspect.iscoroutinefunction)
    assert shown - {"ack_wait"} == {name for name, _ in coroutines if not name.startswith("_")}


def test_its_table_names_every_header_of_a_dead_letter() -> None:
    shown = [name for row in table(GUIDE, "Header") for name in names(row[0])]
    assert shown == list(HEADERS)


def test_its_table_of_features_names_what_exists() -> None:
    options = [*inspect.signature(Client.queue).parameters, *QueueOptions.__dataclass_fields__]
    for row in table(GUIDE, "Feature"):
        for name in names(row[2]):
            kind, _, attribute = name.partition(".")
            found = {"Delivery": Delivery, "Queue": Queue}.get(kind)
            if found is not None:
                assert callable(getattr(found, attribute)), name
            else:
                assert name in {*options, "async with", "run"}, name


def test_its_table_of_errors_is_complete() -> None:
    shown = [names(row[0])[0] for row in table(GUIDE, "Error")]
    assert shown == [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    ]


def defined_tests() -> set[str]:
    """The names of all tests of queues."""
    files = [
        ROOT / "tests" / "contract" / "test_client_queue.py",
        ROOT / "tests" / "contract" / "test_client_queue_leases.py",
        ROOT / "tests" / "faults" / "test_queue.py",
        ROOT / "tests" / "faults" / "test_queue_leases.py",
        ROOT / "tests" / "contract" / "test_queue_storm.py",
        ROOT / "tests" / "simulation" / "test_world.py",
        ROOT / "tests" / "unit" / "_core" / "test_ready_flow.py",
        *(ROOT / "tests" / "unit" / "queue").rglob("test_*.py"),
    ]
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    trees = [ast.parse(file.read_text()) for file in files]
    return {node.name for tree in trees for node in tree.body if isinstance(node, functions)}


@pytest.mark.parametrize(("page", "count"), [("from-nats-streaming", 20), ("from-nsq", 25)])
def test_its_tables_of_behaviours_name_tests_that_exist(page: str, count: int) -> None:
    rows = table(ROOT / "docs" / f"{page}.md", "Behaviour")
    named = [name for row in rows for name in names(row[1])]
    assert len(rows) >= count
    assert all(names(row[1]) for row in rows)
    assert set(named) - defined_tests() == set()
