"""The client behind the protocol of the published conformance tests.

`python tests/durable_streams/adapter.py` reads commands as lines of JSON, answers each with one
line, and ends at `shutdown` or at the end of its input.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final, cast

import httpx2

from liftbridge_aio.durable_streams import (
    START,
    Batch,
    DurableStream,
    DurableStreamError,
    IdempotentProducer,
    Reader,
    Refused,
    StreamInfo,
    StreamOptions,
)
from liftbridge_aio.errors import InvalidRequest, LiftbridgeError
from liftbridge_aio.retry import Backoff

Command = dict[str, Any]
Reply = dict[str, Any]
ProducerKey = tuple[str, str, int]

FEATURES: Final = (
    "batching",
    "sse",
    "longPoll",
    "auto",
    "streaming",
    "dynamicHeaders",
    "retryOptions",
    "batchItems",
    "strictZeroValidation",
)
_NAMES: Final = {
    "max_retries": "maxRetries",
    "initial": "initialDelayMs",
    "maximum": "maxDelayMs",
    "factor": "multiplier",
    "max_batch_bytes": "maxBatchBytes",
    "max_batch_items": "maxBatchItems",
}
"""Our names of options, and those of the protocol."""


class Adapter:
    """Runs commands."""

    def __init__(self) -> None:
        self._server = ""
        self._http = httpx2.AsyncClient()
        self._options = StreamOptions(max_retries=5)  # a command takes 30 s at most
        self._content_types: dict[str, str] = {}
        self._producers: dict[ProducerKey, IdempotentProducer] = {}
        self._exits = AsyncExitStack()
        self._dynamic: dict[str, dict[str, Callable[[], str]]] = {"header": {}, "param": {}}
        self._sent: dict[str, dict[str, str]] = {"header": {}, "param": {}}
        self._commands: Mapping[str, Callable[[Command], Awaitable[Reply]]] = {
            "init": self._init,
            "create": self._create,
            "connect": self._connect,
            "append": self._append,
            "read": self._read,
            "head": self._head,
            "delete": self._delete,
            "close": self._close,
            "idempotent-append": self._idempotent_append,
            "idempotent-append-batch": self._idempotent_append_batch,
            "idempotent-close": self._idempotent_close,
            "idempotent-detach": self._idempotent_detach,
            "set-dynamic-header": self._set_dynamic,
            "set-dynamic-param": self._set_dynamic,
            "clear-dynamic": self._clear_dynamic,
            "validate": self._validate,
            "shutdown": self._shutdown,
        }

    async def run(self, command: Command) -> Reply:
        """Run a command and return the reply."""
        kind = command["type"]
        try:
            if kind not in self._commands:
                return _error(kind, "NOT_SUPPORTED", f"no command {kind}")
            return {"type": kind, "success": True, **await self._commands[kind](command)}
        except LiftbridgeError as error:
            return _error_of(kind, error)
        except Exception as error:  # noqa: BLE001 - told to the runner
            return _error(kind, "INTERNAL_ERROR", repr(error))

    async def aclose(self) -> None:
        """End the producers and close the connections."""
        await self._exits.aclose()
        await self._http.aclose()

    def _stream(self, command: Command, content_type: str | None = None) -> DurableStream:
        path = command["path"]
        return DurableStream(
            self._server + path,
            content_type=content_type or self._content_types.get(path),
            headers={**self._dynamic["header"], **(command.get("headers") or {})},
            params=self._dynamic["param"],
            options=self._options,
            http=self._http,
        )

    # Streams

    async def _init(self, command: Command) -> Reply:
        self._server = command["serverUrl"]
        self._content_types.clear()
        self._producers.clear()
        await self._clear_dynamic(command)
        return {
            "clientName": "liftbridge-aio",
            "clientVersion": version("liftbridge-aio"),
            "features": dict.fromkeys(FEATURES, True),
        }

    async def _create(self, command: Command) -> Reply:
        expires_at = command.get("expiresAt")
        data = command.get("data")
        stream = self._stream(command)
        info = await stream.create(
            content_type=command.get("contentType"),
            ttl=command.get("ttlSeconds"),
            expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
            closed=command.get("closed") or False,
            data=data.encode() if data else None,
        )
        self._content_types[command["path"]] = info.content_type
        return {"status": 201 if info.created else 200, "offset": info.offset}

    async def _connect(self, command: Command) -> Reply:
        info = await self._inspect(command)
        return {"status": 200, "offset": info.offset}

    async def _inspect(self, command: Command) -> StreamInfo:
        info = await self._stream(command).head()
        self._content_types[command["path"]] = info.content_type
        return info

    async def _head(self, command: Command) -> Reply:
        info = await self._inspect(command)
        return {
            "status": 200,
            "offset": info.offset,
            "contentType": info.content_type,
            "ttlSeconds": info.ttl,
            "expiresAt": info.expires_at.isoformat() if info.expires_at else None,
            "streamClosed": info.closed,
        }

    async def _append(self, command: Command) -> Reply:
        seq = command.get("seq")
        stored = await self._stream(command).append(
            _data(command), seq=None if seq is None else str(seq)
        )
        return {"status": 200, "offset": stored.offset, **self._take_sent()}

    async def _close(self, command: Command) -> Reply:
        data = command.get("data")
        stream = self._stream(command, command.get("contentType"))
        return {"finalOffset": await stream.close(data.encode() if data else None)}

    async def _delete(self, command: Command) -> Reply:
        await self._stream(command).delete()
        self._content_types.pop(command["path"], None)
        return {"status": 200}

    # Reading

    async def _read(self, command: Command) -> Reply:
        live = command.get("live") or False
        chunks: list[Reply] = []
        up_to_date = False
        reader = self._stream(command).read(offset=command.get("offset") or START, live=live)
        try:
            async with reader, asyncio.timeout((command.get("timeoutMs") or 5_000) / 1_000):
                await self._collect(reader, command, chunks)
        except TimeoutError:
            up_to_date = True  # as everything that came in time was taken
        return {
            "status": 204 if live == "long-poll" and not chunks else 200,
            "chunks": chunks,
            "offset": reader.offset,
            "upToDate": up_to_date or reader.up_to_date,
            "streamClosed": reader.closed,
            **self._take_sent(),
        }

    async def _collect(self, reader: Reader, command: Command, chunks: list[Reply]) -> None:
        most = command.get("maxChunks") or 100
        is_live = bool(command.get("live"))
        async for batch in reader.batches():
            chunks += _chunks(batch)
            if is_live and (
                len(chunks) >= most or (command.get("waitForUpToDate") and batch.up_to_date)
            ):
                return

    # Producers

    async def _producer(self, command: Command) -> IdempotentProducer:
        key = (command["path"], command["producerId"], command["epoch"])
        found = self._producers.get(key)
        if found is None:
            found = self._new_producer(command, max_in_flight=1, linger=0)
            await found.__aenter__()
            self._exits.push_async_callback(_detach, found)
            self._producers[key] = found
        return found

    def _new_producer(self, command: Command, **options: Any) -> IdempotentProducer:
        return IdempotentProducer(
            self._stream(command),
            command["producerId"],
            epoch=command["epoch"],
            auto_claim=command.get("autoClaim") or False,
            **options,
        )

    async def _idempotent_append(self, command: Command) -> Reply:
        producer = await self._producer(command)
        stored = await producer.append(command["data"].encode())
        return {"status": 200, "offset": stored.offset, "duplicate": stored.duplicate}

    async def _idempotent_append_batch(self, command: Command) -> Reply:
        most = command.get("maxInFlight") or 1
        limits = {"max_batch_bytes": 1, "linger": 0} if most > 1 else {"linger": 1}
        async with self._new_producer(command, max_in_flight=most, **limits) as producer:
            for item in command["items"]:
                await producer.append_async(item.encode())
        return {"status": 200}

    async def _idempotent_close(self, command: Command) -> Reply:
        data = command.get("data")
        producer = await self._producer(command)
        return {"status": 200, "finalOffset": await producer.close(data.encode() if data else None)}

    async def _idempotent_detach(self, command: Command) -> Reply:
        producer = await self._producer(command)
        self._producers.pop((command["path"], command["producerId"], command["epoch"]))
        await producer.aclose()
        return {"status": 200}

    # What is sent with requests

    async def _set_dynamic(self, command: Command) -> Reply:
        kind = command["type"].removeprefix("set-dynamic-")
        name, value_type, count = command["name"], command["valueType"], 0

        def value() -> str:
            nonlocal count
            count += 1
            text = {
                "counter": str(count),
                "timestamp": str(time.time_ns() // 1_000_000),
                "token": command.get("initialValue") or "",
            }[value_type]
            self._sent[kind].setdefault(name, text)
            return text

        self._dynamic[kind][name] = value
        return {}

    async def _clear_dynamic(self, command: Command) -> Reply:
        del command
        for each in self._dynamic.values():
            each.clear()
        return {}

    def _take_sent(self) -> Reply:
        """Return the values that functions gave for the first request of a command."""
        found = {f"{kind}sSent": sent for kind, sent in self._sent.items() if self._dynamic[kind]}
        self._sent = {"header": {}, "param": {}}
        return found

    # The rest

    async def _validate(self, command: Command) -> Reply:
        target = command["target"]
        if target["target"] == "retry-options":
            StreamOptions(
                max_retries=target.get("maxRetries", 8),
                backoff=Backoff(
                    initial=target.get("initialDelayMs", 100) / 1_000,
                    maximum=target.get("maxDelayMs", 10_000) / 1_000,
                    factor=target.get("multiplier", 2.0),
                ),
            )
        else:
            IdempotentProducer(
                DurableStream(self._server + "/validated", http=self._http),
                target.get("producerId", "validated"),
                epoch=target.get("epoch", 0),
                max_batch_bytes=target.get("maxBatchBytes", 1 << 20),
                max_batch_items=target.get("maxBatchItems"),
            )
        return {}

    async def _shutdown(self, command: Command) -> Reply:
        del command
        return {}


async def _detach(producer: IdempotentProducer) -> None:
    await producer.__aexit__(None, asyncio.CancelledError(), None)


def _data(command: Command) -> bytes:
    data: str = command["data"]
    return base64.b64decode(data) if command.get("binary") else data.encode()


def _chunks(batch: Batch) -> list[Reply]:
    """Return the chunks for a batch: of JSON its array, of other types the bytes."""
    if not batch.items:
        return []
    if not isinstance(batch.items[0], bytes):
        text = json.dumps(batch.items, ensure_ascii=False, separators=(",", ":"))
        return [{"data": text, "offset": batch.offset}]
    return [{**_text(item), "offset": batch.offset} for item in batch.items]


def _text(item: bytes) -> Reply:
    try:
        return {"data": item.decode()}
    except UnicodeDecodeError:
        return {"data": base64.b64encode(item).decode(), "binary": True}


def _error_of(kind: str, error: LiftbridgeError) -> Reply:
    causes = [error, error.__cause__, getattr(error.__cause__, "__cause__", None)]
    for each in causes:
        if isinstance(each, DurableStreamError):
            code = each.conformance_code
            if code != "INTERNAL_ERROR":
                status = each.status if isinstance(each, Refused) else None
                return _error(kind, code, str(error), status)
    if isinstance(error, InvalidRequest):
        message = str(error)
        for ours, theirs in _NAMES.items():
            message = message.replace(ours, theirs)
        return _error(kind, "INVALID_ARGUMENT", message)
    return _error(kind, "INTERNAL_ERROR", repr(error))


def _error(kind: str, code: str, message: str, status: int | None = None) -> Reply:
    reply = {
        "type": "error",
        "success": False,
        "commandType": kind,
        "errorCode": code,
        "message": message,
    }
    return reply if status is None else {**reply, "status": status}


async def main() -> None:
    """Answer commands until `shutdown`."""
    reader = asyncio.StreamReader(limit=64 * 2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    adapter = Adapter()
    try:
        while line := await reader.readline():
            if not line.strip():
                continue
            command = cast("Command", json.loads(line))
            reply = await adapter.run(command)
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
            if command["type"] == "shutdown":
                return
    finally:
        await adapter.aclose()


if __name__ == "__main__":
    asyncio.run(main())
