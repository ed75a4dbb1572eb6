"""A consumer on a real nsqd."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from liftbridge_aio import nsq
from liftbridge_aio.errors import CallbackCancelled, InvalidRequest
from liftbridge_aio.nsq.errors import (
    AlreadyAnswered,
    Closed,
    NotConnected,
    NotInFlight,
)
from liftbridge_aio.testing import Direction, FaultProxy
from nsq_client.conftest import StartDaemon
from support.faults import await_what_others_cancel, eventually
from support.servers.nsq_daemons import NsqDaemon

QUICK = nsq.ConsumerOptions(
    requeue_delay=0, max_backoff=0, reconnect_wait=0.1, output_buffer_timeout=0.025
)


async def publish(nsqd: NsqDaemon, topic: str, *bodies: bytes) -> None:
    async with nsq.Producer(nsqd.address) as producer:
        await producer.publish_many(topic, bodies)


def consumer(nsqd: NsqDaemon, topic: str, **arguments: object) -> nsq.Consumer:
    given = {"max_in_flight": 10, "options": QUICK, **arguments}
    return nsq.Consumer(topic, "test", nsqd=[nsqd.address], **given)  # type: ignore[arg-type]


async def test_a_message_tells_what_nsqd_says(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"3 rolls")
    async with consumer(nsqd, topic) as orders:
        message = await anext(orders)
        assert (message.body, message.attempts, message.address) == (b"3 rolls", 1, nsqd.address)
        assert len(message.id) == 16
        assert message.timestamp > 0
        await message.finish()
        assert message.is_answered
        assert orders.statistics().finished == 1


async def test_a_finished_message_is_gone_and_an_unanswered_one_comes_back(
    nsqd: NsqDaemon, topic: str
) -> None:
    await publish(nsqd, topic, b"one", b"two")
    async with consumer(nsqd, topic) as orders:
        first, second = await anext(orders), await anext(orders)
        await first.finish()
    async with consumer(nsqd, topic) as orders:
        again = await anext(orders)
        assert (again.body, again.attempts, again.id) == (second.body, 2, second.id)
        await again.finish()


async def test_a_requeued_message_comes_again(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"one")
    async with consumer(nsqd, topic) as orders:
        for attempt in (1, 2, 3):
            message = await anext(orders)
            assert message.attempts == attempt
            await message.requeue(0)
        message = await anext(orders)
        await message.finish()


async def test_a_message_is_answered_once(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"one")
    async with consumer(nsqd, topic) as orders:
        message = await anext(orders)
        await message.finish()
        for call in (message.finish, message.requeue, message.touch):
            with pytest.raises(AlreadyAnswered, match="was answered before"):
                await call()


async def test_touch_gives_more_time(start: StartDaemon, topic: str) -> None:
    daemon = start("nsqd", "-msg-timeout=1s")
    await publish(daemon, topic, b"one")
    async with consumer(daemon, topic) as orders:
        message = await anext(orders)
        for _ in range(4):
            await asyncio.sleep(0.5)
            await message.touch()
        await message.finish()
        stats = orders.statistics()
    assert (stats.received, stats.refused) == (1, 0)


async def test_a_late_answer_is_refused_and_reported(
    start: StartDaemon, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = start("nsqd", "-msg-timeout=1s")
    await publish(daemon, topic, b"one")
    async with consumer(daemon, topic) as orders:
        late = await anext(orders)
        again = await anext(orders)
        assert (again.id, again.attempts) == (late.id, 2)
        await again.finish()
        await late.finish()
        await eventually(lambda: orders.statistics().refused == 1)
    assert "E_FIN_FAILED" in caplog.text


async def test_a_message_that_expired_unseen_is_not_handed_out(
    start: StartDaemon, topic: str
) -> None:
    daemon = start("nsqd", "-msg-timeout=1s")
    await publish(daemon, topic, b"one", b"two")
    async with consumer(daemon, topic) as orders:
        first = await anext(orders)
        await first.finish()
        await eventually(lambda: orders.statistics().received == 3)
        second = await anext(orders)
        assert (second.body, second.attempts) == (b"two", 2)
        await second.finish()
        stats = orders.statistics()
    assert (stats.expired, stats.refused) == (1, 0)


async def test_a_message_is_given_up_once_after_max_attempts(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"poison", b"fine")
    given_up: list[bytes] = []
    attempts: list[bytes] = []

    async def handle(message: nsq.Message) -> None:
        attempts.append(message.body)
        if message.body == b"poison":
            raise ValueError(message.body)

    async def give_up(message: nsq.Message) -> None:
        given_up.append(message.body)
        done.set()

    done = asyncio.Event()
    options = nsq.ConsumerOptions(max_attempts=3, requeue_delay=0, max_backoff=0)
    async with consumer(nsqd, topic, options=options, on_giving_up=give_up) as orders:
        running = asyncio.create_task(orders.run(handle))
        await done.wait()
        await orders.drain()
        await running
        assert orders.statistics().given_up == 1
    assert given_up == [b"poison"]
    assert sorted(attempts) == [b"fine", b"poison", b"poison", b"poison"]


async def test_max_in_flight_holds_over_two_nsqds(start: StartDaemon, topic: str) -> None:
    daemons = [start(), start()]
    for daemon in daemons:
        await publish(daemon, topic, *[b"%d" % number for number in range(50)])
    addresses = [daemon.address for daemon in daemons]
    async with nsq.Consumer(topic, "test", nsqd=addresses, max_in_flight=6) as orders:
        held: list[nsq.Message] = []
        handled = 0
        while handled < 100:
            held.append(await anext(orders))
            assert orders.statistics().in_flight <= 6
            if orders.is_starved or handled + len(held) == 100:
                for message in held:
                    await message.finish()
                handled += len(held)
                held.clear()
        assert {each.address for each in orders.statistics().connections} == set(addresses)


async def test_a_message_in_flight_counts_when_its_connection_passes_on(
    start: StartDaemon, topic: str
) -> None:
    daemons = [start(), start()]
    for daemon in daemons:
        await publish(daemon, topic, b"1", b"2")
    options = nsq.ConsumerOptions(idle_timeout=0.1, redistribute_interval=0.05)
    addresses = [daemon.address for daemon in daemons]
    async with nsq.Consumer(topic, "test", nsqd=addresses, options=options) as orders:
        for _ in range(4):
            message = await anext(orders)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(orders)
            await message.finish()


async def test_batches_hold_what_is_there(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, *[b"%d" % number for number in range(25)])
    seen: list[bytes] = []
    async with consumer(nsqd, topic) as orders:
        async for batch in orders.batches(8):
            assert 1 <= len(batch) <= 8
            for message in batch:
                seen.append(message.body)
                await message.finish()
            if len(seen) == 25:
                break
    assert len(set(seen)) == 25


async def test_several_tasks_share_the_messages(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, *[b"%d" % number for number in range(200)])
    seen: list[bytes] = []

    async def work(orders: nsq.Consumer) -> None:
        async for message in orders:
            seen.append(message.body)
            await message.finish()
            if len(seen) == 200:
                done.set()

    done = asyncio.Event()
    async with consumer(nsqd, topic) as orders, asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(work(orders)) for _ in range(5)]
        await done.wait()
        workers[0].cancel()
        await orders.drain()
    assert len(set(seen)) == 200


async def test_a_cancelled_wait_loses_no_message(nsqd: NsqDaemon, topic: str) -> None:
    async with consumer(nsqd, topic) as orders:
        for number in range(20):
            waiting = asyncio.create_task(orders.__anext__())
            other = asyncio.create_task(orders.__anext__())
            await asyncio.sleep(0)
            await publish(nsqd, topic, b"%d" % number)
            waiting.cancel()
            await asyncio.wait({waiting})
            if waiting.cancelled():
                message = await other
            else:
                message = waiting.result()
                other.cancel()
                await asyncio.wait({other})
            assert message.body == b"%d" % number
            await message.finish()


async def test_pause_and_resume(nsqd: NsqDaemon, topic: str) -> None:
    async with consumer(nsqd, topic) as orders:
        orders.pause()
        await publish(nsqd, topic, b"one")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(orders)
        orders.resume()
        message = await anext(orders)
        await message.finish()
        orders.set_max_in_flight(3)
        assert sum(each.rdy for each in orders.statistics().connections) <= 3


async def test_closing_requeues_without_delay(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, *[b"%d" % number for number in range(10)])
    patient = replace(QUICK, msg_timeout=6)
    async with consumer(nsqd, topic, options=patient) as orders:
        await anext(orders)
        await anext(orders)
    seen: set[bytes] = set()
    async with asyncio.timeout(5), consumer(nsqd, topic) as orders:  # before msg_timeout
        while len(seen) < 10:
            message = await anext(orders)
            seen.add(message.body)
            await message.finish()


async def test_drain_waits_for_what_was_handed_out(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"one", b"two")
    async with consumer(nsqd, topic) as orders:
        message = await anext(orders)
        draining = asyncio.create_task(orders.drain())
        with pytest.raises(StopAsyncIteration):
            await anext(orders)
        assert not draining.done()
        await message.finish()
        await draining
    async with consumer(nsqd, topic) as orders:
        message = await anext(orders)
        assert message.body == b"two"
        await message.finish()


async def test_drain_waits_no_longer_than_nsqd(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"one", b"two")
    async with consumer(nsqd, topic) as orders:
        await anext(orders)
        touched = await anext(orders)
        draining = asyncio.create_task(orders.drain())
        await asyncio.sleep(1)  # half of nsqd's timeout
        await touched.touch()
        before = asyncio.get_running_loop().time()
        async with asyncio.timeout(5):
            await draining
        assert asyncio.get_running_loop().time() - before > 1.5


async def test_run_handles_concurrently_and_ends_on_sigterm(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, *[b"%d" % number for number in range(40)])
    running = most = 0
    handled: list[bytes] = []

    async def handle(message: nsq.Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        handled.append(message.body)
        if len(handled) == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    async with consumer(nsqd, topic) as orders:
        await orders.run(handle, concurrency=4)
        assert orders.statistics().in_flight == 0
    assert most == 4
    assert 20 <= len(handled) < 40
    async with consumer(nsqd, topic) as orders:
        while len(handled) < 40:
            message = await anext(orders)
            handled.append(message.body)
            await message.finish()
    assert len(set(handled)) == 40


async def test_cancelling_run_leaves_messages_to_others(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"one")
    started = asyncio.Event()

    async def handle(_: nsq.Message) -> None:
        started.set()
        await asyncio.Event().wait()

    async with consumer(nsqd, topic) as orders:
        running = asyncio.create_task(orders.run(handle))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    async with consumer(nsqd, topic) as orders:
        message = await anext(orders)
        assert message.attempts == 2
        await message.finish()


async def test_a_restarted_nsqd_is_consumed_again(start: StartDaemon, topic: str) -> None:
    daemon = start()
    await publish(daemon, topic, b"one")
    async with consumer(daemon, topic) as orders:
        lost = await anext(orders)
        daemon.kill()
        await eventually(lambda: not orders.statistics().connections)
        with pytest.raises(NotInFlight, match="is not in flight"):
            await lost.finish()
        daemon.start()
        await publish(daemon, topic, b"two")
        async with asyncio.timeout(20):
            message = await anext(orders)
        assert message.body == b"two"
        await message.finish()


async def test_a_probe_follows_a_connection_lost_while_probing(
    start: StartDaemon, topic: str
) -> None:
    daemon = start()
    await publish(daemon, topic, b"poison")
    options = replace(QUICK, max_backoff=2, backoff_unit=0.05)
    async with consumer(daemon, topic, options=options) as orders:
        message = await anext(orders)
        await message.requeue(3600)
        assert orders.statistics().backoff_level == 1
        await eventually(lambda: [each.rdy for each in orders.statistics().connections] == [1])
        daemon.kill()
        await eventually(lambda: not orders.statistics().connections)
        daemon.start()
        await publish(daemon, topic, *(b"%d" % number for number in range(10)))
        seen: set[bytes] = set()
        async with asyncio.timeout(20):
            while len(seen) < 10:
                message = await anext(orders)
                await message.finish()
                seen.add(message.body)
        assert orders.statistics().backoff_level == 0


async def test_a_probe_follows_a_pause_while_probing(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"poison")
    options = replace(QUICK, max_backoff=2, backoff_unit=0.05)
    async with consumer(nsqd, topic, options=options) as orders:
        await (await anext(orders)).requeue(5)
        await eventually(lambda: [each.rdy for each in orders.statistics().connections] == [1])
        orders.pause()
        assert [each.rdy for each in orders.statistics().connections] == [0]
        orders.resume()
        await publish(nsqd, topic, b"one", b"two")
        async with asyncio.timeout(4):
            bodies = {(await finished(orders)).body for _ in range(2)}
        assert bodies == {b"one", b"two"}


async def finished(orders: nsq.Consumer) -> nsq.Message:
    message = await anext(orders)
    await message.finish()
    return message


async def test_nothing_is_lost_over_cuts(start: StartDaemon, topic: str) -> None:
    daemon = start("nsqd", "-msg-timeout=1s")
    expected = {b"%d" % number for number in range(300)}
    await publish(daemon, topic, *expected)
    seen: set[bytes] = set()
    async with FaultProxy(daemon.address) as proxy:
        options = nsq.ConsumerOptions(reconnect_wait=0.05, max_attempts=0)
        async with nsq.Consumer(
            topic, "test", nsqd=[proxy.address], max_in_flight=20, options=options
        ) as orders:
            async with asyncio.timeout(30):
                while seen != expected:
                    message = await anext(orders)
                    seen.add(message.body)
                    if len(seen) % 60 == 0:
                        await proxy.cut()
                    try:
                        await message.finish()
                    except NotInFlight:
                        continue


async def test_a_half_open_connection_is_noticed(nsqd: NsqDaemon, topic: str) -> None:
    options = nsq.ConsumerOptions(heartbeat_interval=1, reconnect_wait=0.1)
    async with (
        FaultProxy(nsqd.address) as proxy,
        nsq.Consumer(topic, "test", nsqd=[proxy.address], options=options) as orders,
    ):
        proxy.freeze()
        await eventually(lambda: not orders.statistics().connections)
        await proxy.heal()
        await publish(nsqd, topic, b"one")
        async with asyncio.timeout(10):
            message = await anext(orders)
        await message.finish()


async def test_garbage_ends_the_connection_only(nsqd: NsqDaemon, topic: str) -> None:
    async with (
        FaultProxy(nsqd.address) as proxy,
        nsq.Consumer(topic, "test", nsqd=[proxy.address], options=QUICK) as orders,
    ):
        await publish(nsqd, topic, b"one")
        proxy.flip(Direction.TO_CLIENTS, times=None)
        async with asyncio.timeout(20):
            while orders.statistics().connections:
                await publish(nsqd, topic, bytes(100))
        await proxy.heal()
        async with asyncio.timeout(20):
            message = await anext(orders)
        await message.finish()


async def test_connections_are_added_and_removed(start: StartDaemon, topic: str) -> None:
    first, second = start(), start()
    async with consumer(first, topic) as orders:
        with pytest.raises(InvalidRequest, match="already"):
            await orders.connect(first.address)
        await orders.connect(second.address)
        await publish(second, topic, b"two")
        message = await anext(orders)
        assert message.address == second.address
        await message.finish()
        await orders.disconnect(second.address)
        with pytest.raises(InvalidRequest, match="has no nsqd"):
            await orders.disconnect(second.address)
        assert [each.address for each in orders.statistics().connections] == [first.address]


async def test_an_nsqd_that_cannot_be_reached(unused_tcp_port: int, topic: str) -> None:
    with pytest.raises(NotConnected, match="cannot connect"):
        async with nsq.Consumer(topic, "test", nsqd=[f"127.0.0.1:{unused_tcp_port}"]):
            pass


async def test_bad_arguments(topic: str) -> None:
    with pytest.raises(InvalidRequest, match="not both"):
        nsq.Consumer(topic, "test")
    with pytest.raises(InvalidRequest, match="not both"):
        nsq.Consumer(topic, "test", nsqd=["a"], lookupd=["http://a"])
    with pytest.raises(InvalidRequest, match="named twice"):
        nsq.Consumer(topic, "test", nsqd=["a:4150", "a"])
    with pytest.raises(InvalidRequest, match="max_in_flight"):
        nsq.Consumer(topic, "test", nsqd=["a"], max_in_flight=0)
    with pytest.raises(Closed, match="not entered"):
        nsq.Consumer(topic, "test", nsqd=["a"]).statistics()


async def test_run_raises_what_the_callback_for_giving_up_raises(
    nsqd: NsqDaemon, topic: str
) -> None:
    await publish(nsqd, topic, b"poison")

    def fail(_: nsq.Message) -> None:
        raise OSError

    options = nsq.ConsumerOptions(max_attempts=1, requeue_delay=0, max_backoff=0)
    async with consumer(nsqd, topic, options=options, on_giving_up=fail) as orders:
        with pytest.raises(OSError, match=r"^$"):
            await orders.run(lambda message: message.body[100])
    async with consumer(nsqd, topic) as orders:
        message = await anext(orders)
        assert message.body == b"poison"
        await message.finish()


async def fail(_: nsq.Message) -> None:
    raise OSError


async def be_cancelled(_: nsq.Message) -> None:
    await await_what_others_cancel()


@pytest.mark.parametrize(
    ("on_giving_up", "error"), [(fail, OSError), (be_cancelled, CallbackCancelled)]
)
async def test_draining_ends_after_giving_up_has_failed(
    nsqd: NsqDaemon, topic: str, on_giving_up: Any, error: type[Exception]
) -> None:
    await publish(nsqd, topic, b"poison")
    options = nsq.ConsumerOptions(max_attempts=1, requeue_delay=0, max_backoff=0)
    async with consumer(nsqd, topic, options=options, on_giving_up=on_giving_up) as orders:
        await (await anext(orders)).requeue()
        with pytest.raises(error):
            await anext(orders)
        assert orders.statistics().requeued == 2
        async with asyncio.timeout(5):
            await orders.drain()


async def test_a_list_is_not_lost_when_giving_up_fails(nsqd: NsqDaemon, topic: str) -> None:
    await publish(nsqd, topic, b"poison")
    options = nsq.ConsumerOptions(max_attempts=1, requeue_delay=60, max_backoff=0)
    async with consumer(nsqd, topic, options=options, on_giving_up=fail) as orders:
        await (await anext(orders)).requeue(0)
        await publish(nsqd, topic, b"one", b"two")
        await eventually(lambda: orders.statistics().received == 4)
        seen: set[bytes] = set()
        failures = 0
        while len(seen) < 2:
            try:
                async for batch in orders.batches(10):
                    for message in batch:
                        seen.add(message.body)
                        await message.finish()
                    break
            except OSError:
                failures += 1
        assert failures == 1
        assert seen == {b"one", b"two"}


async def test_draining_ends_after_giving_up_was_cancelled(nsqd: NsqDaemon, topic: str) -> None:
    began = asyncio.Event()

    async def wait(_: nsq.Message) -> None:
        began.set()
        await asyncio.Event().wait()

    await publish(nsqd, topic, b"poison")
    options = nsq.ConsumerOptions(max_attempts=1, requeue_delay=0, max_backoff=0)
    async with consumer(nsqd, topic, options=options, on_giving_up=wait) as orders:
        run = asyncio.create_task(orders.run(fail))
        await began.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        async with asyncio.timeout(5):
            await orders.drain()
        assert orders.statistics().in_flight == 0


async def test_handlers_that_others_cancel_have_failed(nsqd: NsqDaemon, topic: str) -> None:
    handled: list[bytes] = []

    async def handle(message: nsq.Message) -> None:
        if message.attempts == 1:
            await await_what_others_cancel()
        handled.append(message.body)

    expected = {b"%d" % number for number in range(5)}
    await publish(nsqd, topic, *expected)
    async with consumer(nsqd, topic) as orders:
        run = asyncio.create_task(orders.run(handle, concurrency=3))
        await eventually(lambda: orders.statistics().finished == 5)
        assert not run.done()
        assert orders.statistics().requeued == 5
        await orders.drain()
        await run
    assert set(handled) == expected


async def test_draining_ends_after_run_was_cancelled(nsqd: NsqDaemon, topic: str) -> None:
    handled: list[bytes] = []

    async def handle(message: nsq.Message) -> None:
        handled.append(message.body)
        await asyncio.Event().wait()

    await publish(nsqd, topic, b"one", b"two", b"three")
    async with consumer(nsqd, topic) as orders:
        run = asyncio.create_task(orders.run(handle, concurrency=3))
        await eventually(lambda: len(handled) == 3)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        message = await anext(orders)
        assert message.attempts == 1
        await message.finish()
        async with asyncio.timeout(5):
            await orders.drain()


async def test_closing_ends_iteration_in_other_tasks(nsqd: NsqDaemon, topic: str) -> None:
    orders = consumer(nsqd, topic)
    async with orders:
        waiting = asyncio.create_task(orders.__anext__())
        await asyncio.sleep(0)
        await orders.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting
        await orders.aclose()
    with pytest.raises(Closed, match="the consumer is closed"):
        await anext(orders)
    with pytest.raises(Closed, match="entered once"):
        await orders.__aenter__()
    assert orders.statistics().received == 0


async def test_closing_ends_while_nsqd_is_away(start: StartDaemon, topic: str) -> None:
    daemon = start()
    async with consumer(daemon, topic) as orders:
        daemon.kill()
        await eventually(lambda: not orders.statistics().connections)
        async with asyncio.timeout(5):
            await orders.aclose()


async def test_closing_ends_on_a_frozen_link(nsqd: NsqDaemon, topic: str) -> None:
    async with (
        FaultProxy(nsqd.address) as proxy,
        asyncio.timeout(20),
        nsq.Consumer(topic, "test", nsqd=[proxy.address]) as orders,
    ):
        assert orders.statistics().connections
        proxy.freeze()
