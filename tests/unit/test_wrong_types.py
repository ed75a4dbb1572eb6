"""Wrong types are refused by every call: of numbers, flags, partitions, names and texts.

True and False are no numbers. The calls are found by their signatures, so a new one is held to
this too.
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
    ClientOptions,
    ConsumerGroup,
    MergedSubscription,
    StartAt,
    StopAt,
    Subscription,
    WrongType,
    stan,
)
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.compression import Gzip, Zlib
from liftbridge_aio.integrations.event_stream import EventStream
from liftbridge_aio.options import StreamOptions
from liftbridge_aio.queue import DeadLetter, Exponential, Probing, QueueOptions
from liftbridge_aio.retry import Backoff, Retry
from liftbridge_aio.testing import FaultProxy, History, check_history, plan_faults
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
    "publish_unacked": ("s", b""),
    "publish_many": ("s", [b""]),
    "publish_to_subject": ("s", b""),
    "publish_unacked_to_subject": ("s", b""),
    "subscribe": ("s", [0, 1]),
    "read": ("s", [0, 1]),
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
    "flush": (),
    "activity": (),
    "ping": (),
    "wait_ready": (),
    "connect": (),
}
MAKERS: dict[Callable[..., Any], tuple[object, ...]] = {
    ClientOptions: (),
    StreamOptions: (),
    stan.ClientOptions: (),
    stan.StartAt.sequence: (1,),
    stan.StartAt.time: (0,),
    stan.StartAt.ago: (0.0,),
    Backoff: (),
    Retry: (),
    DeadLetter: ("s",),
    Exponential: (),
    Probing: (),
    QueueOptions: (),
    StartAt.offset: (0,),
    StartAt.time: (0,),
    StopAt.offset: (0,),
    StopAt.time: (0,),
    Gzip: (),
    Zlib: (),
    EmbeddedBroker: (),
    EmbeddedCluster: (),
    FaultProxy("127.0.0.1:1").delay: (0.1,),
    FaultProxy("127.0.0.1:1").throttle: (1.0,),
    plan_faults: (1,),
    check_history: (History(),),
}
NOT_CHECKED = {(plan_faults, "seed"), (EmbeddedCluster, "ports")}
READERS: Final = (Subscription, MergedSubscription, ConsumerGroup)


def numbers_of(function: Callable[..., Any]) -> list[str]:
    """The parameters that take a number."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if re.search(r"\b(int|float|Duration)\b", str(parameter.annotation))
    ]


def flags_of(function: Callable[..., Any]) -> list[str]:
    """The parameters that are True or False."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if re.match(r"bool\b", str(parameter.annotation))
    ]


def arguments(
    function: Callable[..., Any], given: tuple[object, ...], name: str, value: object = True
) -> dict[str, object]:
    names = inspect.signature(function).parameters
    return {**dict(zip(names, given, strict=False)), name: value}


async def use(call: Callable[..., Any], **arguments: object) -> None:
    result = call(**arguments)
    if inspect.isawaitable(result):
        await result


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


def test_the_table_has_every_call_that_takes_arguments_to_check() -> None:
    public = {name for name in dir(Client) if not name.startswith("_") and name != "metadata"}
    calls = {name: getattr(Client, name) for name in public}
    assert CALLS.keys() == {
        name for name, call in calls.items() if numbers_of(call) or any(wrong_arguments(call))
    }


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
            client.subscribe("s", partition=0),
            client.subscribe("s", partition=[0, 1]),
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


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__qualname__)
def test_nothing_is_made_of_a_bool_in_place_of_a_number(maker: Callable[..., Any]) -> None:
    assert numbers_of(maker)
    for name in numbers_of(maker):
        if (maker, name) not in NOT_CHECKED:
            with pytest.raises(WrongType, match="True"):
                maker(**arguments(maker, MAKERS[maker], name))


async def test_no_call_takes_a_bool_for_a_number() -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s")
        for name, given in CALLS.items():
            call = getattr(client, name)
            for parameter in numbers_of(call):
                with pytest.raises(WrongType, match="True"):
                    await use(call, **arguments(call, given, parameter))


@pytest.mark.parametrize(
    "maker", [maker for maker in MAKERS if flags_of(maker)], ids=lambda maker: maker.__qualname__
)
def test_nothing_is_made_of_anything_but_a_bool_as_a_flag(maker: Callable[..., Any]) -> None:
    for name in flags_of(maker):
        with pytest.raises(WrongType, match=f"{name} must be True or False.*, not 'no'"):
            maker(**arguments(maker, MAKERS[maker], name, "no"))


@pytest.mark.parametrize("wrong", ["no", None, 1])
async def test_no_call_takes_anything_but_a_bool_as_a_flag(wrong: object) -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s")
        flagged = [name for name in CALLS if flags_of(getattr(client, name))]
        assert {"create_stream", "subscribe", "group", "set_stream_readonly"} < set(flagged)
        before = broker.statistics()
        for name in flagged:
            call = getattr(client, name)
            for flag in flags_of(call):
                with pytest.raises(
                    WrongType, match=f"{flag} must be True or False.*, not {wrong!r}"
                ):
                    await use(call, **arguments(call, CALLS[name], flag, wrong))
        assert broker.statistics() == before
        for reading in (
            client.subscribe("s", partition=0),
            client.subscribe("s", partition=[0]),
            client.group("g", ["s"]),
        ):
            with pytest.raises(WrongType, match="raw must be True or False"):
                reading.batches(raw=wrong)  # type: ignore[call-overload]
        with pytest.raises(WrongType, match="reset must be True or False"):
            await broker.faults.cut_links(reset=wrong)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="close must be True or False"):
            await broker.faults.go_away(close=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("read", ["subscribe", "group"])
async def test_no_reading_takes_a_bool_for_a_number(read: str) -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s")
        opened: Any = (
            client.subscribe("s", partition=0)
            if read == "subscribe"
            else client.group("g", ["s"], start=StartAt.earliest())
        )
        async with opened as reading:
            for call in (
                lambda: reading.batches(max_size=True),
                lambda: reading.batches(wait=True),
                lambda: reading.lag(timeout=True),
                lambda: (
                    reading.seek(True)  # noqa: FBT003 - on purpose
                    if read == "subscribe"
                    else reading.seek("s", 0, True)  # noqa: FBT003 - on purpose
                ),
            ):
                with pytest.raises(WrongType, match="True"):
                    await use(call)


async def test_no_partition_and_no_fault_is_a_bool() -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        with pytest.raises(WrongType, match="partitioner"):
            await client.publish("s", b"", partitioner=lambda *_: True)
        with pytest.raises(WrongType, match="ack policy"):
            await client.publish("s", b"", ack_policy=True)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="True"):
            await client.pause_stream("s", partitions=[True])
        with pytest.raises(WrongType, match="True"):
            client.subscribe("s", partition=[0, True])
        with pytest.raises(WrongType, match="True"):
            EventStream("s", None, partition=True)
        for fault in (
            lambda: broker.faults.delay("Publish", True),  # noqa: FBT003 - on purpose
            lambda: broker.faults.drop("Publish", times=True),
            lambda: broker.faults.drop("Publish", skip=True),
            lambda: broker.faults.skew_clock(True),  # noqa: FBT003 - on purpose
        ):
            with pytest.raises(WrongType, match="True"):
                fault()
