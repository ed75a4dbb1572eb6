"""The gateway beside a bare handler with the same publish, and beside the reference server."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.servers.durable_streams import DurableStreamsServer
from support.servers.gateway import GatewayProcess
from support.servers.npm_packages import install_packages
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

from .own_programs import environment, module
from .processes import cpu_seconds
from .serving import processes_in, running
from .summary import Spread
from .table import small, times, with_spread

GATEWAY: Final = "gateway"
BARE: Final = "aiohttp, bare"
REFERENCE: Final = "reference server"
APPENDS: Final = 1_000
READERS: Final = 1_000
_QUICK: Final = 20
_BLOCK: Final = 20
"""Appends in a row to one server."""
_PAUSE: Final = 0.002
_WARM_UP: Final = 100
_EVENTS: Final = 25
_EVENT_BYTES: Final = 8_000
_SIZE: Final = 100
_STREAM: Final = "bare"
_TIMEOUT: Final = 120.0
_READY: Final = 30.0
_END: Final = b"<the end>"


@dataclass(frozen=True, slots=True)
class Served:
    """What a server did, over the rounds.

    Attributes:
        server: Its name.
        figure: What was measured, with its unit.
        values: The figure.
        ratio: To the server compared with; None for that one.
        cpu: Microseconds of processor time of the server for each append, or for each MB.
    """

    server: str
    figure: str
    values: Spread
    ratio: Spread | None
    cpu: Spread

    def as_json(self) -> dict[str, Any]:
        """As the result files have it."""
        return {
            "server": self.server,
            "figure": self.figure,
            "values": self.values.as_json(),
            "ratio": None if self.ratio is None else self.ratio.as_json(),
            "cpu_microseconds": self.cpu.as_json(),
        }


COLUMNS: Final = ("server", "figure", "", "ratio", "server CPU \N{MICRO SIGN}s")


def served_row(served: Served) -> tuple[str, ...]:
    """A row of the table."""
    ratio = "" if served.ratio is None else with_spread(served.ratio, times)
    values = with_spread(served.values, small)
    return (served.server, served.figure, values, ratio, with_spread(served.cpu, small))


@dataclass(frozen=True, slots=True)
class _Server:
    port: int
    pids: tuple[int, ...]

    @property
    def path(self) -> str:
        return f"/v1/stream/{_STREAM}"


@contextmanager
def _servers(server: str) -> Iterator[dict[str, _Server]]:
    with ExitStack() as stack:
        folders = {
            name: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-")))
            for name in (GATEWAY, BARE, REFERENCE)
        }
        there = stack.enter_context(running(server, 1))
        [address] = there.addresses
        gateway = GatewayProcess(address, folders[GATEWAY])
        gateway.start()
        stack.callback(gateway.stop)
        [port] = free_ports(1)
        words = (*module("benchmarks.peers.bare_handler"), address, _STREAM, str(port))
        bare = ServerProcess(words, folders[BARE], environment=environment())
        bare.start()
        stack.callback(bare.kill)
        reference = DurableStreamsServer(install_packages(), folders[REFERENCE])
        reference.start()
        stack.callback(reference.kill)
        ports = {GATEWAY: gateway.port, BARE: port, REFERENCE: reference.port}
        yield {
            name: _Server(ports[name], processes_in(folder.resolve()))
            for name, folder in folders.items()
        }


def measure_gateway(
    server: str, rounds: int, tell: Callable[[str], None], *, quick: bool
) -> list[Served]:
    """Append one at a time, and have many readers of Server-Sent Events; servers take turns.

    Args:
        server: `real`, `embedded`, or the path of a binary.
        rounds: How often each server has its turn.
        tell: Is told how far it has come.
        quick: Few appends and readers: shows that it works, and no more.

    Raises:
        ServerUnavailable: Liftbridge cannot be built.
        Exception: A server could not be started, see its module.
    """
    appends, readers = (_QUICK, _QUICK) if quick else (APPENDS, READERS)
    with _servers(server) as servers:
        tell(f"append: {rounds} rounds of {appends}")
        appended = asyncio.run(_append_rounds(servers, rounds, appends))
        streaming = {name: each for name, each in servers.items() if name != BARE}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in streaming}
        for number in range(1, rounds + 1):
            for name, each in streaming.items():
                tell(f"{readers} readers: round {number} of {rounds}, {name}")
                found[name].append(asyncio.run(_fan_out(each, number, readers)))
    return [
        *_served("append, p50 \N{MICRO SIGN}s", appended, BARE),
        *_served(f"{readers:,} readers, MB/s", found, REFERENCE),
    ]


def _served(
    figure: str, found: Mapping[str, list[tuple[float, float]]], against: str
) -> Iterator[Served]:
    for name, pairs in found.items():
        ratio = None
        if name != against:
            ratio = Spread.of([a / b for (a, _), (b, _) in zip(pairs, found[against], strict=True)])
        values, cpu = zip(*pairs, strict=True)
        yield Served(name, figure, Spread.of(values), ratio, Spread.of(cpu))


async def _append_rounds(
    servers: Mapping[str, _Server], rounds: int, appends: int
) -> dict[str, list[tuple[float, float]]]:
    """Append to all servers in turn, some requests at a time.

    A server may go on with an append after its response; that must not fall on the next server.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    connections = {name: await _Connection.open(each) for name, each in servers.items()}
    body = b'{"text":"%b"}' % (b"x" * _SIZE)
    for name, connection in connections.items():
        if name != BARE:
            await connection.request("PUT", servers[name].path, b"", "application/json")
    for number in range(rounds + 1):
        took: dict[str, list[int]] = {name: [] for name in servers}
        used = {name: cpu_seconds(each.pids) or 0.0 for name, each in servers.items()}
        for _ in range((appends if number else _WARM_UP) // _BLOCK):
            for name, connection in connections.items():
                for _ in range(_BLOCK):
                    began = time.perf_counter_ns()
                    await connection.request("POST", servers[name].path, body, "application/json")
                    took[name].append(time.perf_counter_ns() - began)
                await asyncio.sleep(_PAUSE)
        if not number:
            continue  # it was the warm-up
        for name, each in servers.items():
            cpu = (cpu_seconds(each.pids) or 0.0) - used[name]
            found[name].append((statistics.median(took[name]) / 1e3, cpu / appends * 1e6))
    for connection in connections.values():
        await connection.close()
    return found


class _Connection:
    """A connection over which requests are sent, with next to no work."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, server: _Server) -> _Connection:
        """Connect, as soon as the server listens."""
        async with asyncio.timeout(_READY):
            while True:
                try:
                    return cls(*await asyncio.open_connection("127.0.0.1", server.port))
                except OSError:
                    await asyncio.sleep(0.05)

    async def request(self, method: str, path: str, body: bytes, content_type: str) -> None:
        """Send a request, and read its response, whose body is empty."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 20"):
            raise OSError(answer.decode())
        if b"\r\ntransfer-encoding: chunked" in answer.lower():
            await self._reader.readuntil(b"0\r\n\r\n")

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()


