"""Wrong types for partitions, names and texts are refused by every call that takes some.

The calls are found by their signatures, so a new one is held to this too.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from liftbridge_aio import (
    Client,
    ConsumerGroup,
    MergedSubscription,
    StartAt,
    StopAt,
    Subscription,
    WrongType,
)
from liftbridge_aio.broker import EmbeddedBroker
from support.raw import BOUND

NO_LISTS: Final = ("01", b"\x00\x01", bytearray(b"\x00"), memoryview(b"\x00"), {0: "0"}, 1.5)
WRONG: Final[dict[str, tuple[object, ...]]] = {
    r"(Sequence|Collection|Iterable)\[int\]": (*NO_LISTS, [True], [0.0], ["0"], [[0]]),
    r"(Sequence|Collection|Iterable)\[str\]": (*NO_LISTS, [1], [b"s"], [None], [True]),
    r"Mapping\[int,": ({True: StartAt.earliest()}, {"0": StartAt.earliest()}),
    r"tuple\[str, int\]": (0, "s", ("s",), ("s", True), ("s", "0"), (0, "s"), ("s", 0, 0)),
    r"str( \| None)?$": (0, 1, False, [], {}, (), b"", b"s"),
}
"""Values that each kind of parameter, by its annotation, must refuse."""
CALLS: Final[dict[str, tuple[object, ...]]] = {
    "create_stream": ("new",),
    "delete_stream": ("s",),
    "pause_stream": ("s",),
    "resume_stream": ("s",),
    "set_stream_readonly": ("s",),
    "fetch_metadata": (),
    "fetch_partition_metadata": ("s", 0),
    "publish": ("s", b""),
    "publish_async": ("s", b""),
    "publish_many": ("s", [b""]),
    "publish_to_subject": ("s", b""),
    "subscribe": ("s", [0, 1]),
    "read": ("s", StartAt.earliest(), StopAt.latest(), [0, 1]),
    "committed_range": ("s", 0, 0, 1),
    "last": ("s", 1),
    "oldest_offset": ("s",),
    "set_cursor": ("c", "s", 0, 0),
    "fetch_cursor": ("c", "s", 0),
    "values": ("s",),
    "group": ("g", ["s"]),
    "queue": ("s",),
    "producer": (),
    "explain": ("s",),
}
READERS: Final = (Subscription, MergedSubscription, ConsumerGroup)


def wrong_arguments(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, object]]:
    """Each argument that must not be taken, with its parameter."""
    for parameter in inspect.signature(function).parameters.values():
        annotation = str(parameter.annotation)
        for pattern, values in WRONG.items():
            if re.search(rf"(^|\| ){pattern}", annotation):
                for value in values:
                    if not (isinstance(value, str) and annotation.startswith("str | ")):
                        yield parameter, value


async def taken(call: Callable[..., Any], *positional: object, **arguments: object) -> None:
    result = call(*positional, **arguments)
    if inspect.isawaitable(result):
        await result
    pytest.fail(f"{call.__name__} took {positional or arguments}")


async def refused(call: Callable[..., Any], given: tuple[object, ...]) -> None:
    """Hold a call to refusing each wrong argument."""
    names = list(inspect.signature(call).parameters)
    for parameter, value in wrong_arguments(call):
        arguments: dict[str, object] = dict(zip(names, given, strict=False))
        positional: tuple[object, ...] = ()
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional = (value,)
        else:
            arguments[parameter.name] = value
        with pytest.raises(WrongType) as refusal:
            await taken(call, *positional, **arguments)
        assert not isinstance(refusal.value.partition, bool)


def test_the_table_has_every_call_that_takes_a_name_or_a_list() -> None:
    public = {name for name in dir(Client) if not name.startswith("_") and name != "metadata"}
    assert CALLS.keys() == {name for name in public if any(wrong_arguments(getattr(Client, name)))}


async def test_no_call_takes_anything_else_for_a_name_or_a_list() -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        before = broker.statistics(), (await client.fetch_metadata()).streams
        async with asyncio.timeout(BOUND):
            for name, given in CALLS.items():
                await refused(getattr(client, name), given)
        assert (broker.statistics(), (await client.fetch_metadata()).streams) == before


async def test_no_reader_takes_anything_else_for_a_partition() -> None:
    async with EmbeddedBroker(cursors_partitions=1) as broker, Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        opened: list[Any] = [
            client.subscribe("s"),
            client.subscribe("s", [0, 1]),
            client.group("g", ["s"]),
        ]
        assert tuple(map(type, opened)) == READERS
        for reader in opened:
            async with reader:
                for name in dir(reader):
                    call = getattr(reader, name)
                    if not name.startswith("_") and inspect.ismethod(call):
                        await refused(call, ("s", 0, 0) if name == "seek" else ())


async def test_a_set_and_a_generator_are_lists_of_partitions() -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        await client.pause_stream("s", {1})  # type: ignore[arg-type]
        assert (await client.fetch_partition_metadata("s", 1)).paused
        await client.resume_stream("s", (number for number in [1]))  # type: ignore[arg-type]
        assert not (await client.fetch_partition_metadata("s", 1)).paused


async def test_a_text_is_no_list_of_delays() -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        with pytest.raises(WrongType, match="not '1s'"):
            client.queue("s", group="g", retry="1s")  # type: ignore[arg-type]
