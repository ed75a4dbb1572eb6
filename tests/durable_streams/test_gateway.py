"""The gateway's answers that the published conformance tests do not look at."""

from __future__ import annotations

import asyncio
import hmac
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from liftbridge_aio import AckPolicy, CallbackCancelled, Client, ClientOptions, StreamOptions
from liftbridge_aio.durable_streams import (
    DurableStream,
    IdempotentProducer,
    OutcomeUnknown,
    TooLarge,
)
from liftbridge_aio.durable_streams.core import sse
from liftbridge_aio.durable_streams.gateway import Gateway, GatewayOptions, gateway_app
from liftbridge_aio.errors import LiftbridgeError, UsageError
from liftbridge_aio.model import ACK_HEADER, OutgoingMessage
from support.faults import await_what_others_cancel
from support.servers.node import EmbeddedServer, Server
from support.transaction_logs import publish_own

TEXT: Final = {"Content-Type": "text/plain"}
PATH: Final = "/v1/stream/orders"


@asynccontextmanager
async def gateway(
    address: str, registry: str, **options: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, Client]]:
    """A gateway in this process, with an HTTP client for it and its own client."""
    settings = GatewayOptions(registry=registry, **({"long_poll_timeout": 5.0} | options))
    quick = ClientOptions(not_found_timeout=1.0)
    async with Client(address, options=quick) as client, Gateway(client, settings) as app:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield http, client


async def put(http: httpx2.AsyncClient, body: str = "", **headers: str) -> httpx2.Response:
    answer = await http.put(PATH, content=body, headers=TEXT | headers)
    assert answer.status_code == 201
    return answer


async def post(http: httpx2.AsyncClient, body: str, **headers: str) -> httpx2.Response:
    return await http.post(PATH, content=body, headers=TEXT | headers)


async def follow(http: httpx2.AsyncClient, url: str, offset: str) -> list[dict[str, Any]]:
    """Poll JSON objects from an offset on until one's value is `last`."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["value"] != "last":
        answer = await http.get(f"{url}&offset={offset}&live=long-poll")
        found += answer.json() if answer.status_code == 200 else []
        offset = answer.headers["Stream-Next-Offset"]
    return found


async def read_all(
    http: httpx2.AsyncClient, url: str, offset: str = "-1"
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return all JSON objects from an offset on, and the offsets at which responses ended."""
    found, ends = [], []
    while True:
        answer = await http.get(f"{url}{'&' if '?' in url else '?'}offset={offset}")
        assert answer.status_code == 200
        found += answer.json()
        ends += [offset := answer.headers["Stream-Next-Offset"]]
        if "Stream-Up-To-Date" in answer.headers:
            return found, ends


async def logs(client: Client, registry: str) -> list[str]:
    """Return the names of Liftbridge's streams that hold those of a gateway."""
    streams = (await client.fetch_metadata()).streams
    return [name for name in streams if name.startswith(f"{registry}.")]


async def test_the_state_is_what_the_log_says(server: Server, stream_name: str) -> None:
    numbered = {"Producer-Id": "till", "Producer-Epoch": "3"}
    async with gateway(server.address, stream_name) as (http, _):
        await put(http, "a")
        assert (await post(http, "b", **numbered, **{"Producer-Seq": "0"})).status_code == 200
        assert (await post(http, "c", **{"Stream-Seq": "x"})).status_code == 204
        closing = numbered | {"Producer-Seq": "1", "Stream-Closed": "true"}
        closed = await post(http, "d", **closing)
        tail = closed.headers["Stream-Next-Offset"]
    async with gateway(server.address, stream_name) as (http, _):
        head = await http.head(PATH)
        assert head.headers["Stream-Closed"] == "true"
        assert head.headers["Stream-Next-Offset"] == tail
        assert (await http.get(PATH)).text == "abcd"
        assert (await post(http, "d", **closing)).status_code == 204
        assert (await post(http, "e", **numbered, **{"Producer-Seq": "2"})).status_code == 409
        stale = numbered | {"Producer-Epoch": "2", "Producer-Seq": "0"}
        assert (await post(http, "e", **stale)).status_code == 403


async def test_of_gateways_that_race_each_append_is_stored_once(
    server: Server, stream_name: str
) -> None:
    async with (
        gateway(server.address, stream_name) as (one, _),
        gateway(server.address, stream_name) as (two, _),
    ):
        created = await asyncio.gather(*(each.put(PATH, headers=TEXT) for each in (one, two)))
        assert sorted(each.status_code for each in created) == [200, 201]
        plain = [post(each, f"{n};") for n, each in enumerate([one, two] * 20)]
        assert {each.status_code for each in await asyncio.gather(*plain)} == {204}
        for seq in range(10):
            headers = {"Producer-Id": "till", "Producer-Epoch": "0", "Producer-Seq": str(seq)}
            both = await asyncio.gather(*(post(http, "p;", **headers) for http in (one, two)))
            assert sorted(each.status_code for each in both) == [200, 204]
        stored = sorted((await one.get(PATH)).text.split(";")[:-1])
        assert stored == sorted([*map(str, range(40)), *["p"] * 10])
        async with asyncio.timeout(10):
            while (await two.get(PATH)).text != (await one.get(PATH)).text:  # noqa: ASYNC110 - same
                await asyncio.sleep(0.05)


