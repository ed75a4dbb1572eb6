"""`liftbridge-aio groups`: who is in them, how far they are, and putting them elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Protocol

import pytest
from anyio.from_thread import BlockingPortal

from cli.conftest import ON_EMBEDDED, ByClient, Result, Run
from liftbridge_aio import Client, StartAt, StreamReset
from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio._subscribe import log_probe
from liftbridge_aio.activity_events import JoinGroupEvent, LeaveGroupEvent
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.cli.internal_streams import GroupMembers
from support.groups.group_calls import Group
from support.raw import BOUND, Wire
from support.segments import MAX_AGE, become, becomes_emptied, create

HEARTBEAT = 0.3


class Join(Protocol):
    """Has members in a group for a while."""

    def __call__(self, group: str, *streams: str) -> AbstractContextManager[None]: ...


@asynccontextmanager
async def membership(address: str, name: str, streams: tuple[str, ...]) -> AsyncIterator[None]:
    wire = Wire(*parse_address(address))
    group = Group(wire, name)

    async def stay() -> None:
        while True:
            await group.shares("m1", "m2")
            await asyncio.sleep(HEARTBEAT)

    try:
        await group.join("m1", *streams)
        await group.join("m2", streams[0])
        staying = asyncio.create_task(stay())
        try:
            yield
        finally:
            staying.cancel()
            await asyncio.wait([staying])
            await group.leave("m1", "m2")
    finally:
        wire.close()


@pytest.fixture
def join(elsewhere: BlockingPortal, address: str) -> Join:
    def join(group: str, *streams: str) -> AbstractContextManager[None]:
        return elsewhere.wrap_async_context_manager(membership(address, group, streams))

    return join


@pytest.fixture
def group(stream: str) -> str:
    """A group that no other test uses."""
    return f"{stream}-group"


@pytest.fixture
def two(prepare: ByClient, stream: str) -> str:
    """A stream of two partitions with five messages in the first and none in the other."""

    async def create(client: Client) -> None:
        await client.create_stream(stream, partitions=2)
        await client.publish_many(stream, [b"a", b"b", b"c", b"d", b"e"])

    prepare(create)
    return stream


def positions(run: Run, group: str) -> dict[int, int | None]:
    [shown] = run("groups", "show", group, "--json").json
    return {one["partition"]: one["position"] for one in shown["positions"]}


def test_a_group_is_shown_with_its_members_positions_and_lag(
    run_on_each: Run, join: Join, two: str, group: str
) -> None:
    other = f"{two}.other"
    run_on_each("streams", "create", other)
    run_on_each("cursor", "set", f"__group:{group}", two, "1")
    with join(group, two, other):
        [shown] = run_on_each("groups", "show", group, "--json").json
        listed = run_on_each("groups", "list", "--json").json
        text = run_on_each("groups", "show", group).out
    brokers = run_on_each("metadata", "--json").json["brokers"]
    place = {"stream": two, "partition": 0, "position": 1, "high_watermark": 4, "lag": 3}
    place |= {"state": "open", "removed": None}
    empty = place | {"partition": 1, "position": None, "high_watermark": -1, "lag": 0}
    assert shown.pop("positions") == [place, empty, empty | {"stream": other, "partition": 0}]
    assert shown.pop("epoch") > 0
    assert shown == {
        "id": group,
        "exists": True,
        "coordinator": brokers[0]["id"],
        "coordinator_address": brokers[0]["address"],
        "members": [{"id": "m1", "streams": [two, other]}, {"id": "m2", "streams": [two]}],
        "streams": [two, other],
        "deleted_streams": [],
    }
    assert shown.items() <= next(one for one in listed if one["id"] == group).items()
    assert f"coordinator {brokers[0]['id']} ({brokers[0]['address']}), epoch" in text
    assert "members m1, m2" in text


def test_a_paused_partition_of_a_group_is_shown_as_such(
    run_on_each: Run, two: str, group: str
) -> None:
    run_on_each("cursor", "set", f"__group:{group}", two, "1")
    run_on_each("streams", "pause", two, "--partition", "0")

    [shown] = run_on_each("groups", "show", group, "--json").json
    assert [one["state"] for one in shown["positions"]] == ["paused", "open"]
    assert "paused" in run_on_each("groups", "show", group).out
    run_on_each("streams", "resume", two, "--partition", "0")
    [shown] = run_on_each("groups", "show", group, "--json").json
    assert [one["state"] for one in shown["positions"]] == ["open", "open"]


def test_a_group_without_members_keeps_its_positions(
    run_on_each: Run, join: Join, two: str, group: str
) -> None:
    with join(group, two):
        run_on_each("cursor", "set", f"__group:{group}", two, "4")
    [shown] = run_on_each("groups", "show", group, "--json").json
    assert (shown["exists"], shown["coordinator"], shown["epoch"]) == (False, None, None)
    assert (shown["members"], shown["streams"]) == ([], [two])
    assert shown["positions"][0]["lag"] == 0
    listed = run_on_each("groups", "list").out
    [row] = [line.split() for line in listed.splitlines() if group in line]
    assert row[1::2][:2] == [group, "no"]
    assert "no members" in run_on_each("groups", "show", group).out


@ON_EMBEDDED
def test_positions_in_streams_of_ones_choice_are_shown(
    run_on_each: Run, two: str, group: str
) -> None:
    run_on_each("cursor", "set", f"__group:{group}", f"{two}.gone", "1", "--force")
    [shown] = run_on_each("groups", "show", group, "--json").json
    assert (shown["streams"], shown["positions"]) == ([f"{two}.gone"], [])
    text = run_on_each("groups", "show", group, "--stream", two)
    assert f"no position in {two}/0, {two}/1: the start position of its members" in text.err
    [shown] = run_on_each("groups", "show", group, "--stream", two, "--json").json
    assert [(one["position"], one["lag"]) for one in shown["positions"]] == [(None, 5), (None, 0)]
    failed = run_on_each("groups", "show", group, "--stream", f"{two}.gone", "--json", code=1)
    assert f"{two}.gone" in failed.err
    assert failed.out == ""


@ON_EMBEDDED
def test_a_group_that_nobody_knows_is_one_line(run_on_each: Run, group: str) -> None:
    failed = run_on_each("groups", "show", group, "--json", code=1)
    assert failed.out == ""
    assert f"no server knows a group '{group}'" in failed.err
    assert len(failed.err.splitlines()) == 1
    assert "at least one group" in run_on_each("groups", "show", code=2).err


@ON_EMBEDDED
def test_a_position_is_set_where_no_member_can_store_over_it(
    run_on_each: Run, join: Join, two: str, group: str
) -> None:
    with join(group, two):
        refused = run_on_each("groups", "set", group, two, "3", "--json", code=1)
        assert "has members (m1, m2)" in refused.err
        assert "--force" in refused.err
        assert refused.out == ""
        assert positions(run_on_each, group) == {0: None, 1: None}
        run_on_each("groups", "set", group, two, "3", "--force")
        assert positions(run_on_each, group) == {0: 3, 1: None}
    done = run_on_each("groups", "set", group, two, "1", "--json").json
    move = {"group": group, "stream": two, "partition": 0, "before": 3, "after": 1}
    assert done == [move | {"stored": True}]
    assert positions(run_on_each, group) == {0: 1, 1: None}
    dry = run_on_each("groups", "set", group, two, "2", "--dry-run")
    assert f"position of {group} in {two}/0 would be 2, was 1" in dry.err
    assert positions(run_on_each, group) == {0: 1, 1: None}


def test_a_group_is_put_into_a_stream_that_was_created_again(
    run_on_each: Run, prepare: ByClient, two: str, group: str
) -> None:
    begins: Any = {"start": StartAt.earliest(), "timeout": BOUND}

    async def read(client: Client) -> int:
        async with asyncio.timeout(BOUND), client.group(group, [two], **begins) as member:
            return (await anext(member)).offset

    async def read_and_recreate(client: Client) -> None:
        assert await read(client) == 0
        await client.delete_stream(two)
        await client.create_stream(two, partitions=2)
        await client.publish_many(two, [b"%d" % n for n in range(9)])
        with pytest.raises(StreamReset):
            await read(client)

    async def read_from_0(client: Client) -> None:
        assert await read(client) == 0

    async def read_from_5(client: Client) -> None:
        assert await read(client) == 5

    prepare(read_and_recreate)
    assert positions(run_on_each, group) == {0: None, 1: None}
    run_on_each("groups", "reset", group, "--to", "earliest", "--partition", "0")
    assert positions(run_on_each, group) == {0: -1, 1: None}
    prepare(read_from_0)
    run_on_each("groups", "set", group, two, "4")
    assert positions(run_on_each, group)[0] == 4
    prepare(read_from_5)


@ON_EMBEDDED
def test_a_group_without_a_name_is_refused(run_on_each: Run, two: str) -> None:
    refused = run_on_each("groups", "set", "", two, "1", code=2)
    assert "must not be empty" in refused.err


@ON_EMBEDDED
def test_a_position_beyond_the_log_is_refused(run_on_each: Run, two: str, group: str) -> None:
    refused = run_on_each("groups", "set", group, two, "5", code=1)
    assert f"{two}/0 ends at offset 4: group {group} cannot be moved to position 5" in refused.err
    run_on_each("groups", "set", group, two, "5", "--force")
    [shown] = run_on_each("groups", "show", group, "--json").json
    assert shown["positions"][0]["lag"] == -1
    for words in [(two, "0", "--partition", "2"), (f"{two}.none", "0")]:
        failed = run_on_each("groups", "set", group, *words, "--timeout", "2s", code=1)
        assert len(failed.err.splitlines()) == 1


def test_a_group_is_put_elsewhere(run_on_each: Run, two: str, group: str) -> None:
    run_on_each("groups", "set", group, two, "2")
    move: dict[str, Any] = {"group": group, "stream": two, "partition": 0, "before": 2}

    def reset(to: str, *more: str, code: int = 0) -> Result:
        return run_on_each("groups", "reset", group, "--to", to, *more, "--json", code=code)

    for to, after in [("new", 4), ("latest", 3), ("2", 1), ("2100-01-01T00:00Z", 4)]:
        expected = [move | {"after": after, "stored": False}]
        assert reset(to, "--dry-run", "--partition", "0").json == expected
    refused = reset("-1h", code=1)  # before the first message
    assert f"cannot be moved before offset 0 of {two}/0" in refused.err
    assert refused.out == ""
    assert positions(run_on_each, group) == {0: 2, 1: None}
    begins = {"partition": 1, "before": None, "after": -1, "stored": True}
    put = [move | {"after": 3, "stored": True}, move | begins]
    assert reset("latest", "--stream", two).json == put
    assert positions(run_on_each, group) == {0: 3, 1: -1}
    assert reset("3", "--partition", "0").json == [move | {"before": 3, "after": 2, "stored": True}]
    again = run_on_each("groups", "reset", group, "--to", "3", "--partition", "0")
    assert "is at these positions already" in again.err
    gone = reset("new", "--partition", "0", "--partition", "7", code=1)
    assert f"no stream of the group has this partition: {two} [partition=7]" in gone.err
    assert positions(run_on_each, group) == {0: 2, 1: -1}


@pytest.mark.parametrize("to", ["earliest", "new", "0"])
def test_a_group_without_positions_is_put_before_the_first_message(
    run_on_each: Run, prepare: ByClient, stream: str, group: str, to: str
) -> None:
    """Its members begin there, also those that would begin elsewhere, or nowhere."""
    run_on_each("streams", "create", stream)
    if to != "new":
        run_on_each("publish", stream, "first")
    reset = ("groups", "reset", group, "--to", to, "--stream", stream)
    done = run_on_each(*reset, "--json").json
    move = {"group": group, "stream": stream, "partition": 0, "before": None, "after": -1}
    assert done == [move | {"stored": True}]
    assert "is at these positions already" in run_on_each(*reset).err
    if to == "new":
        run_on_each("publish", stream, "first")

    shown = run_on_each("groups", "show", group)  # known by that note alone
    assert "before 0" in shown.out
    assert shown.err == ""
    [known] = run_on_each("groups", "show", group, "--json").json
    [place] = known["positions"]
    assert (known["streams"], place["position"], place["lag"]) == ([stream], -1, 1)
    assert group in run_on_each("groups", "list").out

    async def is_read_from_the_first(client: Client) -> None:
        for start in (None, StartAt.new_only(), StartAt.offset(7)):
            async with (
                asyncio.timeout(BOUND),
                client.group(group, [stream], start=start, commit_interval=None) as member,
            ):
                assert (await anext(member)).offset == 0

    prepare(is_read_from_the_first)


@pytest.fixture
def cleaned(
    elsewhere: BlockingPortal, address: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A stream from which retention has taken all, and `.cut`, with three left of ten."""
    monkeypatch.setattr(log_probe, "_SILENCE", 0.3)  # commands run in this process

    @asynccontextmanager
    async def cleaned() -> AsyncIterator[str]:
        wire = Wire(*parse_address(address))
        cut = f"{stream}.cut"
        try:
            async with Client(address) as client:  # its cleaner must not meet what is published
                limits = {
                    stream: {"retention_max_age": MAX_AGE},
                    cut: {"retention_max_messages": 3},
                }
                for name, limit in limits.items():
                    await create(wire, name, cleaner_interval=1000, **limit)
                    for _ in range(10):
                        await client.publish(name, b"")
            await becomes_emptied(wire, stream, 10)
            await become(wire, cut, [7, 8, 9])
            yield stream
        finally:  # deleting them could end the server while it cleans
            await wire.pause(stream)
            await wire.pause(cut)
            wire.close()

    with elsewhere.wrap_async_context_manager(cleaned()) as name:
        yield name


