"""A message to a subject that several streams have (W12)."""

from __future__ import annotations

from typing import Any

import pytest

from liftbridge_aio import (
    Ack,
    AckPolicy,
    AckTimeout,
    EncryptionFailed,
    InvalidRequest,
    MessageTooLarge,
    PublishManyFailed,
)
from liftbridge_aio.model import AckError
from liftbridge_aio.nats import NatsPublisher, NobodyListens
from support.nats_streams import Streams


async def test_of_several_streams_the_named_one_counts(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    await streams.make("audit", stream_name, refuse=AckError.ENCRYPTION)
    await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        for _ in range(20):
            ack = await publisher.publish(stream_name, b"", stream="orders")
            assert ack.stream == "orders"
        with pytest.raises(EncryptionFailed):
            await publisher.publish(stream_name, b"", stream="audit")
        assert publisher.statistics().unmatched >= 19


async def test_the_acks_of_all_streams_can_be_had(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    for name in ("audit", "orders", "third"):
        await streams.make(name, stream_name)
    async with NatsPublisher(nats_url) as publisher:
        named = await publisher.publish_to_all(stream_name, b"", ["orders", "audit"])
        counted = await publisher.publish_to_all(stream_name, b"", 3)
    assert [ack.stream for ack in named] == ["orders", "audit"]
    assert {ack.stream for ack in counted} == {"audit", "orders", "third"}


async def test_of_all_streams_each_outcome_is_told(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    await streams.make("orders", stream_name)
    await streams.make("full", stream_name, refuse=AckError.TOO_LARGE)
    await streams.make("silent", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(PublishManyFailed, match="2 of 3 streams") as raised:
            await publisher.publish_to_all(
                stream_name, b"", ["silent", "full", "orders"], ack_timeout=0.2
            )
        silent, full, orders = raised.value.outcomes
        assert isinstance(silent, AckTimeout)
        assert "'orders'" in str(silent)
        assert isinstance(full, MessageTooLarge)
        assert isinstance(orders, Ack)
        with pytest.raises(NobodyListens):
            await publisher.publish_to_all("nobody.there", b"", 2)


@pytest.mark.parametrize("streams_wanted", ["orders", [], ["a", "a"], 0, True, None, 1.5, ["a", 1]])
async def test_streams_that_make_no_sense_are_refused(nats_url: str, streams_wanted: Any) -> None:
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(InvalidRequest):
            await publisher.publish_to_all("subject", b"", streams_wanted)
        with pytest.raises(InvalidRequest):
            await publisher.publish_to_all("subject", b"", 2, ack_policy=AckPolicy.NONE)
