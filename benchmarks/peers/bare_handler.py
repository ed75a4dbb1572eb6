"""A bare aiohttp handler that publishes what it is sent, as the gateway does, and no more.

Arguments: address of Liftbridge, name of a stream that is created, port.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from liftbridge_aio import AckPolicy, Client, StreamOptions


async def serve(server: str, stream: str, port: int) -> None:
    """Serve until killed: each POST is published at the offset that follows the one before."""
    expected = 0
    lock = asyncio.Lock()
    async with Client(server) as client:
        await client.create_stream(
            stream, options=StreamOptions(optimistic_concurrency_control=True)
        )

        async def post(request: web.Request) -> web.Response:
            nonlocal expected
            body = await request.read()
            async with lock:
                ack = await client.publish(
                    stream, body, ack_policy=AckPolicy.ALL, expected_offset=expected
                )
                expected = ack.offset + 1
            return web.Response(status=204)

        app = web.Application()
        app.router.add_post("/v1/stream/{name}", post)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
