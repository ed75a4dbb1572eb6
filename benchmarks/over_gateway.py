"""The gateway beside a bare handler with the same publish, and beside the reference server."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
    """Append to all servers in turn, request by request."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    connections = {name: await _Connection.open(each) for name, each in servers.items()}
    body = b'{"text":"%b"}' % (b"x" * _SIZE)
    for name, connection in connections.items():
        if name != BARE:
            await connection.request("PUT", servers[name].path, b"", "application/json")
    for number in range(rounds + 1):
        took: dict[str, list[int]] = {name: [] for name in servers}
        used = {name: cpu_seconds(each.pids) or 0.0 for name, each in servers.items()}
        for _ in range(appends if number else _QUICK):
            for name, connection in connections.items():
                began = time.perf_counter_ns()
                await connection.request("POST", servers[name].path, body, "application/json")
                took[name].append(time.perf_counter_ns() - began)
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
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n"
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


class _SseReader(asyncio.Protocol):
    """Counts what it is sent."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self.received = 0
        self._note = note
        self._begun = False
        self._rest = b""

    def connection_lost(self, _: Exception | None) -> None:
        self._note("gone")

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        tail = self._rest + data[-len(_END) - 200 :]
        if not self._begun and b"streamNextOffset" in tail:
            self._begun = True
            self._note("began")
        if _END in tail:
            self._note("ended")
        self._rest = tail[-len(_END) - 200 :]


async def _fan_out(server: _Server, number: int, readers: int) -> tuple[float, float]:
    """Append events with many readers; return MB/s of all, and processor time for each MB."""
    loop = asyncio.get_running_loop()
    path = f"{server.path}-{number}"
    connection = await _Connection.open(server)
    await connection.request("PUT", path, b"", "text/plain")
    waiting = dict.fromkeys(("began", "ended", "gone"), readers)
    events = {name: asyncio.Event() for name in waiting}

    def note(name: str) -> None:
        waiting[name] -= 1
        if not waiting[name]:
            events[name].set()

    protocols, transports = [], []
    request = f"GET {path}?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    async with asyncio.timeout(_TIMEOUT):
        for _ in range(readers):
            transport, protocol = await loop.create_connection(
                lambda: _SseReader(note), "127.0.0.1", server.port
            )
            transport.write(request)
            transports.append(transport)
            protocols.append(protocol)
        await events["began"].wait()
        await connection.close()  # it may be too old by now
        connection = await _Connection.open(server)
        before, used = sum(each.received for each in protocols), cpu_seconds(server.pids) or 0.0
        began = time.perf_counter()
        for _ in range(_EVENTS):
            await connection.request("POST", path, b"x" * _EVENT_BYTES, "text/plain")
        await connection.request("POST", path, _END, "text/plain")
        await events["ended"].wait()
        took = time.perf_counter() - began
    megabytes = (sum(each.received for each in protocols) - before) / 1e6
    cpu = (cpu_seconds(server.pids) or 0.0) - used
    for transport in transports:
        transport.abort()
    await events["gone"].wait()
    await connection.close()
    return megabytes / took, cpu / megabytes * 1e6
