"""A TCP proxy that breaks connections on demand.

Put `FaultProxy` between a client and a broker to see how a program behaves when the network
fails. It forwards bytes and knows nothing of what they mean.

    async with EmbeddedBroker() as broker, FaultProxy(broker.address) as proxy:
        async with Client(proxy.address) as client:
            ...
            await proxy.cut()
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self, cast

from liftbridge_aio.addresses import format_address, parse_address


@dataclass(frozen=True, slots=True)
class ProxyStatistics:
    """What a `FaultProxy` has done so far."""

    connections: int
    """Connections that clients have opened."""
    open_connections: int
    """Those of them that are open now."""
    bytes_to_target: int
    """Bytes forwarded from clients to the target."""
    bytes_to_clients: int
    """Bytes forwarded from the target to clients."""


class FaultProxy:
    """A TCP proxy in front of one address, for tests.

    Memory stays bounded: where one end does not read, the other end is not read either. The
    proxy may be entered in one task and left in another.
    """

    def __init__(self, target_address: str, host: str = "127.0.0.1", port: int = 0) -> None:
        """Choose the target and where to listen; nothing is opened yet.

        Args:
            target_address: `host:port` to which connections are forwarded.
            host: where to listen.
            port: where to listen; 0 takes a free port.

        Raises:
            ValueError: `target_address` is no address.
        """
        self._target = parse_address(target_address)
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._dials: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()
        self._clients: set[_ClientSide] = set()
        self._frozen = False
        self._connections = 0
        self._bytes_to_target = 0
        self._bytes_to_clients = 0

    @property
    def address(self) -> str:
        """The `host:port` to give to clients; the port is known once the proxy was entered."""
        return format_address(self._host, self._port)

    def statistics(self) -> ProxyStatistics:
        """Count what was forwarded so far."""
        return ProxyStatistics(
            connections=self._connections,
            open_connections=len(self._clients),
            bytes_to_target=self._bytes_to_target,
            bytes_to_clients=self._bytes_to_clients,
        )

    def __repr__(self) -> str:
        target = format_address(*self._target)
        return f"<FaultProxy {self.address} -> {target} {self._state} {self.statistics()}>"

    @property
    def _state(self) -> str:
        if self._closing.is_set():
            return "closed"
        if self._dials is None:
            return "not started"
        if self._frozen:
            return "frozen"
        return "refusing" if self._server is None else "open"

    # --- life ---

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            OSError: the port is taken.
            RuntimeError: the proxy was entered before.
        """
        if self._supervisor is not None:
            text = "a proxy is entered once; make another one"
            raise RuntimeError(text)
        listening = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(listening), name="fault-proxy")
        try:
            await listening
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close; see `aclose`."""
        await self.aclose()

    async def aclose(self) -> None:
        """Abort every connection and stop to listen; idempotent, from any task.

        Cancelling abandons the wait, not the closing.
        """
        self._closing.set()
        if self._supervisor is not None:
            await asyncio.wait([self._supervisor])

    async def _supervise(self, listening: asyncio.Future[None]) -> None:
        try:
            async with asyncio.TaskGroup() as self._dials:
                try:
                    await self._listen()
                except (OSError, OverflowError) as error:  # the port is taken, or is none
                    if not listening.done():
                        listening.set_exception(error)
                    return
                if not listening.done():
                    listening.set_result(None)
                await self._closing.wait()
                self._stop_listening()
                await self.cut()
        finally:
            self._closing.set()
            self._stop_listening()
            for client in self._clients:
                client.abort()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _ClientSide(self), self._host, self._port, reuse_address=True
        )
        self._port = self._server.sockets[0].getsockname()[1]

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    # --- faults ---

    async def cut(self) -> None:
        """Abort every connection now and go on listening; returns when they are gone.

        Cancelling abandons the wait; the connections are aborted all the same.
        """
        clients = list(self._clients)
        for client in clients:
            client.abort()
        for client in clients:
            await client.gone.wait()

    async def refuse(self) -> None:
        """Refuse new connections from now on; open ones stay."""
        self._stop_listening()
        await asyncio.sleep(0)  # some loops free the port in their next round

    async def accept(self) -> None:
        """Accept connections again, on the same port.

        Raises:
            OSError: somebody else took the port meanwhile.
        """
        if self._server is None and not self._closing.is_set():
            await self._listen()

    def freeze(self) -> None:
        """Forward nothing more, but keep every connection open: the links are half open.

        New connections are accepted, and nothing comes through them either.
        """
        self._set_frozen(frozen=True)

    def thaw(self) -> None:
        """Forward again; what was sent meanwhile arrives late, nothing is lost."""
        self._set_frozen(frozen=False)

    def _set_frozen(self, *, frozen: bool) -> None:
        self._frozen = frozen
        for client in self._clients:
            client.update()
            client.target.update()

    # --- what the two sides of a connection need ---

    @property
    def frozen(self) -> bool:
        """Whether nothing is forwarded at present."""
        return self._frozen

    def _opened(self, client: _ClientSide) -> asyncio.Task[None] | None:
        """Take in a connection; the task that dials the target for it, or None if closing."""
        if self._closing.is_set() or self._dials is None:
            return None
        self._connections += 1
        self._clients.add(client)
        return self._dials.create_task(self._dial(client), name="fault-proxy-dial")

    async def _dial(self, client: _ClientSide) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: client.target, *self._target)
        except OSError:
            client.abort()  # the target is down: to the client that is a broken connection

    def _closed(self, client: _ClientSide) -> None:
        self._clients.discard(client)

    def _count_to_target(self, size: int) -> None:
        self._bytes_to_target += size

    def _count_to_clients(self, size: int) -> None:
        self._bytes_to_clients += size


class _Side(asyncio.Protocol):
    """One end of a forwarded connection: what it receives, its peer writes."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.transport: asyncio.Transport | None = None
        self.ended = False  # the program at this end has sent all it wanted to
        self._end_passed_on = False
        self._held = bytearray()  # received before reading could be stopped
        self._writable = True

    @property
    def peer(self) -> _Side:
        raise NotImplementedError

    def count(self, size: int) -> None:
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.peer.update()

    def data_received(self, data: bytes) -> None:
        self._held += data
        self.update()

    def eof_received(self) -> bool:
        """Keep this end open: the peer may still have something to send to it."""
        self.ended = True
        self.update()
        return True

    def pause_writing(self) -> None:
        self._writable = False
        self.peer.update()

    def resume_writing(self) -> None:
        self._writable = True
        self.peer.update()

    def update(self) -> None:
        """Forward what is here, and read on exactly while that can be forwarded too."""
        peer = self.peer.transport
        forwarding = peer is not None and not self.proxy.frozen
        if peer is not None and forwarding and not peer.is_closing():
            self._forward_to(peer)
        transport = self.transport
        if transport is None or transport.is_closing() or self.ended:
            return
        wanted = forwarding and self.peer._writable  # noqa: SLF001 - two halves of one thing
        if wanted and not transport.is_reading():
            transport.resume_reading()
        elif not wanted and transport.is_reading():
            transport.pause_reading()

    def _forward_to(self, peer: asyncio.Transport) -> None:
        if self._held:
            data, self._held = self._held, bytearray()  # first: writing may call back into here
            self.count(len(data))
            peer.write(data)
        if self.ended and not self._end_passed_on:
            self._end_passed_on = True
            peer.write_eof()
            if self.peer._end_passed_on and self.transport is not None:  # noqa: SLF001 - two halves of one thing
                self.transport.close()
                peer.close()

    def connection_lost(self, exc: Exception | None) -> None:
        target = self.peer.transport
        if target is not None and not target.is_closing():
            if exc is None:
                target.close()
            else:
                target.abort()


class _ClientSide(_Side):
    """The end to a client. It owns the other end and the task that dials it."""

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__(proxy)
        self.target = _TargetSide(proxy, self)
        self.gone = asyncio.Event()
        self._dial: asyncio.Task[None] | None = None

    @property
    def peer(self) -> _Side:
        return self.target

    def count(self, size: int) -> None:
        self.proxy._count_to_target(size)  # noqa: SLF001 - two halves of one thing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dial = self.proxy._opened(self)  # noqa: SLF001 - two halves of one thing
        if self._dial is None:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._dial is not None:
            self._dial.cancel()
        super().connection_lost(exc)
        self.proxy._closed(self)  # noqa: SLF001 - two halves of one thing
        self.gone.set()

    def abort(self) -> None:
        """Drop both ends, whatever is still on its way."""
        for transport in (self.transport, self.target.transport):
            if transport is not None:
                transport.abort()


class _TargetSide(_Side):
    """The end to the target."""

    def __init__(self, proxy: FaultProxy, client: _ClientSide) -> None:
        super().__init__(proxy)
        self._client = client

    @property
    def peer(self) -> _Side:
        return self._client

    def count(self, size: int) -> None:
        self.proxy._count_to_clients(size)  # noqa: SLF001 - two halves of one thing
