"""All links of a client: one per address and purpose, made when needed, watched while quiet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from liftbridge_aio.errors import ClientClosed
from liftbridge_aio.options import ClientOptions, timer_seconds
from liftbridge_aio.status import CallFailure, Code, Reach, error_from
from liftbridge_aio.telemetry import Connected, ConnectFailed, Lost

from .grpclib_shape import data_lane_available
from .link import Link, Purpose
from .reporter import Reporter
from .supervisor import Child, Supervisor
from .tls_context import ClientTLS

logger = logging.getLogger("liftbridge_aio.net")

_CONTROL_WINDOW: Final = 2**20


class LinkPool:
    """Makes links, shares them, watches them and closes them."""

    def __init__(
        self,
        supervisor: Supervisor,
        options: ClientOptions,
        reporter: Reporter,
        subscribe_window: Callable[[], int],
    ) -> None:
        self._supervisor = supervisor
        self._reporter = reporter
        self._subscribe_window = subscribe_window
        self._connect_timeout = timer_seconds(options.connect_timeout)
        self._health_interval = timer_seconds(options.health_interval)
        self._health_timeout = timer_seconds(options.health_timeout)
        self._max_receive_bytes = options.max_receive_bytes
        self._data_lane = options.data_lane and data_lane_available()
        self._tls = None if options.tls is None else ClientTLS(options.tls)
        self._unfit: dict[str, CallFailure] = {}
        self._doubtful: set[str] = set()
        self._links: dict[tuple[str, Purpose], Link] = {}
        self._connecting: dict[tuple[str, Purpose], asyncio.Future[Link]] = {}
        self._watchers: dict[Link, Child] = {}

    @property
    def links(self) -> tuple[Link, ...]:
        """The links that are up."""
        return tuple(self._links.values())

    def doubtful(self, address: str) -> bool:
        """Whether a link was lost or could not be made there, and no call answered since.

        A server that is frozen, or a proxy without a server, takes connections all the same.
        """
        return address in self._doubtful

    def answered(self, address: str) -> None:
        """Take note that a call was answered there."""
        self._doubtful.discard(address)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What lasts of the reasons why servers cannot be connected to, such as TLS that fails."""
        return tuple(failure.text for failure in self._unfit.values())

    async def get(self, address: str, purpose: Purpose) -> Link:
        """Return the link to `address`, connecting if there is none.

        Several callers share one attempt to connect. Cancelling abandons the wait only.

        Raises:
            CallFailure: cannot connect.
            ClientClosed: the client was closed.
        """
        key = (address, purpose)
        link = self._links.get(key)
        if link is not None and link.up:
            return link
        attempt = self._connecting.get(key)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_future()
            self._connecting[key] = attempt
            try:
                self._supervisor.spawn(
                    self._connect, key, attempt, name=f"connect:{purpose.value}:{address}"
                )
            except BaseException:
                del self._connecting[key]
                raise
        return await asyncio.shield(attempt)

    async def _connect(self, key: tuple[str, Purpose], attempt: asyncio.Future[Link]) -> None:
        address, purpose = key
        window = self._subscribe_window() if purpose is Purpose.SUBSCRIBE else _CONTROL_WINDOW
        try:
            link = Link(
                address,
                purpose,
                stream_window=window,
                max_receive_bytes=self._max_receive_bytes,
                data_lane=self._data_lane,
                tls=self._tls,
                supervisor=self._supervisor,
                on_lost=self._lost,
            )
            await link.connect(self._connect_timeout)
        except CallFailure as failure:
            self._could_not_connect(address, purpose, failure)
            attempt.set_exception(failure)
            attempt.exception()  # nobody may be waiting any more
        except Exception as error:
            unforeseen = CallFailure(Code.UNKNOWN, f"cannot connect to {address}", Reach.NOT_SENT)
            unforeseen.__cause__ = error
            attempt.set_exception(unforeseen)
            attempt.exception()
            raise
        else:
            try:
                watcher = self._supervisor.spawn(
                    self._watch, link, name=f"watch:{purpose.value}:{address}"
                )
            except ClientClosed:
                link.close()  # nobody else would: the pool was closed before this link stood
                return
            self._links[key] = link
            self._watchers[link] = watcher
            logger.debug("connected %r", link)
            self._unfit.pop(address, None)
            self._reporter.connected(Connected(address, purpose.value))
            attempt.set_result(link)
        finally:
            del self._connecting[key]
            if not attempt.done():
                text = f"the client was closed while connecting to {address}"
                attempt.set_exception(CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT))
                attempt.exception()

    def _could_not_connect(self, address: str, purpose: Purpose, failure: CallFailure) -> None:
        """Tell of it; what lasts is worth a warning, the first time."""
        self._doubtful.add(address)
        logged = logger.debug
        if failure.unfit is None:
            self._unfit.pop(address, None)
        else:
            if address not in self._unfit:
                logged = logger.warning
            self._unfit[address] = failure
        logged("cannot connect to %s: %s", address, failure.text)
        error = error_from("connect", failure)
        self._reporter.connect_failed(ConnectFailed(address, purpose.value, error))

    async def _watch(self, link: Link) -> None:
        """Ask a quiet server for a sign of life; half-open links show in no other way."""
        loop = asyncio.get_running_loop()
        while link.up:
            quiet = loop.time() - link.last_received
            if quiet < self._health_interval:
                await asyncio.sleep(self._health_interval - quiet)
                continue
            asked = loop.time()
            try:
                await self._supervisor.call(
                    link.check_health, self._health_timeout, name=f"health:{link.address}"
                )
            except CallFailure as failure:
                if link.last_received < asked:
                    link.fail(f"no sign of life: {failure.text}")
            else:
                self.answered(link.address)

    def _lost(self, link: Link, reason: str) -> None:
        key = (link.address, link.purpose)
        if self._links.get(key) is link:
            del self._links[key]
        watcher = self._watchers.pop(link, None)
        if watcher is not None:
            watcher.cancel()
        self._doubtful.add(link.address)
        self._reporter.lost(Lost(link.address, link.purpose.value, reason))

    def resize_subscribe_windows(self) -> None:
        """Tell every subscribe link the window that holds now."""
        window = self._subscribe_window()
        for link in self._links.values():
            if link.purpose is Purpose.SUBSCRIBE:
                link.set_stream_window(window)

    def close(self) -> None:
        """Close every link. May be called any number of times."""
        links = list(self._links.values())
        self._links.clear()
        self._watchers.clear()
        for link in links:
            link.close()
