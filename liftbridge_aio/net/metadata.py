"""The client's metadata cache: one flight at a time, merged, refreshed when it proves stale."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from liftbridge_aio.cluster_view import lacks_leaders, merge
from liftbridge_aio.errors import ClientClosed, LiftbridgeError, RequestTimeout, StreamNotFound
from liftbridge_aio.model import Metadata, PartitionInfo, StreamInfo
from liftbridge_aio.options import ClientOptions, timer_seconds
from liftbridge_aio.status import CallFailure
from liftbridge_aio.telemetry import MetadataRefreshed
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.convert import metadata_from_wire, partition_from_wire
from liftbridge_aio.wire.rpc import FETCH_METADATA, FETCH_PARTITION_METADATA

from .reporter import Reporter
from .router import Router
from .supervisor import Supervisor

logger = logging.getLogger("liftbridge_aio.net")

_LIMITS: Final = (4.5,)
"""Seconds for one try. A server waits up to 3 s for dead peers and then answers without them,
unless our own deadline comes first: so none is sent, and the bound here is longer (W28)."""

_LIMITS_IN_DOUBT: Final = (1.0, 0.5, 3.5)
"""The same where a broker seems to be dead. A server whose call is reset stops waiting for it, and
answers at once from then on; the third time is for one that was asked again before it had stopped.
"""

_SLOW: Final = 1.0
"""Seconds after which an answer is out of date when it comes: servers write down who leads before
they wait for peers that are dead (W28). Asked again at once, they have the rest ready."""
_AGAIN: Final = 1.0
"""Seconds that another answer may take; else the one before has to do."""

_MAX_AGE: Final = 300.0
"""Seconds after which what is known is asked for again: nobody says that a stream was made anew
with more partitions, or that a broker was added."""


class MetadataCache:
    """Holds the snapshot and renews it."""

    def __init__(self, options: ClientOptions, supervisor: Supervisor, reporter: Reporter) -> None:
        self.snapshot = Metadata()
        self._call_timeout = timer_seconds(options.call_timeout)
        self._not_found_timeout = timer_seconds(options.not_found_timeout)
        self._supervisor = supervisor
        self._reporter = reporter
        self._router: Router
        self._flights: dict[frozenset[str], asyncio.Future[Metadata]] = {}

    def attach(self, router: Router) -> None:
        """Say through whom to ask; the router in turn reads the snapshot."""
        self._router = router

    async def fetch(
        self,
        streams: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        timeout: float | None = None,
        *,
        patient: bool = True,
    ) -> Metadata:
        """Ask a server and take in the answer. Cancelling abandons the call.

        Args:
            streams: names; None asks for all.
            groups: ids; None asks for none.
            timeout: seconds; None is the client's call_timeout.
            patient: False gives up after every address was tried once.

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
        """
        await self._ask(streams, groups, timeout, patient=patient)
        return self.snapshot

    async def _ask(
        self,
        streams: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        timeout: float | None = None,
        *,
        patient: bool = True,
    ) -> Metadata:
        """Ask a server, take in the answer and return it alone; see `fetch`."""
        response = await self._router.call_any(
            FETCH_METADATA,
            proto.FetchMetadataRequest(streams=list(streams or ()), groups=list(groups or ())),
            self._call_timeout if timeout is None else timeout,
            patient=patient,
            silent_limits=self._limits(),
        )
        answer, unknown_streams, unknown_groups = metadata_from_wire(response)
        self._take_in(answer, unknown_streams, unknown_groups, all_streams=not streams)
        return answer

    def _limits(self) -> Sequence[float]:
        return _LIMITS_IN_DOUBT if self._router.in_doubt else _LIMITS

    def _take_in(
        self,
        answer: Metadata,
        unknown_streams: AbstractSet[str] = frozenset(),
        unknown_groups: AbstractSet[str] = frozenset(),
        *,
        all_streams: bool = False,
    ) -> None:
        self.snapshot = merge(
            self.snapshot,
            answer,
            all_streams=all_streams,
            unknown_streams=unknown_streams,
            unknown_groups=unknown_groups,
            now=datetime.now(UTC),
        )
        self._reporter.metadata_refreshed(
            MetadataRefreshed(len(self.snapshot.brokers), len(self.snapshot.streams))
        )

    def refresh(self, streams: Sequence[str]) -> asyncio.Future[Metadata]:
        """Begin to renew what is known of some streams.

        Who asks for the same meanwhile shares the answer.

        Returns:
            What will be known then, or the errors of `fetch`. Cancelling it abandons the wait; the
            others still get theirs.

        Raises:
            ClientClosed: the client was closed.
        """
        key = frozenset(streams)
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.get_running_loop().create_future()
            self._flights[key] = flight
            try:
                self._supervisor.spawn(self._fly, key, flight, name="metadata")
            except BaseException:
                del self._flights[key]
                raise
        return asyncio.shield(flight)

    async def keep_fresh(self) -> None:
        """Renew what is known now and then, for ever. Ends by being cancelled."""
        while True:
            await asyncio.sleep(_MAX_AGE)
            try:
                await self.fetch(patient=False)
            except LiftbridgeError as error:
                logger.debug("metadata could not be renewed: %s", error)

    def forget(self, stream: str) -> None:
        """Drop what is known of a stream that was just changed; who needs it asks again."""
        streams = {name: info for name, info in self.snapshot.streams.items() if name != stream}
        self.snapshot = replace(self.snapshot, streams=MappingProxyType(streams))

    async def _fetch_fresh(self, streams: Sequence[str]) -> Metadata:
        loop = asyncio.get_running_loop()
        asked, in_doubt = loop.time(), self._router.in_doubt
        answer = await self._ask(streams)
        if not in_doubt and loop.time() - asked > _SLOW:
            try:
                answer = await self._ask(streams, timeout=_AGAIN, patient=False)
            except LiftbridgeError as error:
                logger.debug("metadata that came late could not be renewed: %s", error)
        if lacks_leaders(answer):
            await self._ask_another(streams)
        return self.snapshot

    async def _ask_another(self, streams: Sequence[str]) -> None:
        """Take in what another broker knows. What it does not know may be there all the same."""
        request = proto.FetchMetadataRequest(streams=list(streams))
        try:
            response = await self._router.call_another(FETCH_METADATA, request, _AGAIN)
        except CallFailure as failure:
            logger.debug("metadata that lacks leaders could not be completed: %s", failure)
        else:
            if response is not None:
                answer, _, _ = metadata_from_wire(response)
                self._take_in(answer)

    async def _fly(self, key: frozenset[str], flight: asyncio.Future[Metadata]) -> None:
        try:
            snapshot = await self._fetch_fresh(sorted(key))
        except LiftbridgeError as error:
            flight.set_exception(error)
            flight.exception()  # nobody may be waiting any more
        else:
            flight.set_result(snapshot)
        finally:
            del self._flights[key]
            if not flight.done():
                # A cancelled future would look like a cancellation of whoever waits for it.
                flight.set_exception(ClientClosed("the client was closed while it asked"))
                flight.exception()  # nobody may be waiting any more

    async def stream(self, name: str, *, renew: bool = False) -> StreamInfo:
        """Return what is known of a stream, asking for it if need be.

        "Not found" is asked again for `not_found_timeout` seconds: brokers learn of a new stream
        one after the other. Cancelling abandons the wait.

        Raises:
            StreamNotFound: no broker knows it.
            LiftbridgeError: as `fetch`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._not_found_timeout
        attempt = 0
        if renew:
            await self.refresh([name])
        while True:
            info = self.snapshot.streams.get(name)
            if info is not None:
                return info
            if attempt:
                delay = self._router.delay(attempt)
                if loop.time() + delay > deadline:
                    text = f"no broker knows the stream {name!r}"
                    raise StreamNotFound(text, stream=name)
                await asyncio.sleep(delay)
            attempt += 1
            await self.refresh([name])

    async def partition(self, stream: str, partition: int, timeout: float) -> PartitionInfo:
        """Ask the leader for the state of a partition, within `timeout` seconds.

        Cancelling abandons the call. The leader of a paused partition refuses the question; what
        it says of the whole stream answers it instead: it knows where its closed log ends.

        Raises:
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            LiftbridgeError: as `fetch`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self.snapshot.partition(stream, partition) is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.refresh([stream])
            except TimeoutError as error:
                if isinstance(error, LiftbridgeError):
                    raise
                text = f"no server said within {timeout:g} s who leads"
                raise RequestTimeout(text, stream=stream, partition=partition) from error
        if stream not in self.snapshot.streams:
            text = f"no broker knows the stream {stream!r}"
            raise StreamNotFound(text, stream=stream, partition=partition)

        def look_whether_paused() -> None:
            info = self.snapshot.partition(stream, partition)
            if info is not None and info.paused:
                raise _Paused(info.leader)

        while True:
            left = max(deadline - loop.time(), 0.0)
            try:
                reply = await self._router.call_leader(
                    FETCH_PARTITION_METADATA,
                    proto.FetchPartitionMetadataRequest(stream=stream, partition=partition),
                    left,
                    led=(stream, partition),
                    refresh=self.refresh,
                    on_refusal=look_whether_paused,
                    stream=stream,
                    partition=partition,
                )
                break
            except _Paused as paused:
                left = max(deadline - loop.time(), 0.0)
                info = await self._of_paused(stream, partition, paused.leader, left)
                if info is not None:
                    return info
        info = partition_from_wire(reply.metadata or proto.PartitionMetadata(id=partition))
        # The leader of a paused partition refuses, but v1.9.0 keeps the flag up after a resume.
        return replace(info, paused=False)

    async def _of_paused(
        self, stream: str, partition: int, leader: str, timeout: float
    ) -> PartitionInfo | None:
        """Ask the leader of a paused partition: the others do not know its offsets.

        Returns:
            Its state; None where another broker leads by now.
        """
        response = await self._router.call_leader(
            FETCH_METADATA,
            proto.FetchMetadataRequest(streams=[stream]),
            timeout,
            led=(stream, partition),
            refresh=self.refresh,
            silent_limits=self._limits(),
            stream=stream,
            partition=partition,
        )
        answer, _, _ = metadata_from_wire(response)
        self._take_in(answer)
        info = answer.partition(stream, partition)
        return info if info is not None and info.leader == leader else None


class _Paused(Exception):
    def __init__(self, leader: str) -> None:
        super().__init__(leader)
        self.leader = leader
