"""The other end is gone and no packet says so: only a health check shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from liftbridge_aio import (
    AckTimeout,
    Client,
    ClientOptions,
    ConnectionFailed,
    LiftbridgeError,
    PublishTimeout,
    RequestTimeout,
    StartAt,
    SubscriptionLost,
)
from liftbridge_aio.options import seconds
from liftbridge_aio.testing import FaultProxy
from support.faults import Options, Recorder, eventually, take
from support.marks import ON_EMBEDDED

NOTICED_WITHIN = 15.0


def test_by_default_it_is_noticed_within_15_seconds() -> None:
    options = ClientOptions()
    longest = seconds(options.health_interval) + seconds(options.health_timeout)
    assert longest < NOTICED_WITHIN


@pytest.fixture
async def watchful(proxy: FaultProxy, options: Options) -> AsyncIterator[Client]:
    """A client behind the proxy that asks early for signs of life."""
    chosen = options(health_interval=0.5, health_timeout=0.8, resubscribe_timeout=20.0)
    async with Client(proxy.address, options=chosen) as client:
        yield client


async def test_a_tailing_subscription_goes_on(
    proxy: FaultProxy, watchful: Client, direct: Client, stream_name: str, recorder: Recorder
) -> None:
    await watchful.create_stream(stream_name)
    async with watchful.subscribe(stream_name) as subscription:
        await direct.publish(stream_name, b"before")
        assert (await take(subscription, 1))[0].value == b"before"
        proxy.freeze()
        await direct.publish(stream_name, b"meanwhile")
        await eventually(
            lambda: "subscribe" in {event.purpose for event in recorder.down}, 0.5 + 0.3 + 1.0
        )
        proxy.thaw()
        await direct.publish(stream_name, b"after")
        messages = await take(subscription, 2, bound=4.0)
        assert [(each.offset, each.value) for each in messages] == [
            (1, b"meanwhile"),
            (2, b"after"),
        ]
        assert subscription.statistics().resubscriptions >= 1
    [lost] = [event for event in recorder.down if event.purpose == "subscribe"][:1]
    assert "health check failed" in lost.reason
    assert recorder.resumed
    assert recorder.resumed[-1].next_offset == 1
    assert recorder.resumed[-1].seconds > 0


async def test_a_link_that_comes_back_in_time_is_kept(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str, recorder: Recorder
) -> None:
    """Delayed messages arrive once, over the same connection."""
    await direct.create_stream(stream_name)
    async with (
        Client(proxy.address, options=options()) as client,
        client.subscribe(stream_name) as subscription,
    ):
        proxy.freeze()
        await direct.publish(stream_name, b"late")
        proxy.thaw()
        assert (await take(subscription, 1))[0].value == b"late"
        assert subscription.statistics().resubscriptions == 0
    assert not recorder.down


async def test_a_quiet_link_to_a_live_server_is_kept(
    proxy: FaultProxy, watchful: Client, recorder: Recorder, stream_name: str
) -> None:
    """Probes are answered, nothing is lost: seen by the bytes that go back and forth."""
    await watchful.create_stream(stream_name)
    async with watchful.subscribe(stream_name):
        seen = proxy.statistics().bytes_to_clients
        await eventually(lambda: proxy.statistics().bytes_to_clients > seen, bound=3.0)
        assert not recorder.down


async def test_frozen_for_good_the_subscription_ends_in_time(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str
) -> None:
    """Also where connections still open and handshakes hang."""
    await direct.create_stream(stream_name)
    await direct.publish(stream_name, b"only")
    chosen = options(health_interval=0.3, health_timeout=0.2, resubscribe_timeout=1.0)
    async with (
        Client(proxy.address, options=chosen) as client,
        client.subscribe(stream_name, start=StartAt.earliest()) as subscription,
    ):
        await take(subscription, 1)
        proxy.freeze()
        began = asyncio.get_running_loop().time()
        with pytest.raises(SubscriptionLost) as caught:
            await take(subscription, 1)
        assert asyncio.get_running_loop().time() - began < 0.5 + 1.0 + 6.0
        assert caught.value.last_offset == 0
        assert (caught.value.stream, caught.value.partition) == (stream_name, 0)


Call = Callable[[Client, str], Awaitable[object]]

CALLS: dict[str, Call] = {
    "ping": lambda client, _: client.ping(timeout=0.5),
    "fetch_metadata": lambda client, _: client.fetch_metadata(timeout=0.5),
    "fetch_partition_metadata": lambda client, stream: client.fetch_partition_metadata(
        stream, 0, timeout=0.5
    ),
    "create_stream": lambda client, stream: client.create_stream(stream + "-2", timeout=0.5),
    "delete_stream": lambda client, stream: client.delete_stream(stream, timeout=0.5),
    "pause_stream": lambda client, stream: client.pause_stream(stream, timeout=0.5),
    "resume_stream": lambda client, stream: client.resume_stream(stream, timeout=0.5),
    "set_stream_readonly": lambda client, stream: client.set_stream_readonly(stream, timeout=0.5),
    "set_cursor": lambda client, stream: client.set_cursor("reader", stream, 0, 1, timeout=0.5),
    "fetch_cursor": lambda client, stream: client.fetch_cursor("reader", stream, 0, timeout=0.5),
    "publish": lambda client, stream: client.publish(stream, b"", timeout=0.5),
    "publish by key": lambda client, stream: client.publish(stream, b"", key=b"k", timeout=0.5),
    "publish to an unknown stream by key": lambda client, _: client.publish(
        "unknown", b"", key=b"k", timeout=0.5
    ),
    "publish_to_subject": lambda client, stream: client.publish_to_subject(
        stream, b"", timeout=0.5
    ),
    "subscribe": lambda client, stream: client.subscribe(stream, timeout=0.5).__aenter__(),
    "wait_ready": lambda client, _: client.wait_ready(timeout=0.5),
}


@ON_EMBEDDED
@pytest.mark.parametrize("fault", ["frozen", "refused"])
async def test_every_call_ends_within_its_timeout(
    proxy: FaultProxy, client: Client, stream_name: str, fault: str
) -> None:
    """With a typed error, whether connections hang or are refused."""
    await client.create_stream(stream_name)
    if fault == "frozen":
        proxy.freeze()
    else:
        await proxy.refuse()
        await proxy.cut()
        await eventually(lambda: not client.statistics().connections)

    async def outcome(call: Call) -> str:
        began = asyncio.get_running_loop().time()
        try:
            return f"returned {await call(client, stream_name)!r}"
        except (RequestTimeout, ConnectionFailed, PublishTimeout, AckTimeout):
            took = asyncio.get_running_loop().time() - began
            return "ended in time" if took < 0.5 + 0.6 else f"ended after {took:.1f} s"
        except LiftbridgeError as error:
            return repr(error)

    outcomes = await asyncio.gather(*map(outcome, CALLS.values()))
    wrong = [pair for pair in zip(CALLS, outcomes, strict=True) if pair[1] != "ended in time"]
    assert not wrong


@ON_EMBEDDED
@pytest.mark.parametrize("fault", ["frozen", "refused"])
async def test_connecting_ends_within_its_timeout(
    proxy: FaultProxy, options: Options, fault: str
) -> None:
    if fault == "frozen":
        proxy.freeze()
    else:
        await proxy.refuse()
    client = Client(proxy.address, options=options(close_timeout=0.5))
    began = asyncio.get_running_loop().time()
    with pytest.raises((RequestTimeout, ConnectionFailed)):
        await client.connect(timeout=0.5)
    assert asyncio.get_running_loop().time() - began < 0.5 + 5.0
    assert "closed" in repr(client)
