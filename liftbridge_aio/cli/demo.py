"""`liftbridge-aio demo`: show that the client loses nothing when connections break."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from liftbridge_aio.errors import PublishOutcomeUnknown
from liftbridge_aio.model import StartAt
from liftbridge_aio.options import ClientOptions
from liftbridge_aio.telemetry import Hook, Resubscribed

from .connection import AsJson, Integer
from .output import say, write_json
from .running import DEMO, TABLES, discard, in_event_loop

if TYPE_CHECKING:
    from liftbridge_aio import Subscription
    from liftbridge_aio._client.client import Client
    from liftbridge_aio.model import Ack
    from liftbridge_aio.testing import FaultProxy, History

STREAM: Final = "demo-orders"
PARTITIONS: Final = 3
IN_FLIGHT: Final = 200
"""The in-flight limit, small so that publishing is not finished when connections are cut."""


class Breaks(Hook):
    """The interruptions of subscriptions."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        """In seconds."""

    def resubscribed(self, event: Resubscribed) -> None:
        """Count an interruption."""
        self.count += 1
        self.longest = max(self.longest, event.seconds)


@in_event_loop(*DEMO, *TABLES)
async def demo(
    *,
    messages: Annotated[
        Integer, Parameter(validator=validators.Number(gte=100), help="Messages to publish.")
    ] = 5000,
    cuts: Annotated[
        Integer,
        Parameter(
            validator=validators.Number(gte=1, lte=50),
            help="How often to cut the connections meanwhile.",
        ),
    ] = 5,
    as_json: AsJson = False,
) -> int:
    """Run the client against the embedded broker, with connections that keep breaking.

    It publishes to three partitions and tails them while a proxy cuts every connection again and
    again. The history checker of `liftbridge_aio.testing` checks that no message is lost, repeated
    or out of order. The exit code is 0 only if so.

    For example:

        liftbridge-aio demo
        liftbridge-aio demo --messages 50000 --cuts 20 --json
    """
    # help must not wait for these
    from liftbridge_aio._client.client import Client  # noqa: PLC0415
    from liftbridge_aio.broker import EmbeddedBroker  # noqa: PLC0415
    from liftbridge_aio.testing import FaultProxy, History, check_history  # noqa: PLC0415

    from .console import Console, print_figures  # noqa: PLC0415

    console = Console(stderr=as_json, emoji=False, highlight=False)
    console.print("[bold]liftbridge-aio demo[/]: an embedded broker and a connection that breaks")
    breaks = Breaks()
    history = History(clock=time.perf_counter)
    started = time.perf_counter()
    async with EmbeddedBroker() as broker, FaultProxy(broker.address) as proxy:
        options = ClientOptions(
            max_in_flight=IN_FLIGHT, hook=breaks, address_map=lambda _: proxy.address
        )
        async with Client(proxy.address, options=options) as client:
            await client.create_stream(STREAM, partitions=PARTITIONS)
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as tails:
                for partition in range(PARTITIONS):
                    tail = client.subscribe(STREAM, partition=partition, start=StartAt.earliest())
                    await stack.enter_async_context(tail)
                    tails.create_task(_record(tail, partition, history))
                await _publish(client, proxy, messages, cuts, history)
                for partition in range(PARTITIONS):
                    await client.publish(STREAM, b"", partition=partition)
    seconds = time.perf_counter() - started
    report = check_history(history)
    counts = report.total
    if as_json:
        write_json(
            {
                "messages": messages,
                "acked": counts.acked,
                "unknown": messages - counts.acked,
                "delivered": counts.delivered,
                "cuts": cuts,
                "resubscriptions": breaks.count,
                "longest_break_seconds": round(breaks.longest, 4),
                "seconds": round(seconds, 3),
                "held": report.ok,
            }
        )
    else:
        print_figures(
            console,
            (
                ("published", f"{messages:,}"),
                ("acked", f"{counts.acked:,}"),
                ("outcome unknown: the connection broke first", f"{messages - counts.acked:,}"),
                ("delivered", f"{counts.delivered:,}"),
                ("cuts of all connections", f"{cuts}"),
                ("subscriptions resumed", f"{breaks.count}"),
                ("longest interruption of a subscription", f"{breaks.longest * 1000:,.0f} ms"),
                ("acks per second, interruptions included", f"{counts.acked / seconds:,.0f}"),
            ),
        )
    if not report.ok:
        say(f"error: {report}")
        return 1
    console.print(
        "Every acked message was delivered once and in order. Next: `liftbridge-aio broker --port"
        " 9292` starts a broker for the other commands; `liftbridge-aio --help` lists them."
    )
    return 0


async def _publish(
    client: Client, proxy: FaultProxy, messages: int, cuts: int, history: History
) -> None:
    """Publish to all partitions in turn, and cut all connections now and then."""
    cut_before = {round(messages * (cut + 1) / (cuts + 1)) for cut in range(cuts)}
    pending: deque[tuple[bytes, int, asyncio.Future[Ack]]] = deque()
    try:
        for number in range(messages):
            if number in cut_before:
                await proxy.cut()
            value, partition = b"order %06d" % number, number % PARTITIONS
            history.sent(value, partition)
            future = await client.publish_async(STREAM, value, partition=partition)
            pending.append((value, partition, future))
            while pending and pending[0][-1].done():
                await _settle(history, *pending.popleft())
        while pending:
            await _settle(history, *pending.popleft())
    finally:
        discard(future for *_, future in pending)


async def _settle(
    history: History, value: bytes, partition: int, future: asyncio.Future[Ack]
) -> None:
    try:
        await future
    except PublishOutcomeUnknown:
        history.unknown(value, partition)
    else:
        history.acked(value, partition)


async def _record(tail: Subscription, partition: int, history: History) -> None:
    """Record deliveries of a partition until an empty message ends it."""
    async for message in tail:
        if not message.value:
            history.finished(partition)
            return
        history.delivered(message.value, partition, offset=message.offset)
