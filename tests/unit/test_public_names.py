from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import liftbridge_aio
from liftbridge_aio import (
    AckPolicy,
    Client,
    ClientOptions,
    LiftbridgeError,
    StartAt,
    StopAt,
    errors,
)
from liftbridge_aio._subscribe.subscription import Subscription

REQUIRED = inspect.Parameter.empty
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
KEYWORD = inspect.Parameter.KEYWORD_ONLY
READS = {"subscribe", "read", "last"}

# The contract: the parameters of each call that may be passed by position, in order, and their
# defaults. Others may follow.
CONTRACT: dict[str, dict[str, Any]] = {
    "create_stream": {
        "name": REQUIRED,
        "subject": None,
        "partitions": 1,
        "replication_factor": 1,
        "group": None,
        "options": None,
        "exist_ok": False,
    },
    "publish": {
        "stream": REQUIRED,
        "value": REQUIRED,
        "key": None,
        "headers": None,
    },
    "publish_unacked": {"stream": REQUIRED, "value": REQUIRED, "key": None, "headers": None},
    "publish_many": {"stream": REQUIRED, "records": REQUIRED},
    "flush": {},
    "subscribe": {
        "stream": REQUIRED,
        "partition": None,
        "start": StartAt.new_only(),
        "stop": None,
    },
    "read": {
        "stream": REQUIRED,
        "partition": None,
        "start": StartAt.earliest(),
        "stop": StopAt.latest(),
    },
    "last": {"stream": REQUIRED, "n": REQUIRED, "partition": None},
    "oldest_offset": {"stream": REQUIRED, "partition": 0},
    "set_cursor": {
        "cursor_id": REQUIRED,
        "stream": REQUIRED,
        "partition": REQUIRED,
        "offset": REQUIRED,
    },
    "fetch_cursor": {"cursor_id": REQUIRED, "stream": REQUIRED, "partition": REQUIRED},
    "delete_stream": {"stream": REQUIRED},
    "pause_stream": {"stream": REQUIRED, "partitions": None, "resume_all": False},
    "resume_stream": {"stream": REQUIRED, "partitions": None},
    "set_stream_readonly": {"stream": REQUIRED, "partitions": None, "readonly": True},
    "fetch_metadata": {"streams": None, "groups": None},
    "fetch_partition_metadata": {"stream": REQUIRED, "partition": REQUIRED},
    "publish_to_subject": {"subject": REQUIRED, "value": REQUIRED},
    "ping": {},
    "wait_ready": {},
    "connect": {},
    "aclose": {},
    "statistics": {},
}
SUBSCRIBE_OPTIONS = {"resubscribe_timeout", "unpause", "from_isr_replica", "reverse"}
WITHOUT_TIMEOUT = {"aclose", "statistics"}  # bounded by close_timeout; waits for nothing


def parameters(call: str) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(getattr(Client, call)).parameters)
    del found["self"]
    return found


# Exports


def test_all_is_sorted_and_complete() -> None:
    names = set(liftbridge_aio.__all__)
    in_capitals_first = sorted(names, key=lambda name: (not name.isupper(), name))  # as ruff does
    assert liftbridge_aio.__all__ == in_capitals_first
    for name in liftbridge_aio.__all__:
        assert hasattr(liftbridge_aio, name)


def test_every_error_is_importable_from_the_front_door() -> None:
    tree = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, LiftbridgeError)
    }
    assert tree <= set(liftbridge_aio.__all__)


def test_every_exported_class_and_function_says_what_it_is_for() -> None:
    silent = [
        name
        for name in liftbridge_aio.__all__
        if callable(value := getattr(liftbridge_aio, name))
        and value is not liftbridge_aio.Duration
        and not inspect.getdoc(value)
    ]
    assert not silent


# Signatures


@pytest.mark.parametrize("call", CONTRACT)
def test_each_call_takes_what_the_contract_says(call: str) -> None:
    found = parameters(call)
    promised = CONTRACT[call]
    assert list(found)[: len(promised)] == list(promised)
    for name, default in promised.items():
        assert found[name].default == default, name
        by_name = call in READS and name != "stream"
        assert found[name].kind is (KEYWORD if by_name else POSITIONAL), name
    for name, parameter in list(found.items())[len(promised) :]:
        assert parameter.default is not REQUIRED, f"{name} is not in the contract"


@pytest.mark.parametrize("call", sorted(set(CONTRACT) - WITHOUT_TIMEOUT))
def test_each_call_takes_a_timeout(call: str) -> None:
    assert parameters(call)["timeout"].default is None


