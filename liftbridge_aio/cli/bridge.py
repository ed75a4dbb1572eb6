"""`liftbridge-aio bridge`: copy between Liftbridge, NATS Streaming and NSQ, or two clusters."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from liftbridge_aio.errors import LiftbridgeError

from .arguments import DURATION_HELP, parse_duration
from .connection import AsJson, OptionalInteger
from .output import say, write_json
from .running import CLIENT, in_event_loop, stop_signals

if TYPE_CHECKING:
    from liftbridge_aio.bridge import Bridge, Progress


@in_event_loop(*CLIENT, "liftbridge_aio.bridge")
async def bridge(
    source: Annotated[str, Parameter(name="FROM", help="URL of what to copy.")],
    target: Annotated[str, Parameter(name="TO", help="URL of where to copy it.")],
    /,
    *,
    once: Annotated[
        bool, Parameter(negative="", help="End when everything is copied that was there.")
    ] = False,
    after: Annotated[
        OptionalInteger,
        Parameter(
            help="Sequence of NATS Streaming behind which to begin, if the target does not say."
        ),
    ] = None,
    skip_refused: Annotated[
        bool,
        Parameter(
            negative="",
            help="Skip messages that TO can never take, because they are too large or empty.",
        ),
    ] = False,
    message_timeout: Annotated[
        str,
        Parameter(
            help=f"Time after which nsqd delivers a message again ({DURATION_HELP}), at least 1s."
            " With --once, nothing may have come for longer than that."
        ),
    ] = "10s",
    retry_timeout: Annotated[
        str, Parameter(help=f"Longest time without one of the sides ({DURATION_HELP}).")
    ] = "60s",
    interval: Annotated[
        str, Parameter(help=f"Interval of lines about progress ({DURATION_HELP}).")
    ] = "5s",
    as_json: AsJson = False,
) -> None:
    """Copy messages from one system to another until Ctrl-C or SIGTERM.

    FROM and TO are URLs, at least one of them of Liftbridge: stan://host:4222/cluster/channel,
    nsq://host:4150/topic/channel, nsq+lookup://host:4161/topic/channel (only FROM) and
    liftbridge://host:9292/stream. TO is created if it is missing. A bridge that was killed resumes
    where it was. Progress is written to stderr; with --json, to stdout too, at the end.

    For example:

        liftbridge-aio bridge stan://nats:4222/test-cluster/orders liftbridge://lift:9292/orders
        liftbridge-aio bridge nsq+lookup://nsq:4161/orders/moving liftbridge://lift:9292/orders
        liftbridge-aio bridge liftbridge://lift:9292/orders nsq://nsq:4150/orders/billing --once
        liftbridge-aio bridge liftbridge://london:9292/orders liftbridge://paris:9292/orders
    """
    from liftbridge_aio.bridge import Bridge  # noqa: PLC0415 - not for help

    running = Bridge(
        source,
        target,
        once=once,
        after=after,
        skip_refused=skip_refused,
        message_timeout=parse_duration(message_timeout),
        retry_timeout=parse_duration(retry_timeout),
    )
    every = parse_duration(interval)
    with stop_signals() as stop:
        async with asyncio.TaskGroup() as group:
            copying = group.create_task(running.run())
            stopping = group.create_task(stop.wait())
            reporting = group.create_task(_report(running, every))
            await asyncio.wait({copying, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (copying, stopping, reporting):
                task.cancel()
        progress = running.progress
    say(_line(progress))
    if as_json:
        write_json(asdict(progress))


async def _report(running: Bridge, interval: float) -> None:
    """Write progress to stderr at intervals."""
    while True:
        await asyncio.sleep(interval)
        with suppress(LiftbridgeError):  # the bridge itself tells of it
            await running.measure_lag()
        say(_line(running.progress))


def _line(progress: Progress) -> str:
    lag = "" if progress.lag is None else f", {progress.lag} wait"
    again = f", {progress.repeats} repeats passed over" if progress.repeats else ""
    skipped = f", {progress.skipped} skipped" if progress.skipped else ""
    return f"{progress.copied} copied, {progress.rate:.0f} a second{lag}{again}{skipped}"
