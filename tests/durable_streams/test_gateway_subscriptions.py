"""Subscriptions of the gateway: wakes survive gateways, and one worker has each at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiohttp import web

from durable_streams.conftest import RunGateway
from support.servers.gateway import GatewayProcess
from support.servers.node import EmbeddedServer, Server

JSON: Final = {"Content-Type": "application/json"}
PULL: Final = {
    "type": "pull-wake",
    "pattern": "events/*",
    "wake_stream": "wakes",
    "lease_ttl_ms": 1000,
}


async def call(
    gateway: GatewayProcess, method: str, path: str, body: Any = None, token: str | None = None
) -> tuple[int, Any]:
    """Send a request, and return the status and what JSON came."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(gateway.url) as http,
        http.request(method, f"/v1/stream/{path}", json=body, headers=headers) as answer,
    ):
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, await answer.json(content_type=None) if is_json else None


async def claimed(gateway: GatewayProcess, worker: str) -> dict[str, Any]:
    """Claim the wake of `shop` as soon as that is possible."""
    async with asyncio.timeout(20):
        while True:
            status, found = await call(
                gateway, "POST", "__ds/subscriptions/shop/claim", {"worker": worker}
            )
            if status == 200:
                return dict(found)
            assert found["error"]["code"] in {"ALREADY_CLAIMED", "NO_PENDING_WORK"}
            await asyncio.sleep(0.05)


def answer_to(wake: dict[str, Any], *, done: bool = True) -> dict[str, Any]:
    """Return the answer that acknowledges all that a wake told of."""
    acks = [
        {"stream": each["path"], "offset": each["tail_offset"]}
        for each in wake["streams"]
        if each["has_pending"]
    ]
    return {
        "wake_id": wake["wake_id"],
        "generation": wake["generation"],
        "acks": acks,
        "done": done,
    }


async def test_of_workers_at_two_gateways_one_has_the_wake(
    run_gateway: RunGateway, server: Server
) -> None:
    one, two = await run_gateway(server.address), await run_gateway(server.address)
    text = {"Content-Type": "text/plain"}
    async with aiohttp.ClientSession(one.url) as http, http.put("/v1/stream/t", headers=text) as t:
        assert t.status == 201
    for wakes in (
        {"wake_stream": "missing"},
        {"wake_stream": "t"},
        {"pattern": "*"},
        {"streams": ["wakes"]},
    ):
        status, _ = await call(one, "PUT", "__ds/subscriptions/shop", PULL | wakes)
        assert status == 400
        await call(one, "PUT", "wakes", [])
    status, _ = await call(one, "PUT", "__ds/subscriptions/shop", PULL)
    assert status == 201
    assert (await call(two, "PUT", "events/a", [{"n": 1}]))[0] == 201
    wake = await claimed(one, "ann")
    status, busy = await call(two, "POST", "__ds/subscriptions/shop/claim", {"worker": "bob"})
    assert (status, busy["error"]["current_holder"]) == (409, "ann")
    wrong, _ = await call(
        two, "POST", "__ds/subscriptions/shop/ack", answer_to(wake), wake["wake_id"]
    )
    assert wrong == 401
    status, said = await call(
        two, "POST", "__ds/subscriptions/shop/ack", answer_to(wake), token=wake["token"]
    )
    assert (status, said) == (200, {"ok": True, "next_wake": False})


async def test_a_worker_that_dies_loses_the_wake_with_its_lease(
    run_gateway: RunGateway, embedded_server: EmbeddedServer
) -> None:
    one, two = [await run_gateway(embedded_server.address) for _ in range(2)]
    keys = [(await call(each, "GET", "__ds/jwks.json"))[1]["keys"] for each in (two, one)]
    assert len(keys[0]) == 2
    assert {key["kid"] for key in keys[0]} == {key["kid"] for key in keys[1]}
    assert not any("d" in key for key in keys[0])
    await call(one, "PUT", "wakes", [])
    await call(one, "PUT", "__ds/subscriptions/shop", PULL)
    await call(one, "PUT", "events/a", [{"n": 1}])
    lost = await claimed(one, "ann")
    await asyncio.to_thread(one.kill)
    wake = await claimed(two, "bob")
    assert wake["generation"] > lost["generation"]
    late = await call(
        two, "POST", "__ds/subscriptions/shop/ack", answer_to(lost), token=lost["token"]
    )
    assert (late[0], late[1]["error"]["code"]) == (409, "FENCED")
    status, _ = await call(
        two, "POST", "__ds/subscriptions/shop/ack", answer_to(wake), token=wake["token"]
    )
    assert status == 200
    _, shown = await call(two, "GET", "__ds/subscriptions/shop")
    assert shown["streams"][0]["acked_offset"] == wake["streams"][0]["tail_offset"]
    assert "token" not in str(shown)


@asynccontextmanager
async def receiver(
    handle: Callable[[dict[str, Any]], Awaitable[web.Response]],
) -> AsyncIterator[str]:
    """A receiver of webhooks on this machine."""

    async def receive(request: web.Request) -> web.Response:
        return await handle(await request.json())

    app = web.Application()
    app.router.add_post("/hook", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    finally:
        await runner.cleanup()


async def test_a_webhook_that_fails_is_sent_again_until_it_is_done(
    run_gateway: RunGateway, embedded_server: EmbeddedServer
) -> None:
    gateway = await run_gateway(embedded_server.address)
    for method, path in (
        ("GET", "__ds/subscriptions/none"),
        ("POST", "__ds/subscriptions/none/claim"),
        ("PUT", "__ds/orders"),
        ("PUT", "__ds"),
    ):
        assert (await call(gateway, method, path, {"worker": "ann"}))[0] == 404
    assert (await call(gateway, "PUT", "__dsorders", {"n": 1}))[0] == 201
    seen: list[dict[str, Any]] = []
    done = asyncio.Event()

    async def handle(wake: dict[str, Any]) -> web.Response:
        seen.append(wake)
        if len(seen) < 3:
            return web.Response(status=500)
        done.set()
        return web.json_response({"done": True})

    async with receiver(handle) as url, asyncio.timeout(30):
        hook = {"type": "webhook", "pattern": "events/*", "webhook": {"url": url}}
        assert (await call(gateway, "PUT", "__ds/subscriptions/shop", hook))[0] == 201
        await call(gateway, "PUT", "events/a", [{"n": 1}])
        await done.wait()
        [tail] = [each["tail_offset"] for each in seen[-1]["streams"]]
        acked = ""
        while acked != tail:
            _, shown = await call(gateway, "GET", "__ds/subscriptions/shop")
            acked = shown["streams"][0]["acked_offset"]
    generations = [wake["generation"] for wake in seen]
    assert generations == sorted(set(generations))
