from __future__ import annotations

from liftbridge_aio import stan
from support.servers.streaming import CLUSTER, StreamingServer


async def test_basic(server: StreamingServer, channel: str, client_id: str) -> None:
    async with stan.Client(server.url, cluster=CLUSTER, client_id=client_id) as client:
        for n in range(10):
            await client.publish(channel, b"%d" % n)
        got = []
        async with client.subscribe(
            channel, start=stan.StartAt.earliest(), manual_ack=True
        ) as subscription:
            async for message in subscription:
                got.append(message.data)
                await message.ack()
                if len(got) == 10:
                    break
        assert got == [b"%d" % n for n in range(10)]
