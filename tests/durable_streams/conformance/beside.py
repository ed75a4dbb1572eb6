"""The steps of conformance cases that go past the client: to the server, and time."""

from __future__ import annotations

import asyncio
from typing import Any

from durable_streams.conformance.runner import FAULTS, Run, Step, check
from durable_streams.conformance.steps import STREAM, TEXT


def post(data: str, producer: tuple[str, int, int] | None = None) -> Step:
    """Append data beside the client, by the id, epoch and sequence number of a producer if any."""
    names = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
    own = dict(zip(names, map(str, producer), strict=True)) if producer else {}

    async def step(run: Run) -> None:
        url = run.url(run.path(STREAM))
        async with run.http.head(url) as found:
            content_type = found.headers["Content-Type"]
        sent = {"Content-Type": content_type, **own}
        async with run.http.post(url, data=data.encode(), headers=sent) as answer:
            check(answer.ok, f"the server answered {answer.status}")

    return step


def close_beside(data: str) -> Step:
    """Append last data to a text stream and close it, beside the client."""

    async def step(run: Run) -> None:
        headers = {"Stream-Closed": "true", "Content-Type": TEXT}
        url = run.url(run.path(STREAM))
        async with run.http.post(url, data=data.encode(), headers=headers) as answer:
            check(answer.status == 204, f"the server answered {answer.status}")

    return step


def inject(*, count: int = 1, **fault: Any) -> Step:
    """Let the next requests to the stream meet a fault."""

    async def clear(run: Run) -> None:
        async with run.http.delete(run.url(FAULTS)) as answer:
            check(answer.ok, f"the server answered {answer.status}")

    async def step(run: Run) -> None:
        body = {"path": run.path(STREAM), "count": count, **fault}
        async with run.http.post(run.url(FAULTS), json=body) as answer:
            check(answer.ok, f"the server answered {answer.status}")
        run.undo.append(lambda: clear(run))

    return step


def wait(milliseconds: int) -> Step:
    """Let time pass, as the case defines."""

    async def step(run: Run) -> None:  # noqa: ARG001
        await asyncio.sleep(milliseconds / 1000)

    return step