def test_publish_async_takes_what_publish_takes() -> None:
    publish = parameters("publish")
    found = parameters("publish_async")
    assert found["ack_policy"].annotation == "AckPolicy"
    assert found | {"ack_policy": publish["ack_policy"]} == publish
    assert {name: each.default for name, each in publish.items() if each.kind is KEYWORD} == {
        "partition": None,
        "partitioner": None,
        "ack_policy": AckPolicy.LEADER,
        "ack_timeout": None,
        "expected_offset": None,
        "correlation_id": None,
        "retry": None,
        "timeout": None,
    }


def test_subscribe_takes_its_options_by_name() -> None:
    found = parameters("subscribe")
    assert set(found) >= SUBSCRIBE_OPTIONS
    for name in SUBSCRIBE_OPTIONS - {"resubscribe_timeout"}:
        assert found[name].default is False


def test_a_client_is_made_of_addresses_and_options() -> None:
    signature = inspect.signature(Client)
    assert signature.parameters["servers"].kind is inspect.Parameter.VAR_POSITIONAL
    assert signature.parameters["options"].kind is inspect.Parameter.KEYWORD_ONLY
    assert Client("a:9292", "b:9292").options == ClientOptions()
    assert Client.from_env({"LIFTBRIDGE_SERVERS": "a:9292,b:9292"}).options == ClientOptions()


def test_a_half_open_link_is_noticed_within_fifteen_seconds() -> None:
    options = ClientOptions()
    assert options.health_interval + options.health_timeout <= 15  # type: ignore[operator]


# Words

COROUTINES = [
    (owner, name)
    for owner in (Client, Subscription)
    for name, value in inspect.getmembers(owner, inspect.iscoroutinefunction)
    if not name.startswith("_") or name in {"__aenter__", "__anext__"}
]


@pytest.mark.parametrize(
    ("owner", "name"), COROUTINES, ids=[f"{owner.__name__}.{name}" for owner, name in COROUTINES]
)
def test_every_coroutine_says_what_cancelling_it_does(owner: type, name: str) -> None:
    doc = inspect.getdoc(getattr(owner, name)) or ""
    refers = re.search(r"see `(\w+)`", doc)
    if refers is not None:
        doc = inspect.getdoc(getattr(owner, refers[1])) or ""
    assert re.search(r"[Cc]ancelling", doc)


PROGRAM = """
import asyncio
from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker

async def main():
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("orders", partitions=2)
        await client.create_stream("orders", partitions=3, exist_ok=True)

asyncio.run(main())
"""


def test_a_program_that_configures_no_logging_sees_warnings() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    warning = "the stream 'orders' exists with 2 partitions, not 3, and stays as it is\n"
    assert (done.stdout, done.stderr) == ("", warning)


# What is private


def public_packages() -> list[ModuleType]:
    """The packages with public names, this one first."""
    found = [liftbridge_aio]
    for module in pkgutil.walk_packages(liftbridge_aio.__path__, "liftbridge_aio."):
        if module.ispkg and "._" not in module.name and ".wire" not in module.name:
            package = importlib.import_module(module.name)
            if hasattr(package, "__all__"):
                found.append(package)
    return found


PACKAGES = public_packages()


def test_packages_show_their_public_names_only() -> None:
    shown = {package.__name__: dir(package) for package in PACKAGES}
    assert shown == {package.__name__: sorted(package.__all__) for package in PACKAGES}
    assert len(shown) > 10


def test_methods_of_public_classes_have_the_names_of_these() -> None:
    classes = {
        value
        for package in PACKAGES
        for name in package.__all__
        if inspect.isclass(value := getattr(package, name))
    }
    public = {one.__name__ for one in classes}
    private = {
        function.__qualname__
        for one in classes
        for name, function in inspect.getmembers(one, inspect.isroutine)
        if (name == "__init__" or not name.startswith("_"))
        and (getattr(function, "__module__", None) or "").startswith("liftbridge_aio")
        and function.__qualname__.partition(".")[0] not in public
    }
    assert private == set()


async def test_errors_about_arguments_name_the_public_class() -> None:
    client = Client("127.0.0.1:1")
    calls: dict[str, Callable[..., Any]] = {
        "Client.publish": client.publish,
        "Client.publish_unacked": client.publish_unacked,
        "Client.publish_async": client.publish_async,
        "Client.publish_many": client.publish_many,
        "Client.create_stream": client.create_stream,
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected .* 'nothing'$"):
            await call("s", b"", nothing=1)
        with pytest.raises(TypeError, match=rf"^{name}\(\) missing"):
            await call()