def test_what_retention_has_taken_is_no_lag_and_is_named(
    run_on_each: Run, cleaned: str, group: str
) -> None:
    for name in (cleaned, f"{cleaned}.cut"):
        run_on_each("cursor", "set", f"__group:{group}", name, "1")
    [shown] = run_on_each("groups", "show", group, "--json").json
    emptied, cut = shown["positions"]
    assert (emptied["lag"], emptied["removed"]) == (0, {"first": 2, "last": 9})
    assert (cut["lag"], cut["removed"]) == (3, {"first": 2, "last": 6})
    text = run_on_each("groups", "show", group)
    assert f"{cleaned}/0: offsets 2 to 9 were removed before group {group} had read" in text.err
    assert f"{cleaned}.cut/0: offsets 2 to 6 were removed" in text.err


def test_a_partition_that_retention_has_emptied_holds_up_no_reset(
    run_on_each: Run, cleaned: str, group: str
) -> None:
    cut = f"{cleaned}.cut"
    streams = ("--stream", cleaned, "--stream", cut)
    for to, after in (("earliest", 6), ("latest", 8), ("-1h", 6)):
        reset = ("groups", "reset", group, "--to", to, *streams)
        moves = run_on_each(*reset, "--dry-run", "--json").json
        assert [(one["stream"], one["after"]) for one in moves] == [(cleaned, 9), (cut, after)]
    text = run_on_each("groups", "reset", group, "--to", "earliest", *streams).err
    assert f"{cleaned}/0 is 9, was none, as retention has emptied it" in text
    assert f"{cut}/0 is 6, was none\n" in text


