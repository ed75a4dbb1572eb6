"""The time for an ack runs from the write, so little is written ahead of the acks."""

from __future__ import annotations

import pytest

from liftbridge_aio import AckTimeout, Client
from liftbridge_aio._publish.session import PublishSession
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND, Options, eventually, in_flight, outcomes_of, steps, within

pytestmark = pytest.mark.real_time

AHEAD = 2048
WINDOW = 5000


def session_of(client: Client) -> PublishSession:
    assert client._parts is not None
    (session,) = client._parts.publisher._dispatcher.sessions
    return session


async def test_a_server_that_stops_to_answer_is_not_written_to_without_end(
    proxy: FaultProxy, client: Client, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    await client.publish(stream_name, b"first")
    proxy.freeze()
    futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(WINDOW)]
    session = session_of(client)
    # A real server gives credit for some hundred of them only.
    await eventually(lambda: session.in_flight >= 500)
    await steps(200)
    assert session.in_flight <= AHEAD
    assert len(session.outbox) >= WINDOW - AHEAD
    assert in_flight(client) == WINDOW
    proxy.thaw()
    assert len((await outcomes_of(futures, BOUND)).acked) == WINDOW


async def test_a_publish_without_ack_and_credit_is_not_counted_as_answered(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    async with Client(proxy.address, options=options(ack_timeout=0.2)) as client:
        await client.publish(stream_name, b"first", ack_timeout=BOUND)
        proxy.freeze()

        async def publish_for_ever() -> None:
            while True:
                await client.publish_unacked(stream_name, bytes(500_000))

        with pytest.raises(AckTimeout):
            await within(BOUND, publish_for_ever())
        assert session_of(client).in_flight == 0
        proxy.thaw()