async def test_a_close_wakes_long_polls_which_share_a_subscription(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name, long_poll_timeout=60.0) as (
        http,
        client,
    ):
        tail = (await put(http, "a")).headers["Stream-Next-Offset"]
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(http.get(f"{PATH}?offset={tail}&live=long-poll"))
                for _ in range(20)
            ]
            assert (await http.get(f"{PATH}?offset=now")).status_code == 200
            [log] = await logs(client, stream_name)
            read = [each.stream for each in client.statistics().subscriptions]
            assert sorted(read) == [stream_name, log]
            assert (await post(http, "", **{"Stream-Closed": "TRUE"})).status_code == 204
        for each in waiting:
            ended = each.result()
            assert (ended.status_code, ended.headers["Stream-Closed"]) == (204, "true")
            assert "Stream-Cursor" not in ended.headers


async def test_the_entity_tag_changes_with_the_close(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        await put(http, "a")
        tag = (await http.get(PATH)).headers["ETag"]
        assert (await http.get(PATH, headers={"If-None-Match": tag})).status_code == 304
        await post(http, "", **{"Stream-Closed": "true"})
        again = await http.get(PATH, headers={"If-None-Match": tag})
        assert (again.status_code, again.headers["Stream-Closed"]) == (200, "true")


async def test_events_hold_text_as_it_was_appended(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        for text in (" one\n  two\n three", "one\n\ntwo", "event: data\ndata: x\n\n"):
            await put(http, text, **{"Stream-Closed": "true"})
            events = sse.Parser().feed((await http.get(f"{PATH}?offset=-1&live=sse")).content)
            assert [each.kind for each in events] == ["data", "control"]
            assert events[0].data.decode() == text
            await http.delete(PATH)


async def test_events_end_in_time_and_readers_that_take_none_are_cut_off(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    options = GatewayOptions(registry=stream_name, write_timeout=0.2, sse_duration=0.5)
    async with Client(embedded_server.address) as client, Gateway(client, options) as app:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://localhost"
        ) as http:
            await put(http, "a")
        scope = {
            "type": "http",
            "method": "GET",
            "path": PATH,
            "query_string": b"offset=-1&live=sse",
            "headers": [],
        }
        never = asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            await never.wait()
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        async def take_nothing(message: Any) -> None:
            if message["type"] == "http.response.body":
                await never.wait()

        async with asyncio.timeout(20):
            await app(scope, receive, send)
            await app(scope, receive, take_nothing)
        assert [each.get("more_body") for each in sent] == [None, True, False]


async def test_if_match_appends_only_at_that_end(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        tail = (await put(http, "a")).headers["Stream-Next-Offset"]
        appended = await post(http, "b", **{"If-Match": f'"{tail}"'})
        assert appended.status_code == 204
        refused = await post(http, "c", **{"If-Match": f'"{tail}"'})
        assert refused.status_code == 412
        assert refused.headers["Stream-Next-Offset"] == appended.headers["Stream-Next-Offset"]
        assert (await http.get(PATH)).text == "ab"


async def test_preconditions_are_checked_or_refused(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        new_only = TEXT | {"If-None-Match": "*"}
        assert (await http.put(PATH, content="a", headers=new_only)).status_code == 201
        assert (await http.put(PATH, content="a", headers=new_only)).status_code == 412
        stale = {"If-Match": '"0"'}
        assert (await http.put(PATH, headers=TEXT | stale)).status_code == 400
        assert (await http.delete(PATH, headers=stale)).status_code == 400
        assert (await http.get(PATH)).text == "a"


async def test_a_stream_is_the_same_wherever_the_gateway_is_mounted(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    settings = GatewayOptions(registry=stream_name, allow_hosts=["outside", "in"])
    async with Client(embedded_server.address) as client, Gateway(client, settings) as app:
        mounted = httpx2.ASGITransport(Starlette(routes=[Mount("/gw", app)]))
        async with (
            httpx2.AsyncClient(transport=mounted, base_url="http://outside/gw") as outside,
            httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1"
            ) as inside,
        ):
            created = await outside.put(PATH, content="a", headers=TEXT)
            assert created.headers["Location"] == f"http://outside/gw{PATH}"
            assert (await inside.get(PATH)).text == "a"
            fork = TEXT | {"Stream-Forked-From": f"/gw{PATH}"}
            assert (await outside.put(f"{PATH}-2", headers=fork)).status_code == 201
            assert (await inside.get(f"{PATH}-2")).text == "a"
            listed = (await outside.get("/v1/streams")).json()["streams"]
            assert [each["path"] for each in listed] == [PATH, f"{PATH}-2"]


async def test_offsets_of_a_deleted_stream_are_none_of_its_successor(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        old = (await put(http, "old")).headers["Stream-Next-Offset"]
        assert (await http.delete(PATH)).status_code == 204
        new = (await put(http, "new, and longer")).headers["Stream-Next-Offset"]
        assert new > old
        assert (await http.get(f"{PATH}?offset={old}")).status_code == 410
        assert (await http.get(f"{PATH}?offset={new[:-1]}2")).status_code == 400
        assert (await http.get(PATH)).text == "new, and longer"


async def test_any_utf_8_is_a_path_and_nothing_else(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        created = await http.put("/v1/stream/caf%C3%A9/%F0%9F%98%80", headers=TEXT)
        assert created.headers["Location"] == "http://localhost/v1/stream/caf%C3%A9/%F0%9F%98%80"
        assert (await http.get(created.headers["Location"])).status_code == 200
        for path in ("%FF", "%FE"):
            assert (await http.put(f"/v1/stream/{path}", headers=TEXT)).status_code == 400
        assert (await http.put("/v1/stream/%EF%BF%BD", headers=TEXT)).status_code == 201


NAMES: Final = ["a b", "a%20b", "a%2520b", "caf\u00e9", "100%", "a?b#c", "%zz", "a+b"]


async def test_each_path_is_decoded_once_wherever_it_is_named(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        for name in NAMES:
            url = f"/v1/stream/{quote(name)}"
            assert (await http.put(url, content=name, headers=TEXT)).status_code == 201
        for number, name in enumerate(NAMES):
            given = {"Stream-Forked-From": f"/v1/stream/{quote(name)}"}
            assert (await http.put(f"/v1/stream/{number}", headers=given)).status_code == 201
            assert (await http.get(f"/v1/stream/{number}")).text == name
        raw = [(b"Stream-Forked-From", "/v1/stream/caf\u00e9".encode())]
        assert (await http.put("/v1/stream/raw", headers=raw)).status_code == 201
        invalid = {"Stream-Forked-From": "/v1/stream/%FF"}
        assert (await http.put("/v1/stream/invalid", headers=invalid)).status_code == 400
        listed = (await http.get("/v1/streams")).json()["streams"]
        assert {f"/v1/stream/{name}" for name in NAMES} <= {each["path"] for each in listed}


async def test_subscriptions_name_decoded_paths(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    subscription = "/v1/stream/__ds/subscriptions/shop"
    async with gateway(embedded_server.address, stream_name) as (http, _):
        await http.put("/v1/stream/wakes", headers={"Content-Type": "application/json"})
        for name in NAMES:
            await http.put(f"/v1/stream/{quote(name)}", headers=TEXT)
        wanted = {"type": "pull-wake", "streams": NAMES, "wake_stream": "wakes"}
        assert (await http.put(subscription, json=wanted)).status_code == 201
        for name in NAMES:
            await http.post(f"/v1/stream/{quote(name)}", content="x", headers=TEXT)
        claimed = (await http.post(f"{subscription}/claim", json={"worker": "ann"})).json()
        assert {each["path"] for each in claimed["streams"]} == set(NAMES)
        removed = await http.delete(f"{subscription}/streams/{quote(NAMES[1])}")
        assert removed.status_code == 204
        left = {each["path"] for each in (await http.get(subscription)).json()["streams"]}
        assert left == set(NAMES) - {NAMES[1]}
        assert (await http.delete("/v1/stream/__ds/subscriptions/%FF")).status_code == 400


async def test_bodies_that_are_compressed_are_refused(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        await put(http)
        assert (await post(http, "a", **{"Content-Encoding": "gzip"})).status_code == 415
        assert (await post(http, "a", **{"Content-Encoding": "identity"})).status_code == 204


async def test_deleted_streams_leave_nothing_in_liftbridge(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, client):
        await put(http, "a")
        fork = await http.put("/v1/stream/fork", headers={"Stream-Forked-From": PATH})
        assert fork.status_code == 201
        await http.delete(PATH)
        assert (await http.get(PATH)).status_code == 410
        assert (await http.get("/v1/stream/fork")).text == "a"
        await http.delete("/v1/stream/fork")
        async with asyncio.timeout(10):
            while await logs(client, stream_name):
                pass
        assert (await http.get(PATH)).status_code == 404


@pytest.mark.parametrize("forked", [False, True])
async def test_live_reads_end_when_their_stream_is_deleted(
    embedded_server: EmbeddedServer, stream_name: str, *, forked: bool
) -> None:
    options = {"long_poll_timeout": 60.0, "sse_duration": 60.0}
    async with gateway(embedded_server.address, stream_name, **options) as (http, _):
        await put(http, "a")
        if forked:
            fork = await http.put("/v1/stream/fork", headers={"Stream-Forked-From": PATH})
            assert fork.status_code == 201
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            polled = group.create_task(http.get(f"{PATH}?offset=now&live=long-poll"))
            events = group.create_task(http.get(f"{PATH}?offset=-1&live=sse"))
            assert (await http.head(PATH)).status_code == 200
            assert (await http.delete(PATH)).status_code == 204
        assert polled.result().status_code == (410 if forked else 404)
        assert events.result().text.startswith("event: data\ndata:a\n\nevent: control")


async def test_a_stream_that_is_only_written_is_followed_once_it_matters(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    by = {"Producer-Id": "till", "Producer-Epoch": "0"}
    async with (
        gateway(embedded_server.address, stream_name) as (one, _),
        gateway(embedded_server.address, stream_name) as (two, _),
    ):

        async def write_until_it_is_not_followed() -> None:
            followed = f"durable-streams:follow:{stream_name}."
            async with asyncio.timeout(20):
                while any(each.get_name().startswith(followed) for each in asyncio.all_tasks()):
                    for http in (one, two):
                        for _ in range(60):
                            assert (await post(http, ".")).status_code == 204

        await put(one)
        await write_until_it_is_not_followed()
        assert (await post(two, "p", **by, **{"Producer-Seq": "0"})).status_code == 200
        assert (await post(one, "p", **by, **{"Producer-Seq": "1"})).status_code == 200
        await write_until_it_is_not_followed()
        tail = (await post(two, "t")).headers["Stream-Next-Offset"]
        assert (await post(one, "t", **{"If-Match": f'"{tail}"'})).status_code == 204
        await write_until_it_is_not_followed()
        assert (await post(two, "read")).status_code == 204
        assert (await one.get(PATH)).text.endswith("read")
        await write_until_it_is_not_followed()
        async with asyncio.TaskGroup() as group:
            polled = group.create_task(one.get(f"{PATH}?offset=now&live=long-poll"))
            while not polled.done():
                await post(two, "live")
        assert polled.result().text.startswith("live")


def cached_seconds(answer: httpx2.Response) -> int:
    """Return for how long caches may serve a response, fresh or stale."""
    directives = answer.headers["Cache-Control"].split(", ")
    return sum(int(each.partition("=")[2]) for each in directives if "=" in each)


async def test_no_cache_keeps_a_stream_beyond_its_life(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=20)).isoformat()
    lives: list[tuple[dict[str, str], int]] = [
        ({}, 360),
        ({"Stream-TTL": "2"}, 2),
        ({"Stream-TTL": "90"}, 90),
    ]
    lives += [({"Stream-TTL": "3600"}, 360), ({"Stream-Expires-At": soon}, 20)]
    async with gateway(embedded_server.address, stream_name) as (http, _):
        for number, (life, most) in enumerate(lives):
            url = f"/v1/stream/{number}"
            assert (await http.put(url, content="a", headers=TEXT | life)).status_code == 201
            found = await http.get(url)
            assert most - 10 <= cached_seconds(found) <= most
            again = await http.get(url, headers={"If-None-Match": found.headers["ETag"]})
            assert (again.status_code, cached_seconds(again) <= most) == (304, True)
            polled = await http.get(url, params={"offset": "-1", "live": "long-poll"})
            assert cached_seconds(polled) <= most


async def test_reads_at_one_gateway_prolong_a_life_at_all(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with (
        gateway(embedded_server.address, stream_name) as (one, _),
        gateway(embedded_server.address, stream_name) as (two, _),
    ):
        await put(one, "a", **{"Stream-TTL": "2"})
        loop = asyncio.get_running_loop()
        end = loop.time() + 4
        while loop.time() < end:
            assert (await two.get(PATH)).status_code == 200
            assert (await one.head(PATH)).status_code == 200
            await asyncio.sleep(0.1)
        async with asyncio.timeout(10):
            while (await one.head(PATH)).status_code != 404:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.05)
        assert (await two.get(PATH)).status_code == 404


async def test_an_append_prolongs_a_life_though_its_gateway_is_killed(
    server: Server, stream_name: str
) -> None:
    """The log has what a gateway stored that was killed before it registered anything."""
    async with (
        gateway(server.address, stream_name) as (http, client),
        gateway(server.address, stream_name) as (other, _),
    ):
        await put(http, "a,", **{"Stream-TTL": "2"})
        loop = asyncio.get_running_loop()
        created = loop.time()
        fork = {"Stream-Forked-From": PATH, "Stream-TTL": "60"}
        [log] = await logs(client, stream_name)
        await asyncio.sleep(1)
        appended = loop.time()
        await client.publish(log, b"paid", ack_policy=AckPolicy.ALL)
        while loop.time() < created + 2.1:
            assert (await other.head(PATH)).status_code == 200
            await asyncio.sleep(0.1)
        assert (await http.put("/v1/stream/fork", headers=fork)).status_code == 201
        async with asyncio.timeout(20):
            while (await other.head(PATH)).status_code == 200:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.05)
        assert appended + 1.9 < loop.time()
        assert (await http.get("/v1/stream/fork")).text == "a,paid"


async def test_foreign_messages_of_the_registry_are_skipped(
    server: Server, stream_name: str
) -> None:
    async with gateway(server.address, stream_name) as (http, client):
        await put(http, "a")
        keys = (PATH.encode(), b"subscription:x", b"\xff", b"")
        for key, value in itertools.product(keys, (b"x", b"[]", b"{}", b"\xff", b"7")):
            await client.publish(stream_name, value, key)
        assert (await http.get(PATH)).text == "a"
    async with gateway(server.address, stream_name) as (http, _):
        assert (await http.get(PATH)).text == "a"
        assert (await http.put(f"{PATH}-2", headers=TEXT)).status_code == 201


async def test_forwarded_headers_change_no_other_stream(server: Server, stream_name: str) -> None:
    numbered = {"Producer-Id": "till", "Producer-Epoch": "3", "Producer-Seq": "0"}
    async with gateway(server.address, stream_name) as (http, client):
        await put(http, "a")
        assert (await post(http, "b", **numbered, **{"Stream-Closed": "true"})).status_code == 200
        [log] = await logs(client, stream_name)
        _, closing = await client.last(log, n=2)
        await http.put(f"{PATH}-2", content="c", headers=TEXT)
        [other] = {*await logs(client, stream_name)} - {log}
        ack = await client.publish(other, b"d", headers=closing.headers, ack_policy=AckPolicy.ALL)
        assert ack.offset == 1
        answer = await http.post(f"{PATH}-2", content="e", headers=TEXT | numbered)
        assert answer.status_code == 200
        assert (await http.get(f"{PATH}-2")).text == "cde"


async def test_without_its_registry_a_gateway_begins_anew(
    server: Server, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"long_poll_timeout": 60.0, "sse_duration": 60.0}
    async with (
        gateway(server.address, stream_name, **options) as (one, client),
        gateway(server.address, stream_name, **options) as (two, _),
    ):
        old = (await put(one, "old")).headers["Stream-Next-Offset"]
        polled = asyncio.create_task(one.get(f"{PATH}?offset=now&live=long-poll"))
        events = asyncio.create_task(two.get(f"{PATH}?offset=-1&live=sse"))
        assert (await two.head(PATH)).status_code == 200
        await client.delete_stream(stream_name)
        async with asyncio.timeout(60):
            for http in (one, two):
                while (found := await http.get(PATH)).status_code != 404:
                    assert found.status_code in {200, 503}
                    assert stream_name not in found.text
                    await asyncio.sleep(0.1)
            assert (await polled).status_code == 404
            assert (await events).text.startswith("event: data\ndata:old\n\nevent: control")
        await put(one, "new, and longer")
        for http in (one, two):
            assert (await http.get(PATH)).text == "new, and longer"
            assert (await http.get(f"{PATH}?offset={old}")).status_code == 410
    gone = [each for each in caplog.records if "was gone from Liftbridge" in each.getMessage()]
    assert 1 <= len(gone) <= 2


async def test_what_retention_has_removed_is_gone_but_for_the_state(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    by = {"Producer-Id": "till", "Producer-Epoch": "0", "Producer-Seq": "0"}
    kept = StreamOptions(retention_max_messages=5, segment_max_bytes=200, cleaner_interval=0.1)
    async with gateway(embedded_server.address, stream_name, stream=kept) as (http, client):
        offsets = [(await put(http)).headers["Stream-Next-Offset"]]
        for n in range(40):
            numbered = by if n == 0 else {}
            offsets += [(await post(http, f"{n:>40};", **numbered)).headers["Stream-Next-Offset"]]
        [log] = await logs(client, stream_name)
        async with asyncio.timeout(20):
            while not await client.oldest_offset(log):
                pass
    async with gateway(embedded_server.address, stream_name, stream=kept, max_cached_bytes=1) as (
        http,
        _,
    ):
        for live in ("", "&live=long-poll", "&live=sse"):
            gone = await http.get(f"{PATH}?offset={offsets[0]}{live}")
            assert (gone.status_code, gone.text[:9]) == (410, "retention")
        body, offset = "", "-1"
        while True:
            answer = await http.get(f"{PATH}?offset={offset}")
            assert answer.status_code == 200
            body += answer.text
            offset = answer.headers["Stream-Next-Offset"]
            if "Stream-Up-To-Date" in answer.headers:
                break
        numbers = [int(each) for each in body.split(";")[:-1]]
        assert numbers == list(range(numbers[0], 40))
        assert numbers[0] > 0
        assert offset == offsets[-1]
        assert (await post(http, "again", **by)).status_code == 204
        assert (await post(http, "1", **by | {"Producer-Seq": "1"})).status_code == 200


async def test_a_registry_that_was_compacted_says_the_same(
    server: Server, stream_name: str
) -> None:
    tiny = StreamOptions(
        segment_max_bytes=2_000,
        cleaner_interval=0.2,
        compact_enabled=True,
        optimistic_concurrency_control=True,
    )
    path = "/v1/stream/carts/{}"
    async with Client(server.address) as client:
        await client.create_stream(stream_name, options=tiny)
    async with gateway(server.address, stream_name) as (http, client):
        for n in range(6):
            for _ in range(4):
                await http.put(path.format(n), content=f"cart {n}", headers=TEXT)
                await http.delete(path.format(n))
            if n % 2:
                await http.put(path.format(n), content=f"cart {n}", headers=TEXT)
        end = (await client.fetch_partition_metadata(stream_name, 0)).newest_offset
        async with asyncio.timeout(30):
            while len([each async for each in client.read(stream_name)]) > end - 10:
                pass
    async with gateway(server.address, stream_name) as (http, client):
        for n in range(6):
            answer = await http.get(path.format(n))
            assert (answer.status_code, answer.text == f"cart {n}") == (
                (200, True) if n % 2 else (404, False)
            )
        assert (await http.put(path.format(0), headers=TEXT)).status_code == 201


async def test_what_is_not_in_memory_is_read_from_the_log(server: Server, stream_name: str) -> None:
    options: dict[str, Any] = {"max_cached_bytes": 100, "max_response_bytes": 50}
    async with gateway(server.address, stream_name, **options) as (http, _):
        await put(http)
        for n in range(30):
            await post(http, f"{n:>20};")
        body, offset, answers = "", "-1", 0
        while True:
            answer = await http.get(f"{PATH}?offset={offset}")
            body, answers = body + answer.text, answers + 1
            offset = answer.headers["Stream-Next-Offset"]
            if "Stream-Up-To-Date" in answer.headers:
                break
        assert [int(each) for each in body.split(";")[:-1]] == list(range(30))
        assert answers >= 10


async def test_streams_of_liftbridge_can_be_read(server: Server, stream_name: str) -> None:
    options: dict[str, Any] = {"max_response_bytes": 200}
    async with gateway(server.address, f"registry-{stream_name}", **options) as (http, client):
        await client.create_stream(stream_name, partitions=2)
        for n in range(10):
            await client.publish(
                stream_name, b"%d" % n, b"key", {"trace": b"\xff", "n": b"%d" % n}, partition=1
            )
        path = f"/v1/liftbridge/{stream_name}/1"
        messages, [*_, offset] = await read_all(http, path)
        assert [(each["offset"], each["key"], each["value"]) for each in messages] == [
            (n, "key", str(n)) for n in range(10)
        ]
        assert messages[3]["headers"] == {"trace_base64": "/w==", "n": "3"}
        waiting = asyncio.create_task(http.get(f"{path}?offset={offset}&live=long-poll"))
        await asyncio.sleep(0)
        await client.publish(stream_name, b"late", partition=1)
        assert [each["value"] for each in (await waiting).json()] == ["late"]
        assert [each["value"] for each in (await http.get(f"{path}?offset=9")).json()] == [
            "9",
            "late",
        ]
        assert (await http.head(path)).headers["Content-Type"] == "application/json"
        assert (await http.post(path, content="[1]")).status_code == 405
        assert (await http.get(f"/v1/liftbridge/{stream_name}/2")).status_code == 404
        for hidden in ("__cursors", f"registry-{stream_name}"):
            assert (await http.get(f"/v1/liftbridge/{hidden}/0")).status_code == 404
        listed = (await http.get("/v1/streams")).json()
        assert {"name": stream_name, "partitions": 2} in listed["liftbridge"]
        assert not [each for each in listed["liftbridge"] if "registry" in each["name"]]


async def test_committed_readers_see_transactions_whole(server: Server, stream_name: str) -> None:
    options: dict[str, Any] = {"max_response_bytes": 200}
    async with gateway(server.address, f"registry-{stream_name}", **options) as (http, client):
        await client.create_stream(stream_name)
        path = f"/v1/liftbridge/{stream_name}/0"
        committed = f"{path}?isolation=committed"
        start = (await http.get(f"{committed}&offset=now")).headers["Stream-Next-Offset"]
        live = asyncio.create_task(follow(http, committed, start))
        producer = client.producer()
        await producer.publish(stream_name, b"alone")
        long = "a2" + "x" * 300
        async with producer.transaction() as first:
            await first.publish(stream_name, b"a1")
            await client.publish(stream_name, b"plain")
            await first.publish(stream_name, long.encode())
        unfinished = client.producer().transaction()
        await unfinished.publish(stream_name, b"not committed")
        await unfinished.flush()
        async with producer.transaction() as second:
            await second.publish(stream_name, b"b")
        await client.publish(stream_name, b"last")
        shown = ["alone", "plain", "a1", long, "b", "last"]
        async with asyncio.timeout(30):
            assert [each["value"] for each in await live] == shown
        log = [each async for each in client.read(stream_name)]
        acks = [each.offset for each in log if "txn-ack" in each.transaction_headers]
        everything = [each["offset"] for each in (await read_all(http, path))[0]]
        assert everything == [each.offset for each in log if each.offset not in acks]
        assert (await http.get(f"{path}?isolation=some")).status_code == 400
    async with gateway(server.address, f"other-{stream_name}", **options) as (cold, _):
        found, ends = await read_all(cold, committed)
        assert [each["value"] for each in found] == shown
        assert [each["position"] for each in found[1:5]] == [
            each.offset for each in log if each.value == b"plain"
        ] + [acks[0], acks[0], acks[1]]
        assert len(ends) > 1
        for position in {each["position"] for each in found}:
            behind, _ = await read_all(cold, committed, str(position))
            assert behind == [each for each in found if each["position"] >= position]


async def test_committed_readers_skip_malformed_acks_on_demand(
    server: Server, stream_name: str
) -> None:
    async with gateway(server.address, f"registry-{stream_name}") as (http, client):
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"before")
        await publish_own(
            client, OutgoingMessage(stream_name, b"", own_headers={ACK_HEADER: b"garbage"})
        )
        await client.publish(stream_name, b"after")
        committed = f"/v1/liftbridge/{stream_name}/0?isolation=committed"
        assert (await http.get(f"{committed}&offset=-1")).status_code == 422
        assert (await http.get(f"{committed}&on_malformed=some")).status_code == 400
        found, _ = await read_all(http, f"{committed}&on_malformed=skip")
        assert [each["value"] for each in found] == ["before", "after"]


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
async def test_a_stream_of_liftbridge_that_was_created_again_is_another(
    server: Server, stream_name: str, isolation: str
) -> None:
    async with gateway(server.address, f"registry-{stream_name}") as (http, client):
        path = f"/v1/liftbridge/{stream_name}/0?isolation={isolation}"
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"old", ack_policy=AckPolicy.ALL)
        old = await http.get(path)
        assert [each["value"] for each in old.json()] == ["old"]
        end = old.headers["Stream-Next-Offset"]
        assert stream_name in old.headers["ETag"]
        assert (await http.get(f"{path}&offset=1")).status_code == 200
        for beyond in ("2", f"{end[:-1]}2"):
            assert (await http.get(f"{path}&offset={beyond}")).status_code == 400
        await client.delete_stream(stream_name)
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"new", ack_policy=AckPolicy.ALL)
        new = await http.get(path, headers={"If-None-Match": old.headers["ETag"]})
        assert [each["value"] for each in new.json()] == ["new"]
        assert (await http.get(f"{path}&offset={end}")).status_code == 410


async def test_what_is_switched_off_is_not_there(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    options: dict[str, Any] = {"native": False, "page": False}
    async with gateway(embedded_server.address, stream_name, **options) as (http, client):
        await client.create_stream("orders")
        for path in ("/", "/v1/streams", "/v1/liftbridge/orders/0"):
            assert (await http.get(path)).status_code == 404


async def test_requests_are_authorized_first(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async def authorize(request: Request) -> Response | None:
        return None if request.headers.get("authorization") == "me" else Response("no", 401)

    options: dict[str, Any] = {"authorize": authorize, "allow_origins": ["self"]}
    async with gateway(embedded_server.address, stream_name, **options) as (http, _):
        refused = await http.put(PATH, headers=TEXT)
        assert refused.status_code == 401
        assert refused.headers["X-Content-Type-Options"] == "nosniff"
        assert (await http.get(PATH, headers={"Authorization": "me"})).status_code == 404
        await put(http, "a", Authorization="me")
        found = await http.get(PATH, headers={"Authorization": "me"})
        assert found.headers["Cache-Control"].startswith("private")
        assert "Access-Control-Allow-Origin" not in found.headers


async def test_authorize_that_others_cancel_has_failed(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async def authorize(_: Request) -> Response | None:
        await await_what_others_cancel()
        return None

    async with gateway(embedded_server.address, stream_name, authorize=authorize) as (http, _):
        with pytest.raises(CallbackCancelled, match="authorize was cancelled"):
            await http.get(PATH)


async def test_large_bodies_are_refused(embedded_server: EmbeddedServer, stream_name: str) -> None:
    async with gateway(embedded_server.address, stream_name, max_body_bytes=10) as (http, _):
        await put(http, "0123456789")
        assert (await post(http, "0123456789a")).status_code == 413
        assert (await http.get(PATH)).text == "0123456789"


async def answers_to_half_a_body(address: str, registry: str, **options: Any) -> list[int]:
    """Send half a body to a stream and to a subscription, and return the answers' statuses."""
    settings = GatewayOptions(registry=registry, **options)
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message)

    async with Client(address) as client, Gateway(client, settings) as app:
        for path in (PATH, "/v1/stream/__ds/subscriptions/shop"):
            parts = iter([{"type": "http.request", "body": b"half", "more_body": True}])

            async def receive(parts: Iterator[dict[str, Any]] = parts) -> dict[str, Any]:
                for part in parts:
                    return part
                await asyncio.Event().wait()
                raise AssertionError

            scope = {
                "type": "http",
                "http_version": "1.1",
                "method": "PUT",
                "path": path,
                "query_string": b"",
                "headers": [(b"content-type", b"text/plain")],
            }
            async with asyncio.timeout(20):
                await app(scope, receive, send)
    assert all((b"connection", b"close") in each["headers"] for each in sent)
    return [each["status"] for each in sent]


async def test_a_body_that_does_not_come_in_time_is_refused(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    address = embedded_server.address
    assert await answers_to_half_a_body(address, stream_name, body_timeout=0.1) == [408, 408]

    async def authorize(request: Request) -> Response | None:
        await request.body()
        return None

    options: dict[str, Any] = {"body_timeout": 0.1, "authorize": authorize}
    assert await answers_to_half_a_body(address, stream_name, **options) == [408, 408]


async def test_who_authorizes_may_read_the_body(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async def authorize(request: Request) -> Response | None:
        if "signature" not in request.headers:  # which takes what has come, and gives up the rest
            return Response("gone", 401) if await request.is_disconnected() else None
        digest = hmac.new(b"key", await request.body(), "sha256").hexdigest()
        return None if request.headers.get("signature") == digest else Response("no", 401)

    async def in_parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"two ", b"three"):
            yield part

    options: dict[str, Any] = {"authorize": authorize, "max_body_bytes": 20}
    async with gateway(embedded_server.address, stream_name, **options) as (http, _):
        for send, body in ((http.put, b""), (http.post, b"one two three"), (http.post, b"x" * 20)):
            signed = TEXT | {"Signature": hmac.new(b"key", body, "sha256").hexdigest()}
            content = in_parts() if body.startswith(b"one") else body
            async with asyncio.timeout(20):
                assert (await send(PATH, content=content, headers=signed)).is_success
        assert (await post(http, "forged", Signature="0")).status_code == 401
        assert (await post(http, "x" * 21, Signature="0")).status_code == 413
        assert (await http.post(PATH, content=in_parts(), headers=TEXT)).is_success
        assert (await http.get(PATH)).text == "one two three" + "x" * 20 + "one two three"


@pytest.mark.parametrize("number", ["9007199254740992", "01", "-1", "1.0", ""])
async def test_numbers_that_javascript_cannot_hold_are_refused(
    embedded_server: EmbeddedServer, stream_name: str, number: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        await put(http)
        headers = {"Producer-Id": "till", "Producer-Epoch": number, "Producer-Seq": "0"}
        assert (await post(http, "a", **headers)).status_code == 400


async def test_the_application_connects_a_client_of_its_own(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    app = gateway_app(embedded_server.address, options=GatewayOptions(registry=stream_name))
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            await put(http, "a")
            assert (await http.get(PATH)).text == "a"


async def test_an_application_without_its_lifespan_says_so() -> None:
    transport = httpx2.ASGITransport(gateway_app("127.0.0.1:1"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        with pytest.raises(UsageError, match="lifespan"):
            await http.get(PATH)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="long_poll_timeout"):
        replace(GatewayOptions(), long_poll_timeout=0)
    for registry in ("*", "a.*", "a.>"):
        with pytest.raises(ValueError, match="registry"):
            replace(GatewayOptions(), registry=registry)


FOREIGN: Final = {"Origin": "https://evil.example"}
SCRIPT: Final = "<script>fetch('/v1/streams')</script>"


@pytest.mark.parametrize("content_type", ["text/html", "image/svg+xml", "text/xml", "text/plain"])
async def test_browsers_run_nothing_that_a_stream_holds(
    embedded_server: EmbeddedServer, stream_name: str, content_type: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        kind = {"Content-Type": content_type}
        assert (await http.put(PATH, content=SCRIPT, headers=kind)).status_code == 201
        for query in ("", "?offset=now", "?offset=-1&live=long-poll"):
            found = await http.get(PATH + query)
            assert found.headers["X-Content-Type-Options"] == "nosniff"
            assert "sandbox" in found.headers["Content-Security-Policy"].split("; ")
            disposition = found.headers.get("Content-Disposition")
            assert disposition == (None if content_type == "text/plain" else "attachment")


@pytest.mark.parametrize("path", ["/", "/v1/streams", "/v1/liftbridge/STREAM/0"])
async def test_other_origins_use_streams_only(
    embedded_server: EmbeddedServer, stream_name: str, path: str
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, client):
        await client.create_stream(f"{stream_name}-native")
        await put(http, "a")
        path = path.replace("STREAM", f"{stream_name}-native")
        origins: list[tuple[dict[str, str], int]] = [
            ({}, 200),
            ({"Origin": "http://localhost"}, 200),
            (FOREIGN, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://localhost:8000"}, 403),
        ]
        for given, status in origins:
            found = await http.get(path, headers=given)
            assert found.status_code == status
            assert "Access-Control-Allow-Origin" not in found.headers
            assert found.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        open_to_all = await http.get(PATH, headers=FOREIGN)
        assert open_to_all.headers["Access-Control-Allow-Origin"] == "*"


async def test_allowed_origins_use_everything_and_others_nothing(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    shop = "https://shop.example"
    async with gateway(embedded_server.address, stream_name, allow_origins=[shop]) as (http, _):
        await put(http, "a", Origin=shop)
        for path in (PATH, "/v1/streams"):
            found = await http.get(path, headers={"Origin": shop})
            assert found.headers["Access-Control-Allow-Origin"] == shop
            assert found.headers["Vary"] == "Origin"
            refused = await http.get(path, headers=FOREIGN)
            assert refused.status_code == 403
            assert "Access-Control-Allow-Origin" not in refused.headers
        assert (await post(http, "b", **FOREIGN)).status_code == 403
        asked = await http.options(PATH, headers=FOREIGN)
        assert "Access-Control-Allow-Origin" not in asked.headers
        assert (await http.get(PATH)).text == "a"


async def test_unknown_hosts_are_refused(embedded_server: EmbeddedServer, stream_name: str) -> None:
    async with gateway(embedded_server.address, stream_name, allow_hosts=["own.example"]) as (
        http,
        _,
    ):
        await put(http, "a")
        for host, status in (
            ("own.example:4437", 200),
            ("OWN.example.", 200),
            ("[::1]:4437", 200),
            ("evil.example", 421),
            ("localhost.evil.example:4437", 421),
            ("own.example:99999", 400),
        ):
            for path in (PATH, "/", "/v1/streams"):
                assert (await http.get(path, headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    "invalid",
    [
        {"allow_origins": ["shop.example"]},
        {"allow_origins": "*"},
        {"allow_hosts": ["own.example:80"]},
        {"allow_hosts": ["http://own.example"]},
    ],
)
def test_invalid_origins_and_hosts_are_refused(invalid: dict[str, Any]) -> None:
    with pytest.raises(LiftbridgeError, match=r"allow_"):
        GatewayOptions(**invalid)


@pytest.mark.parametrize(("limit", "count", "size"), [(None, 3_000, 1_000), (2_000, 1_500, 10)])
@pytest.mark.parametrize("auto_claim", [False, True])
async def test_a_producer_with_its_defaults_fits_the_gateway(
    embedded_server: EmbeddedServer,
    stream_name: str,
    limit: int | None,
    count: int,
    size: int,
    auto_claim: bool,
) -> None:
    options = {} if limit is None else {"max_body_bytes": limit}
    async with gateway(embedded_server.address, stream_name, **options) as (http, _):
        stream = DurableStream(f"http://localhost{PATH}", http=http)
        await stream.create(content_type="application/json")
        most = None if limit is None else 500
        async with IdempotentProducer(
            stream, "till", auto_claim=auto_claim, max_batch_items=most
        ) as producer:
            pending = [await producer.append_async(f"{n:>{size}}") for n in range(count)]
        results = [await each for each in pending]
        assert [each.offset for each in results] == sorted(each.offset for each in results)
        assert [int(item) async for item, _ in stream.read()] == list(range(count))


async def test_an_item_that_is_too_large_cannot_be_split(
    embedded_server: EmbeddedServer, stream_name: str
) -> None:
    async with gateway(embedded_server.address, stream_name, max_body_bytes=100) as (http, _):
        stream = DurableStream(f"http://localhost{PATH}", http=http)
        await stream.create(content_type="application/json")
        async with IdempotentProducer(stream, "till", linger=60) as producer:
            small = await producer.append_async("a")
            large = await producer.append_async("b" * 200)
            with pytest.raises(OutcomeUnknown, match="first items are stored") as raised:
                await producer.flush()
            assert isinstance(raised.value.__cause__, TooLarge)
            for each in (small, large):
                with pytest.raises(OutcomeUnknown):
                    await each
            await producer.restart()
        assert [item async for item, _ in stream.read()] == ["a"]


@pytest.mark.parametrize(
    "given", [{"Stream-Expires-At": "2020-01-01T00:00:00Z"}, {"Stream-TTL": "0"}]
)
async def test_a_stream_that_has_expired_cannot_be_created(
    embedded_server: EmbeddedServer, stream_name: str, given: dict[str, str]
) -> None:
    async with gateway(embedded_server.address, stream_name) as (http, _):
        assert (await http.put(PATH, headers=TEXT | given)).status_code == 400
        assert (await http.get(PATH)).status_code == 404
