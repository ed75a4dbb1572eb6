"""Browsers read a partition as events, on every server and with every framework."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import aiohttp
import pytest

from faults.support import eventually
from integrations.event_source import Received, browse
from integrations.web_apps import Serve
from liftbridge_aio import Client, Message, StartAt, StopAt
from liftbridge_aio.integrations.starlette import Event
from servers.node import Server

EARLIEST = StartAt.earliest()


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
    assert seen == [Received("message", f"{number}", f"{number}") for number in range(6)]


async def test_nothing_is_missed_by_a_browser_that_left_before_the_first_message(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"old")
    async with serve(server.address, stream_name) as service:  # from what is new
        async with browse(service.events) as page:
            await page.read()
            assert page.last_event_id == "0"
        await client.publish(stream_name, b"new")
        async with browse(service.events, page.last_event_id) as page:
            assert (await anext(page)).data == "new"


async def test_what_came_into_an_empty_stream_meanwhile_is_not_missed_either(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with serve(server.address, stream_name) as service:
        async with browse(service.events) as page:
            await page.read()
            assert page.last_event_id == "-1"
        await client.publish(stream_name, b"first")
        async with browse(service.events, page.last_event_id) as page:
            assert (await anext(page)).data == "first"


async def test_the_end_is_told_and_who_comes_back_is_told_not_to(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"a", b"b"])
    async with serve(server.address, stream_name, start=EARLIEST, stop=StopAt.offset(1)) as service:
        async with browse(service.events) as page:
            assert [event async for event in page] == [
                Received("message", "a", "0"),
                Received("message", "b", "1"),
                Received("end", "stop reached", "1"),
            ]
        async with browse(service.events, "1") as page:
            assert page.status == 204
            assert not await page.read()


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
    async with serve(server.address, stream_name, start=EARLIEST) as service:
        async with browse(service.events) as page:
            assert (await anext(page)).data == "a"
            await client.delete_stream(stream_name)
            [failed] = [event async for event in page]
        assert failed.type == "failure"
        assert json.loads(failed.data)["error"] == "StreamDeleted"
        async with browse(service.events, failed.last_event_id) as page:
            assert page.status == 404
            assert not await page.read()


async def test_a_browser_whose_place_is_gone_is_told_and_begins_anew(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"of another log")
    async with serve(server.address, stream_name, start=EARLIEST) as service:
        async with browse(service.events, "7") as page:
            [failed] = [event async for event in page]
            assert failed == Received("failure", '{"error": "StreamReset", "offset": 7}', "")
        async with browse(service.events, page.last_event_id) as page:
            assert (await anext(page)).data == "of another log"


async def test_an_id_that_is_no_offset_is_a_bad_request(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with serve(server.address, stream_name) as service:
        for event_id in ("x", "-2", "1" * 30):
            async with browse(service.events, event_id) as page:
                assert page.status == 400


async def test_messages_can_be_made_events_of_ones_own_or_left_out(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    def only_even(message: Message) -> Event | None:
        if int(message.value) % 2:
            return None
        return Event(f"no. {message.value.decode()}", "even")

    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"1", b"2", b"3", b"5", b"x", b"7"])
    async with (
        serve(server.address, stream_name, start=EARLIEST, to_event=only_even) as service,
        browse(service.events) as page,
    ):
        assert await anext(page) == Received("even", "no. 2", "1")
        failed = await anext(page)
        assert failed == Received("failure", '{"error": "ValueError", "offset": 4}', "3")
        assert [event async for event in page] == []


async def test_a_head_request_gets_the_headers_alone(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with (
        serve(server.address, stream_name) as service,
        aiohttp.ClientSession() as session,
        session.head(service.events) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert not await response.read()


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


async def test_a_browser_that_leaves_ends_the_subscription_and_leaves_no_task(
    server: Server, client: Client, stream_name: str, serve: Serve
) -> None:
    await client.create_stream(stream_name)
    async with serve(server.address, stream_name) as service:
        async with browse(service.events) as page:
            await page.read()  # now the connection to the server stands, with its tasks
        await eventually(lambda: service.client.statistics().subscriptions == 0)
        before = asyncio.all_tasks()
        async with browse(service.events) as page:
            await page.read()
            assert service.client.statistics().subscriptions == 1
        await eventually(lambda: service.client.statistics().subscriptions == 0)
        await eventually(lambda: not asyncio.all_tasks() - before)
