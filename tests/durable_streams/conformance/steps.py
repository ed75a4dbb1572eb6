"""The steps of conformance cases that go to the client, by the protocol's commands."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from durable_streams.conformance.expectations import Data, Expected, Failure, check_data
from durable_streams.conformance.runner import Reply, Run, Step, check

Headers = Mapping[str, str]
STREAM: Final = "stream"
"""The name of the only stream of most cases; a stream that no step creates does not exist."""
TEXT: Final = "text/plain"
JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
LIVE_WINDOW: Final = 3000
"""Milliseconds for reads without any other end, for which the published cases take up to 10 s."""


async def _ask(run: Run, kind: str, stream: str, fails: Failure | None, **fields: Any) -> Reply:
    """Send a command, without the fields that are None, and check if the reply is an error."""
    path = run.path(stream)
    given = {name: value for name, value in fields.items() if value is not None}
    reply = await run.adapter.send({"type": kind, "path": path, **given})
    _check_kind(reply, kind, fails, path)
    return reply


def _check_kind(reply: Reply, kind: str, fails: Failure | None, path: str) -> None:
    if fails is not None:
        fails.check(reply, path)
        return
    check(reply.get("success") is True, f"{kind}: {reply}")
    check(reply.get("type") == kind, f"{kind}: a reply of another type: {reply}")


def _check_sent(reply: Reply, field: str, expected: Headers | None) -> None:
    if expected is not None:
        sent = reply.get(field) or {}
        check(expected.items() <= sent.items(), f"{field} {expected} expected: {reply}")


def create(
    stream: str = STREAM,
    content_type: str | None = None,
    *,
    status: int = 201,
    **options: Any,
) -> Step:
    """Create a stream."""

    async def step(run: Run) -> None:
        reply = await _ask(run, "create", stream, None, contentType=content_type, **options)
        check(reply.get("status") == status, f"status {status} expected: {reply}")

    return step


def connect(stream: str = STREAM, fails: Failure | None = None) -> Step:
    """Connect to a stream."""

    async def step(run: Run) -> None:
        reply = await _ask(run, "connect", stream, fails)
        check(fails or reply.get("status") == 200, f"status 200 expected: {reply}")

    return step


def append(
    data: Data,
    stream: str = STREAM,
    *,
    seq: int | None = None,
    headers: Headers | None = None,
    sent: Headers | None = None,
    fails: Failure | None = None,
) -> Step:
    """Append data, and keep the offset behind it as `append1`, `append2` and so on."""
    binary = isinstance(data, bytes)
    text = base64.b64encode(data).decode() if isinstance(data, bytes) else data

    async def step(run: Run) -> None:
        fields = {"data": text, "binary": binary, "seq": seq, "headers": headers}
        reply = await _ask(run, "append", stream, fails, **fields)
        if fails is None:
            check(reply.get("status") == 200, f"status 200 expected: {reply}")
            run.keep_offset("append", reply.get("offset"))
            _check_sent(reply, "headersSent", sent)

    return step


def stream_of(*data: Data, content_type: str | None = None) -> list[Step]:
    """Create a stream and append data to it."""
    return [create(content_type=content_type), *map(append, data)]


def read(
    expected: Expected | None,
    stream: str = STREAM,
    *,
    offset: str | None = None,
    live: bool | str | None = None,
    timeout_ms: int | None = None,
    max_chunks: int | None = None,
    until_up_to_date: bool = False,
    headers: Headers | None = None,
    status: int | None = None,
    up_to_date: bool | None = None,
    closed: bool | None = None,
    sent: Headers | None = None,
    sent_params: Headers | None = None,
    fails: Failure | None = None,
    background: bool = False,
) -> Step:
    """Read a stream, and keep the offset behind what was read as `read1`, `read2` and so on.

    A read that is not live, or that goes on until it is up to date, must say that it is; and one
    that is not live must say that the stream is open, unless `closed` is given.

    Args:
        expected: All data, all values of JSON, or some texts in it; None expects an error.
        stream: The name of the stream.
        offset: From where; it may contain variables.
        live: The protocol's live mode.
        timeout_ms: When the read is to end.
        max_chunks: After how many chunks the read is to end.
        until_up_to_date: Whether the read is to end as soon as it is up to date.
        headers: Further headers of the requests.
        status: The status of the reply; by default 200, or if live 204.
        up_to_date: What the reply must say.
        closed: What the reply must say.
        sent: Headers that the reply must name.
        sent_params: Query parameters that the reply must name.
        fails: The error that is expected.
        background: Whether to go on at once; `finish_read` waits for it.
    """
    if up_to_date is None and (not live or until_up_to_date):
        up_to_date = True
    if closed is None and not live:
        closed = False

    async def exchange(run: Run) -> None:
        reply = await _ask(
            run,
            "read",
            stream,
            fails,
            offset=run.resolve(offset) if offset is not None else None,
            live=live,
            timeoutMs=timeout_ms,
            maxChunks=max_chunks,
            waitForUpToDate=until_up_to_date or None,
            headers=headers,
        )
        if fails is not None:
            return
        allowed = {status} if status else {200, 204} if live else {200}
        check(reply.get("status") in allowed, f"status {allowed} expected: {reply}")
        run.keep_offset("read", reply.get("offset"))
        assert expected is not None
        check_data(reply, expected)
        for name, flag in (("upToDate", up_to_date), ("streamClosed", closed)):
            check(flag is None or reply.get(name) is flag, f"{name} {flag} expected: {reply}")
        _check_sent(reply, "headersSent", sent)
        _check_sent(reply, "paramsSent", sent_params)

    async def step(run: Run) -> None:
        if background:
            run.background = asyncio.create_task(exchange(run))
        else:
            await exchange(run)

    return step


def finish_read() -> Step:
    """Wait for the read in the background."""

    async def step(run: Run) -> None:
        task, run.background = run.background, None
        assert task is not None
        await task

    return step


def head(
    stream: str = STREAM,
    *,
    content_type: str | None = None,
    closed: bool | None = None,
    headers: Headers | None = None,
    fails: Failure | None = None,
) -> Step:
    """Ask for the metadata of a stream, and keep its tail as `head1`, `head2` and so on."""

    async def step(run: Run) -> None:
        reply = await _ask(run, "head", stream, fails, headers=headers)
        if fails is not None:
            return
        check(reply.get("status") == 200, f"status 200 expected: {reply}")
        run.keep_offset("head", reply.get("offset"))
        check(content_type in {None, reply.get("contentType")}, f"{content_type}: {reply}")
        check(closed is None or reply.get("streamClosed") is closed, f"closed {closed}: {reply}")

    return step


def delete(
    stream: str = STREAM, *, headers: Headers | None = None, fails: Failure | None = None
) -> Step:
    """Delete a stream."""

    async def step(run: Run) -> None:
        reply = await _ask(run, "delete", stream, fails, headers=headers)
        check(fails or reply.get("status") == 200, f"status 200 expected: {reply}")

    return step


def close(data: str | None = None, stream: str = STREAM, *, fails: Failure | None = None) -> Step:
    """Close a stream, after last data if any."""

    async def step(run: Run) -> None:
        reply = await _ask(run, "close", stream, fails, data=data)
        if fails is None:
            check(reply.get("status", 200) == 200, f"status 200 expected: {reply}")
            run.keep_offset("close", reply.get("finalOffset"))

    return step


def produce(
    data: str | Sequence[str],
    stream: str = STREAM,
    *,
    producer: str = "producer",
    epoch: int = 0,
    **options: Any,
) -> Step:
    """Append one item, or a batch of them, through an idempotent producer of the client."""
    one = isinstance(data, str)
    kind, name = ("idempotent-append", "data") if one else ("idempotent-append-batch", "items")
    value = data if one else list(data)
    fields = {name: value, "producerId": producer, "epoch": epoch, "autoClaim": False, **options}

    async def step(run: Run) -> None:
        reply = await _ask(run, kind, stream, None, **fields)
        check(reply.get("status") == 200, f"status 200 expected: {reply}")

    return step


def finish(
    data: str | None = None, *, producer: str = "producer", fails: Failure | None = None
) -> Step:
    """Close the stream through an idempotent producer of the client."""

    async def step(run: Run) -> None:
        fields = {"producerId": producer, "epoch": 0, "data": data, "autoClaim": False}
        reply = await _ask(run, "idempotent-close", STREAM, fails, **fields)
        check(fails or reply.get("status") == 200, f"status 200 expected: {reply}")

    return step


def detach(producer: str = "producer") -> Step:
    """End an idempotent producer of the client, and leave the stream open."""

    async def step(run: Run) -> None:
        fields = {"producerId": producer, "epoch": 0}
        reply = await _ask(run, "idempotent-detach", STREAM, None, **fields)
        check(reply.get("status") == 200, f"status 200 expected: {reply}")

    return step


def dynamic_header(name: str, kind: str = "counter", value: str | None = None) -> Step:
    """Set a header whose value the client computes for each command."""
    return _dynamic("set-dynamic-header", name, kind, value)


def dynamic_param(name: str) -> Step:
    """Set a query parameter that counts the commands."""
    return _dynamic("set-dynamic-param", name, "counter", None)


def _dynamic(command: str, name: str, kind: str, value: str | None) -> Step:
    async def step(run: Run) -> None:
        initial = {"initialValue": value} if value is not None else {}
        fields = {"type": command, "name": name, "valueType": kind, **initial}
        _check_kind(await run.adapter.send(fields), command, None, "")
        run.undo.append(lambda: run.adapter.send({"type": "clear-dynamic"}))

    return step


def validate(target: str, *, refused: str | None = None, **options: Any) -> Step:
    """Give the client options that it must accept, or refuse with the name of one of them."""
    fails = Failure("INVALID_ARGUMENT", mentions=refused) if refused else None

    async def step(run: Run) -> None:
        command = {"type": "validate", "target": {"target": target, **options}}
        _check_kind(await run.adapter.send(command), "validate", fails, "")

    return step
