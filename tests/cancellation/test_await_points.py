"""Every place where an operation waits, in whatever task of the client: cancelled there.

After each, the client works as before, holds nothing, and what became of messages is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConsumerGroup,
    MergedSubscription,
    Message,
    PublishOutcomeUnknown,
    Record,
    Retry,
    StartAt,
    StopAt,
    StreamOptions,
    StreamPartition,
    Subscription,
)
from liftbridge_aio._publish.session import SessionState
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.queue import (
    Delivery,
    DeliveryBatch,
    DeliveryTransaction,
    Queue,
    QueueOptions,
    RetryStreams,
)
from liftbridge_aio.transactions import (
    CheckpointStream,
    ClaimedLog,
    CommitInDoubt,
    Producer,
    Transaction,
)
from support.faults import BOUND, QUICK, eventually, nothing_left_behind, read_all, within
from support.queues import after
from support.suspensions import watched_suspensions

pytestmark = pytest.mark.virtual_time

EARLIEST: Final = StartAt.earliest()
LATEST: Final = StopAt.latest()
STREAMS: Final = frozenset({"s", "t", "other", "controlled", "__cursors"})
TIERS: Final = RetryStreams((0.01,))
PUBLIC: Final[tuple[type, ...]] = (
    *(Client, ConsumerGroup, Delivery, DeliveryBatch, DeliveryTransaction, MergedSubscription),
    *(ClaimedLog, Producer, Queue, Subscription, Transaction),
)
"""Whose coroutines are cancelled here."""
ELSEWHERE: Final = {"Client.connect": "test_connecting_and_closing.py"}


@dataclass(slots=True)
class Scene:
    """A client, a broker with a stream "s" of two partitions, and what was sent to it."""

    broker: EmbeddedBroker
    client: Client
    number: int
    sent: set[bytes] = field(default_factory=set)
    acked: list[bytes] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def value(self) -> bytes:
        """A value that was never sent before."""
        self.number += 1
        value = b"%d" % self.number
        self.sent.add(value)
        return value

    def name(self, kind: str) -> str:
        """A name that was never used before."""
        self.number += 1
        return f"{kind}-{self.number}"

    async def publish(self, **arguments: Any) -> None:
        value = self.value()
        await self.client.publish("s", value, **arguments)
        self.acked.append(value)


Operation = Callable[[Scene], Coroutine[Any, Any, None]]


async def publish(scene: Scene) -> None:
    await scene.publish(partition=0)


async def publish_by_key(scene: Scene) -> None:
    await scene.publish(key=b"k")


async def publish_with_retries(scene: Scene) -> None:
    await scene.publish(key=b"k", retry=Retry())


async def publish_again(scene: Scene) -> None:
    """The ack of the first try is lost, and the second is to be found in the log."""
    await scene.broker.faults.cut_links(carrying="PublishAsync")
    newest = (await scene.client.fetch_partition_metadata("controlled", 0)).newest_offset
    scene.broker.faults.drop("PublishAsync", at="reply", times=1)
    await scene.client.publish(
        "controlled",
        b"once",
        expected_offset=newest + 1,
        ack_timeout=0.02,
        timeout=5,
        retry=Retry(),
    )


async def publish_many(scene: Scene) -> None:
    values = [scene.value() for _ in range(5)]
    await scene.client.publish_many("s", [Record(value, key=value) for value in values])
    scene.acked += values


async def publish_without_ack_and_flush(scene: Scene) -> None:
    for _ in range(3):
        await scene.client.publish_unacked("s", scene.value())
    await scene.client.flush()


async def wait_for_room(scene: Scene) -> None:
    """The window has room for four."""
    values = [scene.value() for _ in range(7)]
    futures = [await scene.client.publish_async("s", value, partition=0) for value in values]
    await scene.client.flush()
    assert all(future.done() for future in futures)
    scene.acked += values


async def publish_on_a_link_that_breaks(scene: Scene) -> None:
    await scene.broker.faults.cut_links()
    scene.broker.faults.refuse_links(2)
    with contextlib.suppress(PublishOutcomeUnknown):
        await scene.publish()
    scene.broker.faults.clear()


async def publish_to_subject(scene: Scene) -> None:
    await scene.client.publish_to_subject("subject", b"")
    await scene.client.publish_unacked_to_subject("subject", b"")


async def read(scene: Scene) -> None:
    async for _ in scene.client.subscribe("s", start=EARLIEST, stop=LATEST):
        pass


async def read_by_time_in_lists(scene: Scene) -> None:
    start = StartAt.time(1)
    async with scene.client.subscribe("s", start=start) as subscription:
        async for _ in subscription.batches(1000, wait=0.001):
            break
        await subscription.lag()


async def read_on(scene: Scene) -> None:
    """The link breaks, and the first two that are to take its place as well."""
    async with scene.client.subscribe("s", start=EARLIEST) as subscription:
        await anext(subscription)
        scene.broker.faults.refuse_links(2)
        await scene.broker.faults.cut_links(carrying="Subscribe")
        acked = len(scene.acked)
        while len(scene.acked) == acked:
            with contextlib.suppress(PublishOutcomeUnknown):
                await scene.publish(partition=0)
        while (await anext(subscription)).value not in scene.acked[-1:]:
            pass
    scene.broker.faults.clear()


async def seek_and_pause(scene: Scene) -> None:
    async with scene.client.subscribe("s", partition=0, start=EARLIEST) as subscription:
        await anext(subscription)
        subscription.pause()
        await subscription.seek(0)
        subscription.resume()
        await anext(subscription)
        await subscription.lag()


async def read_all_partitions(scene: Scene) -> None:
    async with scene.client.subscribe("s", start=EARLIEST) as subscription:
        await anext(subscription)
        await subscription.seek({0: 0, 1: 0})
        async for _ in subscription.batches(10):
            break
        await subscription.lag()


async def read_durably(scene: Scene) -> None:
    cursor = scene.name("durable")
    async with scene.client.subscribe(
        "s", partition=0, start=EARLIEST, cursor=cursor
    ) as subscription:
        await anext(subscription)
        await subscription.commit()
        await subscription.seek(0)
        await anext(subscription)


async def cursors(scene: Scene) -> None:
    client = scene.client
    await asyncio.gather(*(client.set_cursor("c", "s", 0, n) for n in range(3)))
    assert await client.fetch_cursor("c", "s", 0) is not None


async def cursors_on_a_link_that_breaks(scene: Scene) -> None:
    scene.broker.faults.fail("SetCursor", code="UNAVAILABLE", times=1)
    await scene.broker.faults.cut_links()
    await scene.client.set_cursor("c", "s", 0, 1)


async def join_and_leave(scene: Scene) -> None:
    scene.groups.append(scene.name("g"))
    group = scene.client.group(
        scene.groups[-1],
        ["s"],
        start=EARLIEST,
        on_assigned=wait_a_moment,
        on_revoked=wait_a_moment,
    )
    async with group:
        await anext(group)
        await group.commit()
        await group.lag()


async def wait_a_moment(partitions: Collection[StreamPartition]) -> None:
    assert partitions
    await asyncio.sleep(0)


async def take_from_queue(scene: Scene) -> None:
    scene.groups.append(scene.name("q"))
    async with scene.client.queue(
        "s", group=scene.groups[-1], options=QueueOptions(retry=after(0))
    ) as queue:
        await (await anext(queue)).ack(sync=True)
        await (await anext(queue)).nack()
        await (await anext(queue)).reject()


async def ack_with_results(scene: Scene) -> None:
    scene.groups.append(scene.name("q"))
    async with scene.client.queue("s", group=scene.groups[-1]) as queue:
        delivery = await anext(queue)
        async with delivery, delivery.transaction() as transaction:
            await transaction.publish("t", b"result")


async def commit_with_a_store(scene: Scene) -> None:
    name = scene.name("producer")
    for _ in range(2):  # the second one takes over from the first
        async with (
            scene.client.producer(name, store=CheckpointStream("stored")) as producer,
            scene.client.subscribe(
                "s", partition=0, start=EARLIEST, positions=producer
            ) as messages,
        ):
            await anext(messages)
            async with producer.transaction(messages) as transaction:
                await transaction.publish("t", b"result")
            await producer.publish("t", b"alone")


async def read_what_is_committed(scene: Scene) -> None:
    async for _ in scene.client.read("t", partition=0, committed=True):
        pass
    await scene.client.last("t", partition=0, n=3, committed=True)


async def manage_streams(scene: Scene) -> None:
    client, stream = scene.client, scene.name("stream")
    await client.create_stream(stream)
    await client.pause_stream(stream)
    await client.resume_stream(stream)
    await client.set_stream_readonly(stream)
    await client.fetch_metadata([stream])
    await client.oldest_offset(stream)
    await client.delete_stream(stream)
    await client.ping()
    await client.wait_ready()


async def read_columns(scene: Scene) -> None:
    async with scene.client.subscribe("s", partition=0, start=EARLIEST) as subscription:
        await subscription.read_columns(10)
        await subscription.missed()
        await subscription.aclose()


async def read_all_partitions_durably(scene: Scene) -> None:
    cursor = scene.name("durable")
    merged = scene.client.subscribe("s", start=EARLIEST, cursor=cursor)
    async with merged as subscription:
        await anext(subscription)
        await subscription.commit()
        await subscription.missed()
        await subscription.aclose()


async def run_a_group(scene: Scene) -> None:
    scene.groups.append(scene.name("g"))
    async with scene.client.group(scene.groups[-1], ["s"], start=EARLIEST) as group:

        async def handle(message: Message) -> None:
            await group.seek(message.stream, message.partition, message.offset + 1)
            if not message.partition:
                await group.aclose()

        await group.run(handle, stop_on_signals=False)


async def run_a_queue(scene: Scene) -> None:
    scene.groups.append(scene.name("q"))
    queue = scene.client.queue(
        "s", group=scene.groups[-1], options=QueueOptions(retry_streams=TIERS)
    )
    async with queue:
        await queue.publish_later(scene.name("later").encode(), 0.01)
        async for batch in queue.batches(1):
            async with batch:
                break

        async def handle(delivery: Delivery) -> None:
            await delivery.extend()
            if delivery.value.startswith(b"later"):
                await queue.unsubscribe()

        await queue.run(handle, stop_on_signals=False)


async def resume_after_a_lost_ack(scene: Scene) -> None:
    async with scene.client.producer(retry=Retry(attempts=1)) as producer:
        transaction = producer.transaction()
        with contextlib.suppress(CommitInDoubt):
            async with transaction:
                await transaction.publish("t", b"result")
                await transaction.flush()
                scene.broker.faults.drop("PublishAsync", at="reply", times=1)
        await transaction.resume()
        await (await producer.publish_async("t", b"alone"))


async def resume_results_after_a_lost_ack(scene: Scene) -> None:
    scene.groups.append(scene.name("q"))
    queue = scene.client.queue("s", group=scene.groups[-1], options=QueueOptions(max_in_flight=1))
    async with queue:
        delivery = await anext(queue)
        transaction = delivery.transaction()
        with contextlib.suppress(CommitInDoubt):
            async with transaction:
                await transaction.publish("t", b"result")
                await transaction.flush()
                scene.broker.faults.drop("PublishAsync", at="reply", times=5)
        scene.broker.faults.clear()
        await transaction.resume()


async def end_what_another_left_open(scene: Scene) -> None:
    client, left = scene.client, scene.client.producer()
    transaction = left.transaction()
    await transaction.__aenter__()
    await transaction.publish("t", b"left open", partition=1)
    for span in (await client.explain("t", 1)).open:
        await client.abort_transaction(span, force=True)
    await left.append_intents([])


async def claim_a_log(scene: Scene) -> None:
    log = await ClaimedLog.open(scene.client, scene.name("log"))
    await log.last()
    await log.append(scene.name("record").encode())
    await log.settle()


OPERATIONS: Final[list[Operation]] = [
    publish,
    publish_by_key,
    publish_with_retries,
    publish_again,
    publish_many,
    publish_without_ack_and_flush,
    wait_for_room,
    publish_on_a_link_that_breaks,
    publish_to_subject,
    read,
    read_by_time_in_lists,
    read_on,
    seek_and_pause,
    read_all_partitions,
    read_durably,
    cursors,
    cursors_on_a_link_that_breaks,
    join_and_leave,
    take_from_queue,
    ack_with_results,
    commit_with_a_store,
    read_what_is_committed,
    manage_streams,
    read_columns,
    read_all_partitions_durably,
    run_a_group,
    run_a_queue,
    resume_after_a_lost_ack,
    resume_results_after_a_lost_ack,
    end_what_another_left_open,
    claim_a_log,
]


DIFFERENT_ON_THE_PLAIN_PATH: Final = [publish, read_on]
LONG: Final = [
    read_on,
    publish_again,
    seek_and_pause,
    read_all_partitions,
    read_durably,
    join_and_leave,
    take_from_queue,
    ack_with_results,
    commit_with_a_store,
    read_what_is_committed,
    run_a_group,
    run_a_queue,
    resume_after_a_lost_ack,
    resume_results_after_a_lost_ack,
    end_what_another_left_open,
    claim_a_log,
]
"""These are done with one client; the others with new ones, which have to connect."""
OPTIONS: Final = ClientOptions(backoff=QUICK, max_in_flight=4, close_timeout=1.0, ack_timeout=0.5)


async def prepare(broker: EmbeddedBroker) -> None:
    """Make the streams."""
    async with Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        await client.create_stream("other", subject="subject")
        await client.create_stream("t", partitions=2)
        controlled = StreamOptions(optimistic_concurrency_control=True)
        await client.create_stream("controlled", options=controlled)
        for partition in range(2):
            await client.publish("s", b"first", partition=partition)
        await client.producer().publish("t", b"first")


def what_is_held(scene: Scene) -> dict[str, object]:
    """Everything that an operation takes and has to give back."""
    parts = scene.client._parts
    assert parts is not None
    publisher, network = parts.publisher, parts.network
    window = publisher._window
    ready = sum(session.state is SessionState.READY for session in publisher._dispatcher.sessions)
    return {
        "messages": publisher.table.unsettled,
        "room in the window": (window.messages, window.bytes, window.waiting, window.queue()),
        "questions for partitions": publisher._arriving,
        "flushes": publisher.table._drains,
        "retries": parts.retrying._open,
        "cursors": parts.cursors._writers,
        "questions for metadata": network.metadata._fetches,
        "connections in the making": network.pool._connecting,
        "subscriptions": len(parts.budget.readers),
        "calls at the broker": calls(scene.broker) - ready,
        "tasks": [
            name
            for name in (task.get_name() for task in asyncio.all_tasks())
            if name.startswith("liftbridge_aio:") and not name.startswith(LIVING_AS_THE_CLIENT)
        ],
    }


LIVING_AS_THE_CLIENT: Final = tuple(
    f"liftbridge_aio:{name}"
    for name in ("supervisor", "publish-s", "metadata-age", "watch", "pump:PublishAsync")
)


def calls(broker: EmbeddedBroker) -> int:
    """Number of open calls."""
    assert broker._listener is not None
    return sum(len(link.processor.streams) for link in broker._listener.connections)


async def check_at_rest(scene: Scene) -> None:
    """Nothing is held any more, and everything works."""
    nothing: dict[str, object] = {name: type(held)() for name, held in what_is_held(scene).items()}
    nothing["room in the window"] = (0, 0, 0, ())
    try:
        await eventually(lambda: what_is_held(scene) == nothing, 3.0)
    except TimeoutError:
        assert what_is_held(scene) == nothing
    await within(BOUND, scene.publish(partition=0))
    assert await within(BOUND, scene.client.fetch_cursor("none", "s", 0)) is None
    for stream in (await scene.client.fetch_metadata()).streams.keys() - STREAMS:
        await scene.client.delete_stream(stream)  # with many of them metadata takes long
    for group in scene.groups:
        assert group not in (await scene.client.fetch_metadata(groups=[group])).groups


async def check_stored(broker: EmbeddedBroker, scenes: list[Scene]) -> None:
    """Acked messages are stored once, in order; cancelled ones once or not at all."""
    sent = {value for scene in scenes for value in scene.sent}
    acked = {value for scene in scenes for value in scene.acked}
    async with Client(broker.address) as client:
        logs = [await read_all(client, "s", partition) for partition in range(2)]
    found = [[message.value for message in log[1:]] for log in logs]
    for values in found:
        assert values == sorted(set(values), key=int)
    assert acked <= {value for values in found for value in values} <= sent


@pytest.mark.parametrize(
    ("operation", "data_path"),
    [
        *((operation, "lane") for operation in OPERATIONS),
        *((operation, "plain") for operation in DIFFERENT_ON_THE_PLAIN_PATH),
    ],
    indirect=["data_path"],
)
@pytest.mark.usefixtures("data_path")
async def test_cancelled_wherever_it_waits(operation: Operation) -> None:
    scenes: list[Scene] = []
    with nothing_to_complain_of():
        async with EmbeddedBroker() as broker:
            await prepare(broker)
            with watched_suspensions() as suspensions:
                async with nothing_left_behind(), Client(broker.address, options=OPTIONS) as one:
                    for strike in suspensions.strikes(alternating=operation in LONG):
                        async with one_of_its_own(operation, one) as client:
                            scene = Scene(broker, client, 1000 * len(scenes))
                            scenes.append(scene)
                            await strike(partial(operation, scene))
                            broker.faults.clear()
                            with noted(repr(strike)):
                                await check_at_rest(scene)
            await check_stored(broker, scenes)
    assert len(scenes) > 1


async def test_every_public_coroutine_is_among_the_operations() -> None:
    """Whatever users await is cancelled at each place where it waits, also what comes later."""
    public = {
        f"{kind.__name__}.{name}": (kind, name)
        for kind in PUBLIC
        for name in dir(kind)
        if name in {"__aenter__", "__aexit__", "__anext__"} or not name.startswith("_")
        if inspect.iscoroutinefunction(getattr(kind, name))
    }
    called: set[str] = set(ELSEWHERE)

    def noting(title: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def noted(self: Any, *arguments: Any, **named: Any) -> Any:
            called.add(title)
            return await function(self, *arguments, **named)

        return noted

    with contextlib.ExitStack() as stack:
        for title, (kind, name) in public.items():
            stack.enter_context(patch.object(kind, name, noting(title, getattr(kind, name))))
        async with EmbeddedBroker() as broker:
            await prepare(broker)
            for number, operation in enumerate(OPERATIONS):
                async with Client(broker.address, options=OPTIONS) as client:
                    await operation(Scene(broker, client, 1000 * number))
                broker.faults.clear()
    assert sorted(public.keys() - called) == []


def one_of_its_own(operation: Operation, one: Client) -> AbstractAsyncContextManager[Client]:
    """A new client, unless that takes too long."""
    if operation in LONG:
        return contextlib.nullcontext(one)
    [server] = one._seeds
    return Client(server, options=one.options)


@contextlib.contextmanager
def noted(text: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"after the cancellation {text}")
        raise


@contextlib.contextmanager
def nothing_to_complain_of() -> Iterator[None]:
    """Nothing is told to the event loop's handler, such as errors that nobody retrieved."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    gc.collect()
    assert complaints == []
