"""A publish session fails by a fault of the client's own: nothing hangs, and publishing goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from liftbridge_aio import Ack, Client, ClientOptions, PublishOutcomeUnknown
from liftbridge_aio._publish import session as publish_session
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.wire.codec import PublishRefusal, decode_publish_responses
from support.faults import BOUND, QUICK, eventually, in_flight, nothing_left_behind, within

OPTIONS = ClientOptions(backoff=QUICK)


async def test_an_unforeseen_exception(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any will do; here one comes from where acks are read."""
    faults = ["a fault"]

    def faulty(datas: Sequence[bytes]) -> Sequence[Ack | PublishRefusal]:
        if faults:
            raise LookupError(faults.pop())
        return decode_publish_responses(datas)

    async with EmbeddedBroker() as broker, Client(broker.address, options=OPTIONS) as client:
        await client.create_stream("s")
        monkeypatch.setattr(publish_session, "decode_publish_responses", faulty)
        with pytest.raises(PublishOutcomeUnknown, match="a fault"):
            await within(BOUND, client.publish("s", b"lost"))
        ack = await within(BOUND, client.publish("s", b"after"))
        assert ack.offset == 1
    assert "a fault" in caplog.text


@pytest.mark.parametrize("victim", ["publish-session", "pump"])
async def test_a_task_that_is_cancelled_from_outside(victim: str, data_path: str) -> None:
    """A task that waits on a broken call is cancelled by grpclib; its session must survive."""
    if data_path == "lane" and victim == "pump":
        victim = "publish-session"  # there is no other
    async with (
        nothing_left_behind(),
        EmbeddedBroker() as broker,
        Client(broker.address, options=OPTIONS) as client,
    ):
        await client.create_stream("s")
        await client.publish("s", b"before")
        lost = broker.faults.drop("PublishAsync", at="reply")
        future = await client.publish_async("s", b"on its way")
        await client.publish_unacked("s", b"fire and forget")
        await lost.wait()
        for task in asyncio.all_tasks():
            if victim in task.get_name():
                task.cancel()
        with pytest.raises(PublishOutcomeUnknown):
            await within(BOUND, future)
        await eventually(lambda: not in_flight(client))
        ack = await within(BOUND, client.publish("s", b"after"))
        assert ack.offset > 0
        with pytest.raises(PublishOutcomeUnknown, match="ack policy NONE"):
            await within(BOUND, client.flush())
