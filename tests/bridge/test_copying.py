"""Bridges copy what is there and then what comes, and tell how far they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from liftbridge_aio import StreamOptions, nsq
from liftbridge_aio.bridge import ID_HEADER, SOURCE_HEADER, TIME_HEADER, Bridge
from liftbridge_aio.cli import main
from support.bridges import Ends, eventually
from support.clients import read_out
from support.servers.node import LiftbridgeNode
from support.servers.nsq_daemons import NsqDaemon
from support.streaming_clients import publish_many

EXACT = StreamOptions(optimistic_concurrency_control=True)


@pytest.fixture
def lookupd(nsq_programs: None, tmp_path: Path) -> Iterator[NsqDaemon]:  # noqa: ARG001
    daemon = NsqDaemon("nsqlookupd", tmp_path / "lookupd")
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def found_nsqd(lookupd: NsqDaemon, tmp_path: Path) -> Iterator[NsqDaemon]:
    """An nsqd that nsqlookupd knows."""
    daemon = NsqDaemon("nsqd", tmp_path / "nsqd", (f"-lookupd-tcp-address={lookupd.address}",))
    daemon.start()
    yield daemon
    daemon.stop()


async def test_a_channel_is_copied_to_a_stream_and_its_lag_is_known(ends: Ends) -> None:
    await publish_many(ends.stan, ends.name, 1000)
    progress = await Bridge(ends.stan_url, ends.lift_url, once=True).run()
    assert progress.copied == 1000
    bridge = Bridge(ends.stan_url, ends.lift_url)
    running = asyncio.create_task(bridge.run())
    await publish_many(ends.stan, ends.name, 10)
    await eventually(lambda: bridge.progress.copied == 10)
    assert bridge.progress.repeats == 0
    assert await bridge.measure_lag() == 0
    running.cancel()
    await asyncio.wait([running])
    assert not bridge.is_connected
    messages = await read_out(ends.lift, ends.name)
    assert [each.value for each in messages] == [b"%d" % n for n in (*range(1000), *range(10))]
    assert messages[999].headers[SOURCE_HEADER] == f"stan/test-cluster/{ends.name}".encode()
    assert messages[999].headers[ID_HEADER] == b"1000"
    assert int(messages[999].headers[TIME_HEADER]) <= messages[999].timestamp + 10**9


async def test_a_stream_is_copied_and_its_lag_is_known(ends: Ends) -> None:
    await ends.lift.create_stream(ends.name, partitions=2)
    for n in range(20):
        await ends.lift.publish(ends.name, b"%d" % n, partition=n % 2)
    bridge = Bridge(ends.lift_url, ends.nsq_url)
    running = asyncio.create_task(bridge.run())
    async with ends.arriving_in_topic() as values:
        await eventually(lambda: len(values) == 20)
    assert await bridge.measure_lag() == 0
    running.cancel()
    await asyncio.wait([running])
    assert sorted(values, key=int) == [b"%d" % n for n in range(20)]
    assert (await Bridge(ends.lift_url, ends.nsq_url, once=True).run()).copied == 0


async def test_nsqds_are_found_and_their_lag_is_known(
    ends: Ends, lookupd: NsqDaemon, found_nsqd: NsqDaemon
) -> None:
    async with nsq.Producer(found_nsqd.address) as producer:
        await producer.publish_many(ends.name, [b"%d" % n for n in range(20)])
        url = f"nsq+lookup://{lookupd.http_url.removeprefix('http://')}/{ends.name}/moving"
        bridge = Bridge(url, ends.lift_url, once=True, message_timeout=1)
        running = asyncio.create_task(bridge.run())
        await eventually(lambda: bridge.is_connected)
        assert await bridge.measure_lag() in range(21)
        await running
        assert bridge.progress.copied == 20
    assert sorted(await ends.in_stream(), key=int) == [b"%d" % n for n in range(20)]


async def test_a_topic_that_no_nsqd_has_is_reported_and_empty(
    ends: Ends, lookupd: NsqDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"nsq+lookup://{lookupd.http_url.removeprefix('http://')}/{ends.name}/moving"
    async with asyncio.timeout(30):
        progress = await Bridge(url, ends.lift_url, once=True, message_timeout=1).run()
    assert progress.copied == 0
    assert f"no nsqd that has the topic of nsq/{ends.name}" in caplog.text


async def test_what_nsqd_delivers_again_is_not_stored_again(ends: Ends) -> None:
    await ends.to_topic(b"bread")
    async with nsq.Consumer(ends.name, "moving", nsqd=[ends.nsqd.address]) as consumer:
        message = await anext(consumer)
        identity = f"{message.address}/{message.id.decode()}".encode()
        await message.requeue(0, backoff=False)
    await ends.lift.create_stream(ends.name)  # as if a bridge had been killed before FIN
    headers = {SOURCE_HEADER: f"nsq/{ends.name}".encode(), ID_HEADER: identity}
    await ends.lift.publish(ends.name, b"bread", headers=headers)
    progress = await Bridge(ends.nsq_url, ends.lift_url, once=True, message_timeout=1).run()
    assert (progress.copied, progress.repeats) == (0, 1)
    assert await ends.in_stream() == [b"bread"]


async def test_forwarded_headers_do_not_say_that_a_bridge_has_copied(ends: Ends) -> None:
    await publish_many(ends.stan, ends.name, 5)
    await Bridge(ends.stan_url, ends.lift_url, once=True).run()
    elsewhere = f"{ends.name}-elsewhere"
    await ends.lift.create_stream(elsewhere, options=EXACT)
    for each in await read_out(ends.lift, ends.name):
        await ends.lift.publish(elsewhere, each.value, headers=each.headers)
    url = ends.lift_url.replace(ends.name, elsewhere)
    assert (await Bridge(url, ends.stan_url, once=True).run()).copied == 5
    assert (await Bridge(ends.stan_url, url, once=True).run()).copied == 10
    assert (await Bridge(ends.lift_url, ends.stan_url, once=True).run()).copied == 0


def test_the_command_tells_what_it_has_done(
    real_server: LiftbridgeNode, nsqd: NsqDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"nsq://{nsqd.address}/empty/moving"
    target = f"liftbridge://{real_server.address}/from-an-empty-topic"
    short = ("--once", "--json", "--message-timeout", "1s", "--interval", "0.5s")
    assert main(["bridge", source, target, *short]) == 0
    out, errors = capsys.readouterr()
    assert json.loads(out)["copied"] == 0
    assert errors.count("0 copied, 0 a second") >= 2
    servers = ("--servers", real_server.address)
    assert main(["streams", "create", "with-an-empty-message", *servers]) == 0
    assert main(["publish", "with-an-empty-message", "", *servers]) == 0
    stream = f"liftbridge://{real_server.address}/with-an-empty-message"
    assert main(["bridge", stream, source, "--once"]) == 1
    assert "partition 0, offset 0 is refused" in capsys.readouterr().err
    assert main(["bridge", stream, source, "--once", "--skip-refused"]) == 0
    assert "0 copied, 0 a second, 1 skipped" in capsys.readouterr().err
    assert main(["bridge", source, source]) == 2
    assert main(["bridge", "nsq://127.0.0.1:1/a/b", target]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