def test_streams_that_were_deleted_are_told(run_on_each: Run, stream: str, group: str) -> None:
    for name in (stream, f"{stream}.kept"):
        run_on_each("streams", "create", name)
        run_on_each("publish", name, "a")
        run_on_each("cursor", "set", f"__group:{group}", name, "0")
    run_on_each("streams", "delete", stream)
    [shown] = run_on_each("groups", "show", group, "--json").json
    assert shown["deleted_streams"] == [stream]
    assert [one["stream"] for one in shown["positions"]] == [f"{stream}.kept"]
    assert f"{stream} (deleted)," in run_on_each("groups", "list").out
    text = run_on_each("groups", "show", group)
    assert [row.split()[-2] for row in text.out.splitlines() if f"│ {stream} " in row] == [
        "deleted"
    ]
    assert text.err == ""

    run_on_each("streams", "delete", f"{stream}.kept")
    text = run_on_each("groups", "show", group)
    assert f"its streams were deleted ({stream}, {stream}.kept)" in text.err
    failed = run_on_each("groups", "reset", group, "--to", "new", code=1)
    assert f"its streams were deleted ({stream}, {stream}.kept)" in failed.err


def test_a_group_of_which_no_stream_is_known_says_so(
    run: Run, elsewhere: BlockingPortal, group: str
) -> None:
    broker = EmbeddedBroker()  # without activity

    @asynccontextmanager
    async def member() -> AsyncIterator[None]:
        async with broker, Client(broker.address) as client:
            await client.create_stream("s")
            async with client.group(group, ["s"], start=StartAt.earliest()):
                yield

    with elsewhere.wrap_async_context_manager(member()):
        text = run("groups", "show", group, servers=broker.address)
    assert "has stored no position, and its streams are not known" in text.err