async def _fan_out(server: _Server, number: int, readers: int) -> tuple[float, float]:
    """Append events with many readers; return MB/s of all, and processor time for each MB."""
    path = f"{server.path}-{number}"
    connection = await _Connection.open(server)
    await connection.request("PUT", path, b"", "text/plain")
    words = (str(server.port), f"{path}?offset=-1&live=sse", str(readers), _END.decode())
    reading = await asyncio.create_subprocess_exec(
        *module("benchmarks.peers.sse_readers"),
        *words,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            await _said(reading)
            await connection.close()  # it may be too old by now
            connection = await _Connection.open(server)
            used, began = cpu_seconds(server.pids) or 0.0, time.perf_counter()
            for _ in range(_EVENTS):
                await connection.request("POST", path, b"x" * _EVENT_BYTES, "text/plain")
            await connection.request("POST", path, _END, "text/plain")
            megabytes = (await _said(reading))["received"] / 1e6
            took = time.perf_counter() - began
            cpu = (cpu_seconds(server.pids) or 0.0) - used
    finally:
        with suppress(ProcessLookupError):
            reading.kill()
        await reading.wait()
        await connection.close()
    return megabytes / took, cpu / megabytes * 1e6


async def _said(reading: asyncio.subprocess.Process) -> dict[str, Any]:
    """The next line of the readers.

    Raises:
        OSError: They have ended; what they wrote about it is on stderr.
    """
    line = b"" if reading.stdout is None else await reading.stdout.readline()
    if not line:
        raise OSError("the readers have ended")
    said: dict[str, Any] = json.loads(line)
    return said
