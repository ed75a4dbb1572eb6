"""The steps of conformance cases that go past the client: to the server, and time."""

from __future__ import annotations

import asyncio
from typing import Any

from durable_streams.conformance.runner import FAULTS, Run, Step, check
from durable_streams.conformance.steps import STREAM, TEXT, Headers


def post(
    data: str,
    producer: tuple[str, int, int] | None = None,
    stream: str = STREAM,
    *,
    status: int | None = None,
    headers: Headers | None = None,
    epoch: int | None = None,
    gap: tuple[int, int] | None = None,
) -> Step:
    """Append data beside the client.

    Args:
        data: The body.
        producer: The producer's id, epoch and sequence number.
        stream: The name of the stream.
        status: The status of the answer; by default 200 for a producer and else 204.
        headers: Further headers.
        epoch: The epoch that the answer must name.
        gap: The sequence numbers that the answer must name: the expected and the received one.
    """
    names = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
    own = dict(zip(names, map(str, producer), strict=True)) if producer else {}
    expected = status or (200 if producer else 204)
    answers = {
        "Producer-Epoch": epoch,
        "Producer-Expected-Seq": gap and gap[0],
        "Producer-Received-Seq": gap and gap[1],
    }

    async def step(run: Run) -> None:
        url = run.url(run.path(stream))
        async with run.http.head(url) as found:
            content_type = found.headers["Content-Type"]
        sent = {"Content-Type": content_type, **own, **(headers or {})}
        async with run.http.post(url, data=data.encode(), headers=sent) as answer:
            check(answer.status == expected, f"the server answered {answer.status}")
            for name, value in answers.items():
                right = value is None or answer.headers.get(name) == str(value)
                check(right, f"{name} {value} expected: {answer.headers}")

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
