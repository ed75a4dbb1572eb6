"""A reader that does not read stops the server, not this process's memory, and nobody else."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from liftbridge_aio import Client, StartAt
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND, Options, eventually, take, within

pytestmark = pytest.mark.real_time

KIB = 2**10
MIB = 2**20
LARGE = 64 * KIB
SOCKET_BUFFERS = 12 * MIB
"""The approximate kernel buffers of one connection, which are not the client's memory."""


async def test_what_is_not_read_stays_with_the_server(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name, partitions=2)
    count = 40 * MIB // LARGE
    for _ in range(4):
        await direct.publish_many(stream_name, [bytes(LARGE)] * (count // 4))
    async with Client(proxy.address, options=options(max_buffered_bytes=4 * MIB)) as client:
        before = proxy.statistics().bytes_to_clients
        async with client.subscribe(stream_name, partition=0, start=StartAt.earliest()) as slow:
            share = 2 * MIB
            # On the plain path half of it lies in the window, below the subscription.
            await eventually(lambda: slow.statistics().buffered_bytes >= share // 2 - LARGE)
            async with client.subscribe(stream_name, partition=1) as other:
                for number in range(20):
                    await within(BOUND, client.publish(stream_name, b"%d" % number, partition=1))
                    assert (await take(other, 1))[0].value == b"%d" % number
                    await within(BOUND, client.fetch_metadata())
                    await within(BOUND, client.fetch_partition_metadata(stream_name, 0))
                assert slow.statistics().buffered_bytes <= share + 2 * LARGE
                taken = proxy.statistics().bytes_to_clients - before
                assert taken <= 2 * share + SOCKET_BUFFERS
            messages = await take(slow, count)
            assert [message.offset for message in messages] == list(range(count))
            assert all(len(message.value) == LARGE for message in messages)


async def test_many_unread_subscriptions_share_one_budget(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str
) -> None:
    size, count, subscriptions, budget = KIB, 200, 200, 4 * MIB
    await direct.create_stream(stream_name)
    await direct.publish_many(stream_name, [bytes(size)] * count)
    async with (
        AsyncExitStack() as stack,
        Client(proxy.address, options=options(max_buffered_bytes=budget)) as client,
    ):
        before = proxy.statistics().bytes_to_clients
        unread = [
            await stack.enter_async_context(
                client.subscribe(stream_name, partition=0, start=StartAt.earliest(), timeout=20.0)
            )
            for _ in range(subscriptions)
        ]
        assert len(client.statistics().subscriptions) == subscriptions
        least = 3  # whole messages that fit into the 4 KiB that everybody may hold
        await eventually(lambda: all(each.statistics().buffered >= least for each in unread))
        assert proxy.statistics().bytes_to_clients - before < subscriptions * size * count / 2
        await within(BOUND, client.publish(stream_name, b"last"))
        await within(BOUND, client.fetch_metadata())
        for each in (unread[0], unread[-1]):
            messages = await take(each, count + 1)
            assert [message.offset for message in messages] == list(range(count + 1))
            assert messages[-1].value == b"last"
        # Those that came first filled larger shares; the others got little, but not nothing.
        held = sum(each.statistics().buffered_bytes for each in unread)
        assert held <= budget
    assert len(client.statistics().subscriptions) == 0