@ON_EMBEDDED
def test_a_reset_is_refused_as_a_whole(run_on_each: Run, join: Join, two: str, group: str) -> None:
    run_on_each("publish", two, "x", "y", "--partition", "1")
    run_on_each("groups", "set", group, two, "2")
    beyond = run_on_each("groups", "reset", group, "--to", "4", code=1)
    assert f"{two}/1" in beyond.err
    assert positions(run_on_each, group) == {0: 2, 1: None}
    with join(group, two):
        refused = run_on_each("groups", "reset", group, "--to", "new", code=1)
        assert "has members (m1, m2)" in refused.err
    assert positions(run_on_each, group) == {0: 2, 1: None}
    run_on_each("groups", "reset", group, "--to", "new")
    assert positions(run_on_each, group) == {0: 4, 1: 1}
    paused = run_on_each("streams", "pause", two, "--partition", "1")
    assert paused.out == ""
    assert "paused" in run_on_each("groups", "reset", group, "--to", "-1h", code=1).err
    assert positions(run_on_each, group) == {0: 4, 1: 1}
    run_on_each("groups", "set", group, two, "0", "--partition", "1")
    run_on_each("groups", "reset", group, "--to", "new")  # its leader knows where it ends
    assert positions(run_on_each, group) == {0: 4, 1: 1}


