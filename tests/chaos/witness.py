"""The witness of a run: a process that uses nothing of this package, and what it is asked for."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from support.servers.node import CURSOR_PARTITIONS

LONGEST_REPLY: Final = 2**30
ACKS_WITHIN: Final = 40.0
WHOLE_WITHIN: Final = 60.0
TESTS: Final = Path(__file__).resolve().parents[1]

Partition = tuple[str, int]
"""A stream and a number."""


class ServersLost(Exception):
    """The servers did not come to work again by themselves; the text says what was missing."""


class Sent(NamedTuple):
    """A message that the witness has published."""

    partition: int
    value: bytes
    is_acked: bool


class Witness:
    """The process; see `probe.py` for what it can be asked.

    Args:
        process: runs `probe.py`.
        nodes: the addresses of all nodes by their ids.
    """

    def __init__(self, process: asyncio.subprocess.Process, nodes: Mapping[str, str]) -> None:
        self._process = process
        self._nodes = nodes
        self.down: set[str] = set()
        """The nodes that are not meant to work now."""
        self._turn = asyncio.Lock()
        self._asked = 0

    @property
    def living(self) -> dict[str, str]:
        """The addresses of the nodes that are meant to work now."""
        return {node: address for node, address in self._nodes.items() if node not in self.down}

    async def first_acks(self, stream: str, partitions: int) -> tuple[float, list[Sent]]:
        """Have it publish to each partition and store cursors, until it has an ack of each.

        Returns:
            When it had the last of these acks, and all that it has sent.

        Raises:
            ServersLost: it was not in time.
        """
        self._asked += 1
        answer = await self._ask(
            "first_acks",
            ACKS_WITHIN,
            targets=[(stream, each) for each in range(partitions)],
            cursors=CURSOR_PARTITIONS,
            prefix=str(self._asked),
        )
        if answer["acked_at"] is None:
            raise ServersLost(answer["missing"])
        sent = [Sent(at, value.encode(), acked) for _, at, value, acked in answer["sends"]]
        return answer["acked_at"], sent

    async def whole(self, streams: list[str], advertised: Mapping[str, str]) -> None:
        """Wait until all nodes agree, and all replicas have what the leaders have.

        Raises:
            ServersLost: they were not in time.
        """
        answer = await self._ask("wait_whole", WHOLE_WITHIN, streams=streams, advertised=advertised)
        if answer["whole_at"] is None:
            raise ServersLost(answer["lacking"])

    async def logs(self, since: Mapping[Partition, int]) -> dict[Partition, dict[int, bytes]]:
        """Return the messages of all partitions by their offsets, as the leaders have them.

        Args:
            since: for each partition: the offset from which on it is read; 0 by default.

        Raises:
            ServersLost: it cannot read one.
        """
        wanted = [[stream, number, offset] for (stream, number), offset in since.items()]
        answer = await self._ask("read_logs", since=wanted)
        if answer["unread"]:
            raise ServersLost(answer["unread"])
        return {
            (stream, number): {offset: base64.b64decode(value) for offset, value in messages}
            for stream, number, messages in answer["logs"]
        }

    async def _ask(self, do: str, within: float = 60.0, **request: Any) -> dict[str, Any]:
        """Ask for one thing and wait for its answer.

        Raises:
            ServersLost: it did not answer within 30 seconds more than it was given.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        async with self._turn:
            line = {"do": do, "within": within, "nodes": self.living, **request}
            stdin.write(json.dumps(line).encode() + b"\n")
            try:
                async with asyncio.timeout(within + 30):
                    reply = await stdout.readline()
            except TimeoutError:
                raise ServersLost(f"the witness does not answer to {do!r}") from None
        if not reply:
            raise ServersLost(f"the witness ended when asked for {do!r}")
        answer: dict[str, Any] = json.loads(reply)
        return answer


@asynccontextmanager
async def running_witness(folder: Path, nodes: Mapping[str, str]) -> AsyncIterator[Witness]:
    """Start the witness; it ends with the context."""
    with (folder / "probe.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chaos.probe"),
            cwd=TESTS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=LONGEST_REPLY,
        )
    try:
        yield Witness(process, nodes)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            process.kill()
        await process.wait()
