"""A stream is mirrored to another cluster: what is there afterwards, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from liftbridge_aio import (
    Client,
    InvalidRequest,
    Message,
    StreamOptions,
)
from liftbridge_aio.bridge import (
    ID_HEADER,
    MARKER_HEADER,
    PATH_HEADER,
    SOURCE_HEADER,
    TARGET_HEADER,
    TIME_HEADER,
    Bridge,
    Progress,
    SourceReset,
    TargetUnsuitable,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import FaultProxy
from support.clients import read_out
from support.raw import eventually
from support.servers.node import LiftbridgeNode, Server

CHECKED = StreamOptions(optimistic_concurrency_control=True)


@pytest.fixture(scope="module")
def second_real_server(
    real_server: LiftbridgeNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiftbridgeNode]:
    """Another cluster of the pinned server."""
    folder = tmp_path_factory.mktemp("second")
    node = LiftbridgeNode(real_server.binary, folder, real_server.kind)
    node.start()
    yield node
    node.stop()


@pytest.fixture
async def there(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[str]:
    """The address of another cluster, of the same kind of server as the first."""
    if server.kind != "embedded":
        yield request.getfixturevalue("second_real_server").address
        return
    async with EmbeddedBroker(cursors_partitions=3) as broker:
        yield broker.address


@pytest.fixture
async def here(server: Server) -> AsyncIterator[Client]:
    async with Client(server.address) as client:
        yield client


@pytest.fixture
async def far(there: str) -> AsyncIterator[Client]:
    async with Client(there) as client:
        yield client


async def copy(source: str, target: str, stream: str, to: str = "") -> Progress:
    """Copy what there is, between addresses."""
    urls = f"liftbridge://{source}/{stream}", f"liftbridge://{target}/{to or stream}"
    async with asyncio.timeout(60):
        return await Bridge(*urls, once=True).run()


async def publish(client: Client, stream: str, *values: bytes) -> None:
    for n, value in enumerate(values):
        await client.publish(stream, value, partition=n % 2)


async def values(client: Client, stream: str) -> list[list[bytes]]:
    """The values of both partitions, without markers."""
    found = [await read_out(client, stream, partition) for partition in range(2)]
    return [[each.value for each in part if MARKER_HEADER not in each.headers] for part in found]


async def test_keys_headers_and_partitions_are_kept(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2)
    for n in range(1500):
        await here.publish_async(
            stream_name, b"%d" % n, b"key %d" % (n % 3), {"n": b"%d" % n}, partition=n % 2
        )
    await here.flush()
    await here.publish(stream_name, b"", partition=0)
    assert (await copy(server.address, there, stream_name)).copied == 1501
    for partition in range(2):
        source = await read_out(here, stream_name, partition)
        target = await read_out(far, stream_name, partition)
        assert [(m.offset, m.key, m.value) for m in target] == [
            (m.offset, m.key, m.value) for m in source
        ]
        for old, new in zip(source, target, strict=True):
            assert int(new.headers[TIME_HEADER]) == old.timestamp
            assert new.headers[ID_HEADER] == b"%d/%d" % (partition, old.offset)
            assert new.headers[TARGET_HEADER] == stream_name.encode()
            assert new.headers.items() >= old.headers.items()
    await publish(here, stream_name, b"new", b"new")
    progress = await copy(server.address, there, stream_name)
    assert (progress.copied, progress.repeats) == (2, 0)


async def test_what_is_published_meanwhile_is_copied(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2)
    bridge = Bridge(
        f"liftbridge://{server.address}/{stream_name}", f"liftbridge://{there}/{stream_name}"
    )
    running = asyncio.create_task(bridge.run())
    sent = [b"%d" % n for n in range(20)]
    await publish(here, stream_name, *sent)

    async def is_copied() -> bool:
        return bridge.progress.copied == len(sent)

    await eventually(is_copied)
    assert await bridge.measure_lag() == 0
    running.cancel()
    await asyncio.wait([running])
    assert await values(far, stream_name) == [sent[::2], sent[1::2]]


async def test_nothing_comes_back_from_the_other_cluster(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    """In both directions, and around a ring of three streams."""
    for client in (here, far):
        await client.create_stream(stream_name, partitions=2, options=CHECKED)
    await publish(here, stream_name, b"from here")
    await publish(far, stream_name, b"from there")
    for _ in range(2):
        await copy(server.address, there, stream_name)
        await copy(there, server.address, stream_name)
    assert await values(here, stream_name) == [[b"from here", b"from there"], []]
    assert await values(far, stream_name) == [[b"from there", b"from here"], []]
    third = f"{stream_name}-third"
    for _ in range(2):
        await copy(there, server.address, stream_name, third)
        await copy(server.address, server.address, third, stream_name)
    [last] = [each for each in await read_out(here, third) if each.value == b"from here"]
    assert last.headers[PATH_HEADER].startswith(f"liftbridge/{stream_name}@".encode())
    assert (await values(here, stream_name))[0].count(b"from here") == 1


async def test_a_stream_of_a_chain_is_copied_on(
    here: Client, server: Server, there: str, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2)
    await publish(here, stream_name, b"0", b"1")
    await copy(server.address, there, stream_name)
    assert (await copy(there, server.address, stream_name, f"{stream_name}-on")).copied == 2
    assert await values(here, f"{stream_name}-on") == [[b"0"], [b"1"]]


async def test_streams_of_one_name_are_collected_in_one(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    for client in (here, far):
        await client.create_stream(stream_name, partitions=2)
    await publish(here, stream_name, b"h0", b"h1", b"h2")
    await publish(far, stream_name, b"f0", b"f1", b"f2")
    all_of_it = f"{stream_name}-all"
    for _ in range(2):
        await copy(server.address, there, stream_name, all_of_it)
        await copy(there, there, stream_name, all_of_it)
    found = await values(far, all_of_it)
    assert found == [[b"h0", b"h2", b"f0", b"f2"], [b"h1", b"f1"]]


async def test_a_stream_is_not_copied_to_itself(
    here: Client, server: Server, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2, options=CHECKED)
    await publish(here, stream_name, b"bread")
    async with FaultProxy(server.address) as proxy:  # the same server at another address
        with pytest.raises(InvalidRequest, match="the same stream"):
            await copy(server.address, proxy.address, stream_name)
    assert await values(here, stream_name) == [[b"bread"], []]


async def test_a_target_with_fewer_partitions_is_refused(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2)
    await far.create_stream(stream_name, options=CHECKED)
    with pytest.raises(TargetUnsuitable, match="1 partitions, and the source 2"):
        await copy(server.address, there, stream_name)


async def test_a_target_that_takes_any_offset_is_refused(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2)
    await far.create_stream(stream_name, partitions=2)
    await publish(here, stream_name, b"bread")
    with pytest.raises(TargetUnsuitable, match="optimistic concurrency control"):
        await copy(server.address, there, stream_name)


async def test_a_source_that_was_created_again_is_not_copied_on(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    """Also if it is longer than before; a target that was created again begins anew."""
    await here.create_stream(stream_name, partitions=2)
    await publish(here, stream_name, b"old")
    await copy(server.address, there, stream_name)
    await here.delete_stream(stream_name)
    await here.create_stream(stream_name, partitions=2)
    await publish(here, stream_name, b"0", b"1", b"2")
    with pytest.raises(SourceReset, match="created again"):
        await copy(server.address, there, stream_name)
    await far.delete_stream(stream_name)
    assert (await copy(server.address, there, stream_name)).copied == 3
    assert await values(far, stream_name) == [[b"0", b"2"], [b"1"]]


async def test_a_source_that_has_lost_its_end_is_not_copied_on(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    """The mirror has a copy of a message that the source does not have any more."""
    await here.create_stream(stream_name)
    await here.publish(stream_name, b"0")
    await copy(server.address, there, stream_name)
    [copied] = await read_out(far, stream_name)
    headers = {**copied.headers, ID_HEADER: b"0/1"}
    await far.publish(stream_name, b"1", headers=headers, expected_offset=1)
    with pytest.raises(SourceReset, match="offset 1"):
        await copy(server.address, there, stream_name)


@pytest.mark.parametrize("cursor", [0, 4])
async def test_the_target_says_how_far_it_was_copied(
    here: Client, far: Client, server: Server, there: str, stream_name: str, cursor: int
) -> None:
    """Killed before it stored its position, or the target has lost its last messages."""
    await here.create_stream(stream_name, partitions=2)
    await publish(here, stream_name, b"0", b"1", b"2", b"3")
    await copy(server.address, there, stream_name)
    await publish(here, stream_name, *[b"%d" % n for n in range(4, 10)])
    created = (await far.fetch_metadata([stream_name])).streams[stream_name].creation_timestamp
    for partition in range(2):
        name = f"bridge:liftbridge/{stream_name}@{created}"
        assert await here.fetch_cursor(name, stream_name, partition) == 1
        await here.set_cursor(name, stream_name, partition, cursor)
    progress = await copy(server.address, there, stream_name)
    assert (progress.copied, progress.repeats) == (6, 0)


async def test_the_source_says_it_where_retention_has_emptied_the_target(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    options = StreamOptions(
        optimistic_concurrency_control=True,
        retention_max_messages=1,
        segment_max_bytes=1,
        cleaner_interval=0.2,
    )
    await here.create_stream(stream_name)
    await far.create_stream(stream_name, options=options)
    for n in range(3):
        await here.publish(stream_name, b"%d" % n)
    await copy(server.address, there, stream_name)
    for _ in range(3):
        await far.publish(stream_name, b"another")

    async def only_others() -> bool:
        return await far.oldest_offset(stream_name) > 2

    await eventually(only_others)
    await here.publish(stream_name, b"3")
    assert (await copy(server.address, there, stream_name)).copied == 1


async def test_forwarded_headers_do_not_say_that_it_was_copied(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2)
    await publish(here, stream_name, b"0", b"1")
    await copy(server.address, there, stream_name)
    elsewhere = f"{stream_name}-elsewhere"
    await far.create_stream(elsewhere, partitions=2, options=CHECKED)
    forwarded: list[Message] = await read_out(far, stream_name)
    for each in forwarded:
        await far.publish(elsewhere, each.value, headers=each.headers, partition=0)
    # Neither that it has the source, nor that it came from there.
    assert (await copy(server.address, there, stream_name, elsewhere)).copied == 2
    await far.create_stream(f"{elsewhere}-2", partitions=2)
    for each in forwarded:
        await far.publish(f"{elsewhere}-2", each.value, headers=each.headers, partition=0)
    assert (await copy(there, server.address, f"{elsewhere}-2")).copied == 1


async def test_committed_readers_see_the_same_in_both_clusters(
    here: Client, far: Client, server: Server, there: str, stream_name: str
) -> None:
    await here.create_stream(stream_name, partitions=2)
    producer = here.producer()
    with suppress(RuntimeError):
        async with producer.transaction() as transaction:
            await transaction.publish(stream_name, b"rolled back", partition=0)
            raise RuntimeError
    async with producer.transaction() as transaction:
        for n in range(4):
            await transaction.publish(stream_name, b"%d" % n, partition=n % 2)
    await copy(server.address, there, stream_name)
    committed: list[list[Message]] = [
        [each async for each in client.read(stream_name, committed=True)] for client in (here, far)
    ]
    ours, theirs = ([(each.partition, each.value) for each in found] for found in committed)
    assert sorted(ours) == [(0, b"0"), (0, b"2"), (1, b"1"), (1, b"3")]
    assert sorted(theirs) == sorted(ours)
    assert SOURCE_HEADER in committed[1][0].headers
