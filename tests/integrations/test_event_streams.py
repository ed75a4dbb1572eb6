"""Browsers read a partition as events, on every server and with every framework."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from liftbridge_aio import Client, ClientOptions, Message, Retry, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.integrations import aiohttp as for_aiohttp
from liftbridge_aio.integrations.starlette import Event
from support.faults import eventually
from support.marks import ON_EMBEDDED, ON_ONE_FRAMEWORK
from support.raw import Wire
from support.segments import become, create, create_compacted, publish_keys
from support.servers.node import Server
from support.web.event_source import Received, browse, log_of
from support.web.web_apps import Serve

EARLIEST = StartAt.earliest()


def failure_of(
    error: str, offset: int | None, last_event_id: str, partition: int | None = 0
) -> Received:
    told = {"error": error, "partition": partition, "offset": offset}
    return Received("failure", json.dumps(told), last_event_id)


async def test_a_browser_that_comes_back_goes_on_behind_what_it_got(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"%d" % number for number in range(5)])
    async with serve(server.address, stream_name, start=EARLIEST, retry=0.25) as service:
        async with browse(service.events) as page:
            assert page.status == 200
            assert page.response.content_type == "text/event-stream"
            assert page.response.headers["Cache-Control"] == "no-store"
            seen = await page.take(3)
            assert page.parser.reconnection_time == 250
            await client.publish(stream_name, b"5")
        async with browse(service.events, seen[-1].last_event_id) as page:
            seen += await page.take(3)
    log = await log_of(client, stream_name)
    assert seen == [Received("message", f"{number}", f"{number}{log}") for number in range(6)]


@ON_ONE_FRAMEWORK
async def test_nothing_is_missed_by_a_browser_that_left_before_the_first_message(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"old")
    async with serve(server.address, stream_name) as service:  # from what is new
        async with browse(service.events) as page:
            await page.read()
            assert page.last_event_id == "0" + await log_of(client, stream_name)
        await client.publish(stream_name, b"new")
        async with browse(service.events, page.last_event_id) as page:
            assert (await anext(page)).data == "new"


@ON_ONE_FRAMEWORK
async def test_what_came_into_an_empty_stream_meanwhile_is_not_missed_either(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with serve(server.address, stream_name) as service:
        async with browse(service.events) as page:
            await page.read()
            assert page.last_event_id == "-1" + await log_of(client, stream_name)
        await client.publish(stream_name, b"first")
        async with browse(service.events, page.last_event_id) as page:
            assert (await anext(page)).data == "first"


async def test_the_end_is_told_and_who_comes_back_is_told_not_to(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"a", b"b"])
    log = await log_of(client, stream_name)
    async with serve(server.address, stream_name, start=EARLIEST, stop=StopAt.offset(1)) as service:
        async with browse(service.events) as page:
            assert [event async for event in page] == [
                Received("message", "a", f"0{log}"),
                Received("message", "b", f"1{log}"),
                Received("end", "stop reached", f"1{log}"),
            ]
        async with browse(service.events, page.last_event_id) as page:
            assert page.status == 204
            assert not await page.read()


@ON_ONE_FRAMEWORK
@pytest.mark.parametrize("stop", [StopAt.latest(), StopAt.time(datetime.now(UTC))])
async def test_a_bounded_reading_of_nothing_is_over_at_once(
    server: Server, client: Client, stream_name: str, serve: Serve, stop: StopAt
) -> None:
    await client.create_stream(stream_name)
    async with serve(server.address, stream_name, start=EARLIEST, stop=stop) as service:
        async with browse(service.events) as page:
            assert page.status == 204
        await client.publish(stream_name, b"a")
        async with browse(service.events, "0") as page:
            assert page.status == 204


@ON_ONE_FRAMEWORK
async def test_the_end_of_a_readonly_partition_is_an_end(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"a")
    async with serve(server.address, stream_name, start=EARLIEST) as service:
        async with browse(service.events) as page:
            assert (await anext(page)).data == "a"
            await client.set_stream_readonly(stream_name)
            assert [event.type async for event in page] == ["end"]
        async with browse(service.events, "0") as page:
            assert page.status == 204


async def test_a_deleted_stream_is_a_failure_and_then_not_found(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"a")
    quick = ClientOptions(not_found_timeout=0.3)
    async with serve(server.address, stream_name, start=EARLIEST, options=quick) as service:
        async with browse(service.events) as page:
            assert (await anext(page)).data == "a"
            await client.delete_stream(stream_name)
            [failed] = [event async for event in page]
        assert failed.type == "failure"
        assert json.loads(failed.data)["error"] == "StreamDeleted"
        async with browse(service.events, failed.last_event_id) as page:
            assert page.status == 404
            assert not await page.read()


@ON_ONE_FRAMEWORK
async def test_a_browser_goes_on_when_the_server_knows_no_streams_yet(
    stream_name: str, serve: Serve
) -> None:
    """A lone server answers so for about two seconds after a start; a 404 would be final."""
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"a")
        async with serve(broker.address, stream_name, start=EARLIEST) as service:
            async with browse(service.events) as page:
                first = await anext(page)
            broker.faults.forget_streams()
            await broker.restart()
            looks = broker.faults.delay("FetchMetadata", 0, times=None)
            async with asyncio.TaskGroup() as tasks:

                async def come_back() -> None:
                    async with browse(service.events, first.last_event_id) as page:
                        assert (await anext(page)).data == "b"

                tasks.create_task(come_back())
                await looks.wait(4)
                broker.faults.remember_streams()
                await client.publish(stream_name, b"b", retry=Retry(attempts=9))


async def test_that_there_is_no_such_stream_is_told_soon(
    server: Server, stream_name: str, serve: Serve
) -> None:
    patient = ClientOptions(not_found_timeout=60)
    async with serve(server.address, stream_name, options=patient) as service:
        for last_event_id in ("", "7"):
            async with asyncio.timeout(20), browse(service.events, last_event_id) as page:
                assert page.status == 404


@ON_ONE_FRAMEWORK
async def test_a_browser_whose_place_is_gone_is_told_and_begins_anew(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"of another log")
    async with serve(server.address, stream_name, start=EARLIEST) as service:
        async with browse(service.events, "7") as page:
            [failed] = [event async for event in page]
            assert failed == failure_of("StreamReset", 7, "")
        async with browse(service.events, page.last_event_id) as page:
            assert (await anext(page)).data == "of another log"


@ON_ONE_FRAMEWORK
@pytest.mark.parametrize(
    "options", [{}, {"partition": 0}, {"partition": 0, "stop": StopAt.offset(1)}], ids=str
)
async def test_a_longer_log_of_a_recreated_stream_is_told(
    server: Server, client: Client, stream_name: str, serve: Serve, options: dict[str, Any]
) -> None:
    async def create(kind: str, count: int) -> None:
        await client.create_stream(stream_name, partitions=2)
        for number in range(count):
            await client.publish(stream_name, f"{kind} {number}".encode(), partition=0)

    await create("old", 2)
    async with serve(server.address, stream_name, start=EARLIEST, **options) as service:
        async with browse(service.events) as page:
            assert [event.data for event in await page.take(2)] == ["old 0", "old 1"]
        await client.delete_stream(stream_name)
        await create("new", 4)
        async with browse(service.events, page.last_event_id) as page:
            assert page.status == 200
            assert await anext(page) == failure_of("StreamReset", None, "", None)
            assert [event async for event in page] == []
        async with browse(service.events, page.last_event_id) as page:
            assert [event.data for event in await page.take(2)] == ["new 0", "new 1"]


@ON_ONE_FRAMEWORK
@pytest.mark.parametrize("partition", [0, None], ids=str)
async def test_a_stream_recreated_during_the_handshake_is_told(
    stream_name: str, serve: Serve, partition: Any
) -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"old")
        options = {"start": EARLIEST, "partition": partition}
        async with serve(broker.address, stream_name, **options) as service:
            async with browse(service.events) as page:
                assert (await anext(page)).data == "old"
            check = broker.faults.stall("FetchPartitionMetadata")
            async with asyncio.TaskGroup() as tasks:

                async def recreate() -> None:
                    await check.wait()
                    await client.delete_stream(stream_name)
                    await client.create_stream(stream_name)
                    await client.publish_many(stream_name, [b"new 0", b"new 1"])
                    check.release()

                tasks.create_task(recreate())
                async with browse(service.events, page.last_event_id) as page:
                    assert json.loads((await anext(page)).data)["error"] == "StreamReset"
            async with browse(service.events, page.last_event_id) as page:
                assert (await anext(page)).data == "new 0"


def missed_event(first: int, following: int, last_event_id: str, partition: int = 0) -> Received:
    told = {"partition": partition, "first_offset": first, "next_offset": following}
    return Received("missed", json.dumps(told), last_event_id)


@ON_ONE_FRAMEWORK
async def test_a_browser_is_told_what_retention_removed(
    server: Server, wire: Wire, cleaned_stream: str, serve: Serve
) -> None:
    await create(wire, cleaned_stream, retention_max_messages=3)
    await wire.publish(cleaned_stream, *[b"x"] * 10)
    await become(wire, cleaned_stream, [7, 8, 9])
    async with serve(server.address, cleaned_stream, start=EARLIEST) as service:
        log = await log_of(service.client, cleaned_stream)
        messages = [Received("message", "x", f"{number}{log}") for number in (7, 8, 9)]
        async with browse(service.events, "2") as page:
            assert await page.take(4) == [missed_event(3, 7, f"6{log}"), *messages]
        for last_event_id in ("6", ""):  # it was told, or did not ask for them
            async with browse(service.events, last_event_id) as page:
                assert await page.take(3) == messages
    async with (
        serve(server.address, cleaned_stream, start=EARLIEST, partition=[0]) as service,
        browse(service.events, "0:2") as page,
    ):
        assert await anext(page) == missed_event(3, 7, f"0:6{log}")
        assert await anext(page) == Received("message", "x", f"0:7{log}")
    async with serve(server.address, cleaned_stream, start=EARLIEST, stop=StopAt.offset(5)) as s:
        async with browse(s.events, "2") as page:
            assert [event async for event in page] == [
                missed_event(3, 6, f"5{log}"),
                Received("end", "stop reached", f"5{log}"),
            ]
        async with browse(s.events, page.last_event_id) as page:
            assert page.status == 204


@ON_ONE_FRAMEWORK
async def test_a_browser_is_not_told_of_compaction(
    server: Server, wire: Wire, cleaned_stream: str, serve: Serve
) -> None:
    await create_compacted(wire, cleaned_stream)
    await publish_keys(wire, cleaned_stream, "aabab-b")
    await become(wire, cleaned_stream, [3, 5, 6])
    async with serve(server.address, cleaned_stream, start=EARLIEST) as service:
        log = await log_of(service.client, cleaned_stream)
        async with browse(service.events, "0") as page:
            seen = await page.take(3)
        assert seen == [Received("message", "", f"{offset}{log}") for offset in (3, 5, 6)]


@ON_ONE_FRAMEWORK
async def test_several_partitions_are_read_as_one_and_resumed_each_where_it_was(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name, partitions=3)
    values = [f"{partition} {number}" for number in range(4) for partition in (0, 2)]
    for value in values:
        await client.publish(stream_name, value.encode(), partition=int(value[0]))
    async with serve(server.address, stream_name, start=EARLIEST, partition=None) as service:
        log, last_event_id, seen = await log_of(client, stream_name), "", []
        for count in (3, 1, 4):
            async with browse(service.events, last_event_id) as page:
                events = await page.take(count)
            seen += [event.data for event in events]
            last_event_id = events[-1].last_event_id
        assert last_event_id == f"0:3,2:3{log}"  # nothing is known of partition 1
        await client.publish(stream_name, b"1 0", partition=1)
        async with browse(service.events, last_event_id) as page:
            assert await anext(page) == Received("message", "1 0", f"0:3,1:0,2:3{log}")
        for partition in (0, 2):
            one = [value for value in seen if value.startswith(f"{partition}")]
            assert one == [value for value in values if value.startswith(f"{partition}")]


@ON_EMBEDDED
@ON_ONE_FRAMEWORK
async def test_a_browser_that_left_misses_nothing_of_any_partition(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name, partitions=3)
    await client.publish(stream_name, b"old", partition=2)
    log = await log_of(client, stream_name)
    async with serve(server.address, stream_name, partition=[0, 2]) as service:
        async with browse(service.events) as page:
            await page.read()
            assert page.last_event_id == f"0:-1,2:0{log}"
        await client.publish(stream_name, b"new", partition=2)
        async with browse(service.events, page.last_event_id) as page:
            assert await anext(page) == Received("message", "new", f"0:-1,2:1{log}")


@ON_ONE_FRAMEWORK
async def test_several_partitions_end_when_all_have(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name, partitions=2)
    for partition in (0, 1, 1):
        await client.publish(stream_name, b"x", partition=partition)
    log = await log_of(client, stream_name)
    async with serve(
        server.address, stream_name, start=EARLIEST, stop=StopAt.offset(1), partition=[0, 1]
    ) as service:
        async with browse(service.events) as page:
            last = (await page.take(3))[-1].last_event_id
        assert last == f"0:0,1:1{log}"
        await client.publish(stream_name, b"y", partition=0)
        async with browse(service.events, last) as page:
            assert [event async for event in page] == [
                Received("message", "y", f"0:1,1:1{log}"),
                Received("end", "stop reached", f"0:1,1:1{log}"),
            ]
        async with browse(service.events, page.last_event_id) as page:
            assert page.status == 204


@ON_EMBEDDED
@ON_ONE_FRAMEWORK
async def test_one_partition_of_several_begins_anew(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name, partitions=2)
    for partition in (0, 1):
        await client.publish(stream_name, b"%d" % partition, partition=partition)
    log = await log_of(client, stream_name)
    async with serve(server.address, stream_name, start=EARLIEST, partition=None) as service:
        for named in ("", log):
            async with browse(service.events, f"0:0,1:5{named}") as page:
                failed = failure_of("StreamReset", 5, f"0:0{named}", 1)
                assert [event async for event in page] == [failed]
            async with browse(service.events, page.last_event_id) as page:
                assert await anext(page) == Received("message", "1", f"0:0,1:0{log}")


@ON_EMBEDDED
@ON_ONE_FRAMEWORK
@pytest.mark.parametrize("partition", [0, [0, 2], None], ids=str)
async def test_a_page_with_an_id_of_another_service_begins_at_the_start(
    server: Server, client: Client, stream_name: str, serve: Serve, partition: Any
) -> None:
    await client.create_stream(stream_name, partitions=3)
    await client.publish(stream_name, b"a", partition=0)
    ids = ["x", "-2", "1" * 5000, "0:1,3:4", "0:01", "4" if partition else "0:4"]
    ids += [f"{position}@{'1' * 5000}" for position in ("0", "0:0")]
    async with serve(server.address, stream_name, start=EARLIEST, partition=partition) as service:
        for event_id in ids:
            async with browse(service.events, event_id) as page:
                assert page.status == 200
                [failed] = [event async for event in page]
            assert json.loads(failed.data)["error"] == "StreamReset"
            assert failed.last_event_id == ""
        async with browse(service.events, failed.last_event_id) as page:
            assert (await anext(page)).data == "a"


@ON_EMBEDDED
@ON_ONE_FRAMEWORK
@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("text", "to_event must return an Event or None, not str"),
        (Event(b"bytes"), "the data of an event must be a str, not bytes"),  # type: ignore[arg-type]
        (Event("a", None), "the type of an event must be a str, not NoneType"),  # type: ignore[arg-type]
    ],
)
async def test_what_is_no_event_is_named(
    server: Server,
    client: Client,
    stream_name: str,
    serve: Serve,
    result: Any,
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"a")
    async with (
        serve(server.address, stream_name, start=EARLIEST, to_event=lambda _: result) as service,
        browse(service.events) as page,
    ):
        assert json.loads((await anext(page)).data)["error"] == "WrongType"
    assert told in caplog.text


@ON_EMBEDDED
@ON_ONE_FRAMEWORK
async def test_messages_can_be_made_events_of_ones_own_or_left_out(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    def only_even(message: Message) -> Event | None:
        if int(message.value) % 2:
            return None
        return Event(f"no. {message.value.decode()}", "even")

    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"1", b"2", b"3", b"5", b"x", b"7"])
    log = await log_of(client, stream_name)
    async with (
        serve(server.address, stream_name, start=EARLIEST, to_event=only_even) as service,
        browse(service.events) as page,
    ):
        assert await anext(page) == Received("even", "no. 2", f"1{log}")
        assert await anext(page) == failure_of("ValueError", 4, f"3{log}")
        assert [event async for event in page] == []


@ON_EMBEDDED
@ON_ONE_FRAMEWORK
async def test_what_was_left_out_is_not_looked_at_again(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with (
        serve(server.address, stream_name, to_event=lambda _: None) as service,
        browse(service.events) as page,
    ):
        await page.read()
        await client.publish_many(stream_name, [b"a", b"b"])
        last = "1" + await log_of(client, stream_name)
        while page.last_event_id != last:
            assert await page.read()


@ON_EMBEDDED
async def test_a_head_request_gets_the_headers_alone(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with (
        serve(server.address, stream_name) as service,
        aiohttp.ClientSession() as session,
        session.head(service.events) as head,
    ):
        assert head.status == 200
        assert await head.read() == b""
        assert len(service.client.statistics().subscriptions) == 0
        async with session.get(service.events) as get:
            for name in ("Content-Type", "Cache-Control", "X-Accel-Buffering", "Content-Length"):
                assert head.headers.get(name) == get.headers.get(name)


@ON_EMBEDDED
@pytest.mark.parametrize(
    ("method", "option"),
    [("HEAD", {"heartbeat": 0}), ("GET", {"heartbeat": 0}), ("GET", {"retry": float("inf")})],
    ids=str,
)
async def test_an_option_that_makes_no_sense_is_refused_with_every_method(
    server: Server, stream_name: str, serve: Serve, method: str, option: dict[str, Any]
) -> None:
    async with (
        serve(server.address, stream_name, **option) as service,
        aiohttp.ClientSession() as session,
        session.request(method, service.events) as response,
    ):
        assert response.status == 500


@ON_EMBEDDED
async def test_an_aiohttp_application_may_be_given_a_client(
    server: Server,  # noqa: ARG001 - that of the client
    client: Client,
    stream_name: str,
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"a")

    async def respond(request: web.Request) -> web.StreamResponse:
        return await for_aiohttp.send_events(
            request, stream_name, start=EARLIEST, stop=StopAt.latest()
        )

    app = web.Application()
    app[for_aiohttp.CLIENT] = client
    app.router.add_get("/events", respond)
    app.router.add_get("/health", for_aiohttp.health(stream_name, timeout=5))
    async with TestClient(TestServer(app)) as http:
        assert "data: a" in await (await http.get("/events")).text()
        assert (await (await http.get("/health")).json())["status"] == "ready"


@ON_EMBEDDED
async def test_nested_applications_find_the_client(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"a")
    async with (
        serve(server.address, stream_name, start=EARLIEST) as service,
        browse(f"{service.url}/nested/events") as page,
    ):
        assert (await anext(page)).data == "a"


@ON_EMBEDDED
async def test_a_browser_that_leaves_ends_the_subscription_and_leaves_no_task(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with serve(server.address, stream_name) as service:
        async with browse(service.events) as page:
            await page.read()  # now the connection to the server stands, with its tasks
        await eventually(lambda: len(service.client.statistics().subscriptions) == 0)
        before = asyncio.all_tasks()
        async with browse(service.events) as page:
            await page.read()
            assert len(service.client.statistics().subscriptions) == 1
        await eventually(lambda: len(service.client.statistics().subscriptions) == 0)
        await eventually(lambda: not asyncio.all_tasks() - before)
