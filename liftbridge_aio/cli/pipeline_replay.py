"""Run a replay for a command: part after part, with progress, until its end or a signal."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from liftbridge_aio.spark.pipelines.replay import Replay, ReplayPlan, rate_settings
from liftbridge_aio.spark.session.query_progress import QueryFailed

from .output import say
from .pipeline_runs import Ended, Reporter, spark_session
from .running import stop_signals


async def run_replay(plan: ReplayPlan, master: str, *, as_json: bool) -> Ended:
    """Publish the parts that are not complete; a signal interrupts the running one.

    Raises:
        QueryFailed: a part failed; the next run publishes it.
        ReplayRefused: the table or the plan does not fit the checkpoint.
        SparkSourceError: the table lacks a column.
    """
    with stop_signals() as stop:
        async with spark_session("replay", master, rate_settings(plan.rate)) as spark:
            replay = await spark.call(lambda session: Replay(session, plan))
            left = sum(part.rows for part in replay.parts)
            say(f"{left:,} messages to publish, after {replay.rows_before:,}")
            reporter = Reporter(as_json=as_json)
            rows = batches = 0
            for part in replay.parts:
                writing = asyncio.ensure_future(spark.call(lambda _, part=part: replay.write(part)))  # type: ignore[misc]
                if not await _finished(writing, stop, replay):
                    break
                rows, batches = rows + part.rows, batches + 1
                reporter.report(rows, batches, left - rows)
    return Ended(rows == left, reporter.ended(rows, batches, left - rows))


async def _finished(writing: asyncio.Future[Any], stop: asyncio.Event, replay: Replay) -> bool:
    """Wait until a part is written, or cancel it when `stop` is set; return True if it is."""
    stopped: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([writing, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set() and not writing.done():
            await asyncio.to_thread(replay.cancel)
            with suppress(QueryFailed):
                await writing
            return False
        await writing
    finally:
        stopped.cancel()
    return not stop.is_set()