@ON_EMBEDDED
def test_what_cannot_be_reset_is_one_line(run_on_each: Run, group: str) -> None:
    unknown = run_on_each("groups", "reset", group, "--to", "new", code=1)
    assert "name its streams with --stream" in unknown.err
    assert len(unknown.err.splitlines()) == 1
    assert "earliest" in run_on_each("groups", "reset", group, "--to", "soon", code=2).err
    assert "--to" in run_on_each("groups", "reset", group, code=2).err


def test_without_cursors_and_activity_groups_cannot_be_found(
    run: Run, bare_broker_address: str
) -> None:
    failed = run("groups", "list", "--json", servers=bare_broker_address, code=1)
    assert failed.out == ""
    assert "neither cursors nor activity" in failed.err
    assert len(failed.err.splitlines()) == 1


def test_members_are_those_that_joined_and_did_not_leave() -> None:
    members = GroupMembers()

    def join(number: int, consumer: str, *streams: str) -> None:
        members.take(
            JoinGroupEvent(
                id=number, offset=0, timestamp=0, group="g", consumer=consumer, streams=streams
            )
        )

    def leave(number: int, consumer: str) -> None:
        members.take(
            LeaveGroupEvent(
                id=number, offset=0, timestamp=0, group="g", consumer=consumer, expired=False
            )
        )

    join(1, "a", "s", "t")
    join(2, "b", "s")
    leave(3, "a")
    leave(4, "before our time")
    assert members.of("g") == {"b": ("s",)}
    assert members.of("another") == {}
    leave(5, "b")
    assert members.groups == ["g"]
    assert members.of("g") == {}
