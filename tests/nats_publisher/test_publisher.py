"""Publishing over a real NATS server, to streams that the tests play themselves."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient

from liftbridge_aio import (
    AckPolicy,
    AckTimeout,
    DuplicateCorrelationId,
    EncryptionFailed,
    IncorrectOffset,
    InvalidRequest,
    LiftbridgeError,
    MessageTooLarge,
    PartitionInfo,
    PublishOutcomeUnknown,
    PublishRefused,
    PublishTimeout,
    StreamInfo,
    round_robin,
)
from liftbridge_aio.model import AckError
from liftbridge_aio.nats import NatsPublisher, NatsPublisherOptions, encode_message
from support.nats_streams import BOUND, Streams


def options(**fields: Any) -> NatsPublisherOptions:
    return NatsPublisherOptions(**{"close_timeout": 0.2, **fields})


async def test_an_ack_comes_back_and_is_counted(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        ack = await publisher.publish(
            stream_name, b"value", b"key", {"colour": b"red"}, correlation_id="mine"
        )
        assert (ack.stream, ack.offset, ack.correlation_id) == ("orders", 0, "mine")
        assert ack.msg_subject == stream_name
        statistics = publisher.statistics()
    [message] = stream.messages
    assert (message.value, message.key, message.headers) == (b"value", b"key", {"colour": b"red"})
    assert message.expected_offset is None
    assert (statistics.sent, statistics.acked, statistics.in_flight) == (1, 1, 0)


async def test_messages_go_out_in_the_order_of_the_calls(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url, options=options(max_in_flight=50)) as publisher:
        futures = [await publisher.submit(stream_name, b"%d" % n) for n in range(1000)]
        acks = await asyncio.gather(*futures)
        assert publisher.statistics().acked == 1000
    assert [message.value for message in stream.messages] == [b"%d" % n for n in range(1000)]
    assert [ack.offset for ack in acks] == list(range(1000))


async def test_a_stream_is_reached_by_its_partitions(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    made = [
        await streams.make("orders", subject)
        for subject in (stream_name, f"{stream_name}.1", f"{stream_name}.2")
    ]
    info = StreamInfo("orders", stream_name, {n: PartitionInfo(n, "a") for n in range(3)})
    async with NatsPublisher(nats_url, options=options(partitioner=round_robin())) as publisher:
        for _ in range(3):
            await publisher.publish(info, b"in turn")
        await publisher.publish(info, b"named", partition=2)
    assert [[message.value for message in stream.messages] for stream in made] == [
        [b"in turn"],
        [b"in turn"],
        [b"in turn", b"named"],
    ]


async def test_a_full_window_makes_publishers_wait(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url, options=options(max_in_flight=2)) as publisher:
        first = [
            await publisher.submit(stream_name, b"1"),
            await publisher.submit(stream_name, b"2"),
        ]
        third = asyncio.create_task(publisher.submit(stream_name, b"3"))
        await stream.have(2)
        await asyncio.sleep(0)
        statistics = publisher.statistics()
        assert (statistics.in_flight, statistics.waiting, len(stream.raw)) == (2, 1, 2)
        assert not third.done()
        await stream.speak()
        await asyncio.gather(*first)
        assert (await (await third)).offset == 2


async def test_no_room_in_time_is_said(nats_url: str, streams: Streams, stream_name: str) -> None:
    await streams.make("orders", stream_name, silent=True)
    few = options(max_in_flight=1, publish_timeout=0.05)
    async with NatsPublisher(nats_url, options=few) as publisher:
        unanswered = await publisher.submit(stream_name, b"1")
        with pytest.raises(PublishTimeout, match="no room in the window"):
            await publisher.submit(stream_name, b"2")
    with pytest.raises(PublishOutcomeUnknown):
        await unanswered


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (AckError.UNKNOWN, PublishRefused),
        (AckError.INCORRECT_OFFSET, IncorrectOffset),
        (AckError.TOO_LARGE, MessageTooLarge),
        (AckError.ENCRYPTION, EncryptionFailed),
    ],
)
async def test_an_ack_that_says_no_is_an_error(
    nats_url: str,
    streams: Streams,
    stream_name: str,
    refusal: AckError,
    error: type[LiftbridgeError],
) -> None:
    await streams.make("orders", stream_name, refuse=refusal)
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(error, match=refusal.name) as raised:
            await publisher.publish(stream_name, b"")
        assert raised.value.stream == "orders"
        statistics = publisher.statistics()
        assert (statistics.nacked, statistics.acked, statistics.in_flight) == (1, 0, 0)


async def test_without_an_ack_the_outcome_is_unknown_and_a_late_one_is_counted(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(AckTimeout, match=r"within 0\.05 s.*look for it") as raised:
            await publisher.publish(stream_name, b"", ack_timeout=0.05)
        assert isinstance(raised.value, PublishOutcomeUnknown)
        assert raised.value.correlation_id
        assert "retry=" not in str(raised.value)  # which there is not over NATS
        await stream.speak()
        # Acks come in order, so this one comes after the late one.
        await publisher.publish(stream_name, b"")
        statistics = publisher.statistics()
        assert (statistics.timed_out, statistics.late, statistics.acked) == (1, 1, 1)
        assert statistics.in_flight == 0


async def test_what_comes_to_the_inbox_and_is_no_ack_does_no_harm(
    nats_url: str, streams: Streams, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        future = await publisher.submit(stream_name, b"")
        await stream.have(1)
        inbox = stream.messages[0].ack_inbox
        for garbage in (
            b"",
            b"garbage",
            encode_message(b"no ack"),
            b"\xb9\x0e\x43\xb4\0\x08\0\x01\xff",
        ):
            await stream.connection.publish(inbox, garbage)
        await stream.speak()
        assert (await future).offset == 0
        assert publisher.statistics().malformed == 4
    assert "no ack" in caplog.text


async def test_cancelling_takes_back_what_is_not_handed_over_yet(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        taken_back = await publisher.submit(stream_name, b"taken back")
        kept = await publisher.submit(stream_name, b"kept")
        taken_back.cancel()
        assert (await kept).offset == 0
        assert publisher.statistics().in_flight == 0
    assert [message.value for message in stream.messages] == [b"kept"]


async def test_cancelling_later_only_abandons_the_wait(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        waiting = asyncio.create_task(publisher.publish(stream_name, b""))
        await stream.have(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert publisher.statistics().in_flight == 1
        await stream.speak()
        await publisher.publish(stream_name, b"")
        assert publisher.statistics().acked == 2
        assert publisher.statistics().in_flight == 0


async def test_cancelling_the_wait_for_room_leaves_nothing_behind(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url, options=options(max_in_flight=1)) as publisher:
        first = await publisher.submit(stream_name, b"1")
        second = asyncio.create_task(publisher.submit(stream_name, b"2"))
        await stream.have(1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await stream.speak()
        await first
        await publisher.publish(stream_name, b"3")
        assert publisher.statistics().waiting == 0
    assert [message.value for message in stream.messages] == [b"1", b"3"]


async def test_an_id_in_flight_is_not_used_twice(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    async with NatsPublisher(nats_url) as publisher:
        first = await publisher.submit(stream_name, b"", correlation_id="id")
        with pytest.raises(DuplicateCorrelationId):
            await publisher.submit(stream_name, b"", correlation_id="id")
        await stream.have(1)
        await stream.speak()
        await first
        # Another stream's ack for the first message would settle the second one.
        with pytest.raises(DuplicateCorrelationId, match="was used before"):
            await publisher.publish(stream_name, b"", correlation_id="id")
        second = await publisher.publish(stream_name, b"", correlation_id="other")
        assert second.correlation_id == "other"
        assert publisher.statistics().in_flight == 0


async def test_what_is_too_large_is_not_sent(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    small = options(max_message_bytes=2000)
    async with NatsPublisher(nats_url, options=small) as publisher:
        with pytest.raises(MessageTooLarge, match="max_message_bytes"):
            await publisher.publish(stream_name, b"x" * 2000)
        with pytest.raises(MessageTooLarge, match="max_message_bytes"):
            await publisher.publish_plain(stream_name, b"x" * 2000)
        assert (await publisher.publish(stream_name, b"x" * 1000)).offset == 0
    large = options(max_message_bytes=2**30)
    async with NatsPublisher(nats_url, options=large) as publisher:
        with pytest.raises(MessageTooLarge, match="max_payload of the NATS server"):
            await publisher.publish(stream_name, b"x" * 2**20)
        assert publisher.statistics().sent == 0
    assert len(stream.messages) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"headers": {"subject": b""}},
        {"headers": {"reply": b""}},
        {"key": "text"},
        {"expected_offset": -1},
        {"expected_offset": 1, "ack_policy": AckPolicy.NONE},
        {"correlation_id": ""},
        {"correlation_id": 1},
        {"ack_policy": 7},
        {"ack_timeout": -1},
        {"partition": 1},
    ],
)
async def test_what_makes_no_sense_is_refused(nats_url: str, arguments: dict[str, Any]) -> None:
    async with NatsPublisher(nats_url) as publisher:
        with pytest.raises(InvalidRequest):
            await publisher.publish("subject", b"", **arguments)
        assert publisher.statistics().sent == 0


async def test_an_expected_offset_and_a_checksum_go_along(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url, options=options(crc=True)) as publisher:
        await publisher.publish(stream_name, b"value", expected_offset=7)
    assert stream.messages[0].expected_offset == 7
    assert stream.raw[0][5:7] == b"\x0c\x01"  # a header of 12 bytes, with the flag


async def test_a_plain_message_is_the_bytes_alone(
    nats_url: str, streams: Streams, stream_name: str
) -> None:
    stream = await streams.make("orders", stream_name)
    async with NatsPublisher(nats_url) as publisher:
        await publisher.publish_plain(stream_name, b"plain", reply="some.reply")
        await publisher.publish_plain(stream_name, b"")
        await publisher.flush()
        await stream.have(2)
        for subject, value, reply in (
            (stream_name, encode_message(b"an envelope"), ""),
            ("not.*", b"", ""),
            (stream_name, "text", ""),
            (stream_name, b"", "no reply"),
        ):
            wrong: Any = value
            with pytest.raises(InvalidRequest):
                await publisher.publish_plain(subject, wrong, reply=reply)
        assert publisher.statistics().sent == 2
    assert (stream.plain, stream.replies) == ([b"plain", b""], ["some.reply", ""])


async def test_publishers_share_a_connection_without_taking_each_others_acks(
    connection: NatsClient, streams: Streams, stream_name: str
) -> None:
    await streams.make("orders", stream_name)
    async with NatsPublisher(connection) as one, NatsPublisher(connection) as two:
        await asyncio.gather(
            *(publisher.publish(stream_name, b"") for publisher in (one, two) for _ in range(100))
        )
        for publisher in (one, two):
            statistics = publisher.statistics()
            assert (statistics.acked, statistics.unmatched) == (100, 0)


async def test_closing_waits_for_acks(nats_url: str, streams: Streams, stream_name: str) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    publisher = NatsPublisher(nats_url, options=options(close_timeout=BOUND))
    await publisher.open()
    future = await publisher.submit(stream_name, b"")
    closing = asyncio.create_task(publisher.aclose())
    await stream.have(1)
    assert not closing.done()
    await stream.speak()
    await closing
    assert future.done()
    assert (await future) is not None


async def test_what_is_unsettled_at_the_end_fails(
    nats_url: str, streams: Streams, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await streams.make("orders", stream_name, silent=True)
    caplog.set_level(logging.WARNING)
    async with NatsPublisher(nats_url, options=options(close_timeout=0.1)) as publisher:
        future = await publisher.submit(stream_name, b"")
        await stream.have(1)
    with pytest.raises(PublishOutcomeUnknown, match="closed before the ack"):
        await future
    assert "closing with 1 publishes unsettled" in caplog.text
