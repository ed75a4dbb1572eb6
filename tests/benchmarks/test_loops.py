"""Report of a client on asyncio that cannot keep up, or that ends too early."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.peers import loops
from benchmarks.peers.measuring import CallEnded, Settings, main
from benchmarks.peers.pacing import stamped


class Answer:
    """That of a server which takes everything."""

    def HasField(self, _: str) -> bool:  # noqa: N802 - as protobuf names it
        return False


@dataclass(frozen=True)
class Delivered:
    offset: int
    value: bytes


class SlowPeer:
    """A client that takes its time for every message, and delivers only the first."""

    def request(self, _partition: int, value: bytes, _policy: str) -> bytes:
        return value

    async def exchange(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
        async for value in requests:
            if not value.startswith(stamped(0, 16)):
                time.sleep(0.02)  # noqa: ASYNC251 - this is what makes it slow
            yield Answer()

    async def publish(self, _partition: int, _value: bytes, _policy: str) -> None: ...

    async def read(self, _partition: int, start: str) -> AsyncIterator[Delivered]:
        yield Delivered(0, stamped(0, 16))
        if start == "latest":
            await asyncio.Event().wait()


def test_who_cannot_keep_up_says_so_in_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.peers.pacing.TOO_LATE", 0.1)
    main(
        *("slow", "pytest"),
        {"latency": lambda settings: asyncio.run(loops.latency(SlowPeer(), settings))},
        ["latency", "--servers", "h:1", "--stream", "s", "--rate", "1000", "--duration", "1"],
    )
    line = json.loads(capsys.readouterr().out)
    assert line["unsupported"].startswith("too slow for 1,000 msg/s")


async def test_a_call_that_ends_too_early_is_told_by_its_name() -> None:
    with pytest.raises(CallEnded):
        await loops.consume(SlowPeer(), Settings("consume", (), "s", expected=2))
