"""A client over TLS: what it can do, and the data lane that it does it with."""

from __future__ import annotations

from liftbridge_aio import TLS, Client, ClientOptions, StartAt
from liftbridge_aio.net.broker_connection import Purpose
from support.servers.node import Server


async def test_everything_a_client_does_goes_over_tls(tls_server: Server, admin_tls: TLS) -> None:
    async with Client(tls_server.address, options=ClientOptions(tls=admin_tls)) as client:
        values = [b"%d" % number for number in range(500)]
        acks = await client.publish_many("open", values)
        first, last = acks[0].offset, acks[-1].offset
        async with client.subscribe("open", start=StartAt.offset(first)) as reading:
            assert on_the_lane(client) == {Purpose.PUBLISH, Purpose.SUBSCRIBE}
            read = [(await anext(reading)).value for _ in values]
        assert read == values
        await client.set_cursor("tls", "open", 0, last)
        assert await client.fetch_cursor("tls", "open", 0) == last
        assert await client.ping() < 5


def on_the_lane(client: Client) -> set[Purpose]:
    """The purposes of the links of which calls are on the data lane."""
    parts = client._parts
    assert parts is not None
    protocols = {
        link.purpose: link._channel.first_protocol for link in parts.network.pool.connections
    }
    return {purpose for purpose, protocol in protocols.items() if protocol and protocol._users}
