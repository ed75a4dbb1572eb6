"""The client's metadata cache: refreshed when it proves stale, one fetch at a time, merged."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from liftbridge_aio._core.absence import Incarnation
from liftbridge_aio._core.status import CallFailure
from liftbridge_aio._runtime.supervisor import Child, Supervisor
from liftbridge_aio.errors import (
    ClientClosed,
    ConnectionFailed,
    LiftbridgeError,
    RequestTimeout,
    StreamNotFound,
)
from liftbridge_aio.model import Metadata, PartitionInfo, StreamInfo
from liftbridge_aio.options import ClientOptions, timer_seconds
from liftbridge_aio.telemetry import MetadataRefreshed
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.convert import metadata_from_wire, partition_from_wire
from liftbridge_aio.wire.rpc import FETCH_METADATA, FETCH_PARTITION_METADATA

from .core.metadata_merge import lacks_leaders, merge
from .leader_call import call_leader
from .reporter import Reporter
from .router import Router
from .stream_lookup import find_streams, stream_not_found, unusable_error

logger = logging.getLogger("liftbridge_aio.net")

_TIMEOUTS: Final = (4.5,)
"""Seconds for one attempt. A server waits up to 3 s for dead peers, and then answers without them
unless the deadline of the call comes first: so none is sent, and the timeout here is longer."""

_TIMEOUTS_IF_SUSPECTED: Final = (1.0, 0.5, 3.5)
"""The same if a broker is suspected to be dead. A server whose call is reset stops waiting for it
and answers at once from then on; the third attempt is for one that was called again before that."""

_SLOW: Final = 1.0
"""Seconds after which an answer is out of date when it comes: servers collect the leaders before
they wait for dead peers. Asked again at once, they answer with what has changed."""
_AGAIN: Final = 1.0
"""Seconds that another answer may take; after that the first one is used."""

_MAX_AGE: Final = 300.0
"""Seconds after which metadata is fetched again: servers do not announce that a stream was created
again with more partitions, or that a broker was added."""


class MetadataCache:
    """Holds the snapshot of the cluster's metadata, and renews it.

    The snapshot is replaced here only; readers get a frozen value.
    """

    def __init__(self, options: ClientOptions, supervisor: Supervisor, reporter: Reporter) -> None:
        self.snapshot = Metadata()
        self._call_timeout = timer_seconds(options.call_timeout)
        self._not_found_timeout = timer_seconds(options.not_found_timeout)
        self._supervisor = supervisor
        self._reporter = reporter
        self._router: Router
        self._fetches: dict[frozenset[str], asyncio.Future[Incarnation]] = {}
        """The results of fetches that are awaited, by the streams that callers asked for."""
        self._batch: list[frozenset[str]] = []
        """The keys of fetches that have not begun: one call will fetch all their streams."""
        self._batcher: Child | None = None
        """Runs that call. Cancelled before it began, it leaves its keys behind."""
        self._missing: set[str] = set()
        """Streams that were known, and which the last answer about them did not know."""
        self._refreshing: set[str] = set()
        self._watermarks: dict[str, dict[int, int]] = {}
        """High watermarks of partitions, from the last answers of their leaders."""

    def attach(self, router: Router) -> None:
        """Set the router that makes the calls; it reads the snapshot in turn."""
        self._router = router

    async def fetch(
        self,
        streams: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        timeout: float | None = None,
        *,
        expected: Collection[str] = (),
        retry: bool = True,
    ) -> Metadata:
        """Fetch metadata and merge it into the snapshot. Cancelling abandons the call.

        Args:
            streams: names; None asks for all.
            groups: ids; None asks for none.
            timeout: seconds; None is the client's call_timeout.
            expected: streams that should exist, `ANY_STREAM` for any at all: the call is repeated
                until each is known or counts as gone (`Absence`).
            retry: False gives up after every address was tried once.

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
            StreamNotFound: an expected stream was denied, for too short a time to count as gone.
        """
        if not expected:
            await self._fetch_once(streams, groups, timeout, retry=retry)
            return self.snapshot

        async def ask(left: float) -> Incarnation:
            await self._fetch_once(streams, groups, left)
            return self._router.answered_by

        limit = self._call_timeout if timeout is None else timeout
        await find_streams(self._router, expected, limit, ask)
        return self.snapshot

    async def _fetch_once(
        self,
        streams: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        timeout: float | None = None,
        *,
        retry: bool = True,
    ) -> Metadata:
        """Fetch metadata, merge it into the snapshot and return the answer alone; see `fetch`."""
        response = await self._router.call_any(
            FETCH_METADATA,
            proto.FetchMetadataRequest(streams=list(streams or ()), groups=list(groups or ())),
            self._call_timeout if timeout is None else timeout,
            retry=retry,
            attempt_timeouts=self._attempt_timeouts(),
        )
        answer, unknown_streams, unknown_groups = metadata_from_wire(response)
        self._merge_answer(answer, unknown_streams, unknown_groups, all_streams=not streams)
        return answer

    def _attempt_timeouts(self) -> Sequence[float]:
        return _TIMEOUTS_IF_SUSPECTED if self._router.any_suspected else _TIMEOUTS

    def _merge_answer(
        self,
        answer: Metadata,
        unknown_streams: AbstractSet[str] = frozenset(),
        unknown_groups: AbstractSet[str] = frozenset(),
        *,
        all_streams: bool = False,
    ) -> None:
        known = self.snapshot.streams
        self.snapshot = merge(
            self.snapshot,
            answer,
            all_streams=all_streams,
            unknown_streams=unknown_streams,
            unknown_groups=unknown_groups,
            now=datetime.now(UTC),
        )
        for name in known.keys() & self._watermarks.keys():
            info = self.snapshot.streams.get(name)
            if info is None or info.creation_timestamp != known[name].creation_timestamp:
                del self._watermarks[name]
        self._missing |= known.keys() - self.snapshot.streams.keys()
        self._missing -= self.snapshot.streams.keys()
        self._reporter.metadata_refreshed(
            MetadataRefreshed(len(self.snapshot.brokers), len(self.snapshot.streams))
        )

    def refresh(self, streams: Sequence[str]) -> asyncio.Future[Incarnation]:
        """Begin to fetch metadata of some streams.

        Callers for the same streams share one fetch. Callers that ask before the event loop has
        turned share one call: a group that opens partitions of 100 streams makes one, not 100.

        Returns:
            The server that answered, or the errors of `fetch`. Cancelling this future abandons
            the wait; the other callers still get their result.

        Raises:
            ClientClosed: the client was closed.
        """
        key = frozenset(streams)
        fetching = self._fetches.get(key)
        if fetching is None:
            if not self._batch or (self._batcher is not None and self._batcher.done):
                self._batcher = self._supervisor.spawn(self._run_batch, name="metadata")
            self._batch.append(key)
            fetching = self._fetches[key] = asyncio.get_running_loop().create_future()
        return asyncio.shield(fetching)

    async def keep_fresh(self) -> None:
        """Refresh all metadata periodically, until cancelled."""
        while True:
            # Not at the same moment as all other clients that were started together.
            await asyncio.sleep(_MAX_AGE * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            try:
                await self.fetch(retry=False)
            except LiftbridgeError as error:
                logger.debug("metadata could not be refreshed: %s", error)
            except Exception:
                logger.exception("metadata could not be refreshed; it is retried")

    def forget(self, stream: str) -> None:
        """Drop a stream that was just changed from the snapshot; the next use fetches it."""
        self._drop(stream)
        self._missing.discard(stream)

    def mark_missing(self, stream: str) -> None:
        """Drop a stream that a server does not know from the snapshot; the next use fetches it."""
        if stream in self.snapshot.streams:
            self._drop(stream)
            self._missing.add(stream)

    def _drop(self, stream: str) -> None:
        self._watermarks.pop(stream, None)
        streams = {name: info for name, info in self.snapshot.streams.items() if name != stream}
        self.snapshot = replace(self.snapshot, streams=MappingProxyType(streams))

    def refresh_in_background(self, stream: str) -> None:
        """Begin to refresh a stream that may have been created again.

        The snapshot stays in use until the answer comes. A second fetch follows after a second,
        because brokers learn of changes one after the other.
        """
        if stream not in self._refreshing and self._supervisor.running:
            self._refreshing.add(stream)
            self._supervisor.spawn(self._refresh_twice, stream, name=f"refresh:{stream}")

    async def _refresh_twice(self, stream: str) -> None:
        try:
            await self._refresh_or_mark_missing(stream)
            await asyncio.sleep(_AGAIN)
        finally:
            self._refreshing.discard(stream)
        await self._refresh_or_mark_missing(stream)

    async def _refresh_or_mark_missing(self, stream: str) -> None:
        try:
            await self.refresh([stream])
        except LiftbridgeError as error:
            logger.debug("metadata of %s could not be refreshed: %s", stream, error)
            self.mark_missing(stream)

    async def _fetch_fresh(self, streams: Sequence[str]) -> Incarnation:
        loop = asyncio.get_running_loop()
        asked, any_suspected = loop.time(), self._router.any_suspected
        answer = await self._fetch_once(streams)
        by = self._router.answered_by
        if not any_suspected and loop.time() - asked > _SLOW:
            try:
                answer = await self._fetch_once(streams, timeout=_AGAIN, retry=False)
                by = self._router.answered_by
            except LiftbridgeError as error:
                logger.debug("metadata that came late could not be refreshed: %s", error)
        if lacks_leaders(answer):
            await self._fetch_from_another(streams)
        return by

    async def _fetch_from_another(self, streams: Sequence[str]) -> None:
        """Merge the answer of another broker. What it does not know may exist all the same."""
        request = proto.FetchMetadataRequest(streams=list(streams))
        try:
            response = await self._router.call_another(FETCH_METADATA, request, _AGAIN)
        except CallFailure as failure:
            logger.debug("metadata that lacks leaders could not be completed: %s", failure)
        else:
            if response is not None:
                self._merge_answer(metadata_from_wire(response)[0])

    async def _run_batch(self) -> None:
        batch, self._batch = self._batch, []
        fetches = [self._fetches[key] for key in batch]
        # A cancelled future would look like a cancellation of the caller that awaits it.
        error: LiftbridgeError = ClientClosed("the client was closed meanwhile")
        try:
            by = await self._fetch_fresh(sorted(frozenset().union(*batch)))
            for fetching in fetches:
                fetching.set_result(by)
        except LiftbridgeError as failure:
            error = failure
        except Exception as bug:
            error = ConnectionFailed(f"fetching metadata failed by a bug of the client: {bug!r}")
            error.__cause__ = bug
            raise
        finally:
            for key, fetching in zip(batch, fetches, strict=True):
                del self._fetches[key]
                if not fetching.done():
                    fetching.set_exception(error)
                    fetching.exception()  # nobody may be waiting any more

    async def stream(self, name: str, timeout: float, *, renew: bool = False) -> StreamInfo:
        """Return a stream's metadata, fetched within `timeout` seconds if it is not known.

        The fetch is repeated until the stream is known or counts as gone (`Absence`). Cancelling
        abandons the wait.

        Raises:
            StreamNotFound: no broker knows it.
            LiftbridgeError: as `fetch`.
        """
        if renew or name not in self.snapshot.streams:
            await find_streams(self._router, [name], timeout, lambda _: self.refresh([name]))
        info = self.snapshot.streams.get(name)
        if info is None:
            raise stream_not_found([name])
        return info

    def high_watermark(self, stream: str, partition: int) -> int | None:
        """Return the newest high watermark that a server has reported; None if none has."""
        of_stream = self.snapshot.partition(stream, partition)
        # Servers that are no replica report -1 in the metadata of a whole stream.
        in_snapshot = None if of_stream is None else of_stream.high_watermark
        from_leader = self._watermarks.get(stream, {}).get(partition)
        if in_snapshot is None or in_snapshot < 0:
            return from_leader
        return in_snapshot if from_leader is None else max(from_leader, in_snapshot)

    async def partition(self, stream: str, partition: int, timeout: float) -> PartitionInfo:
        """Ask the leader for the state of a partition, within `timeout` seconds.

        Cancelling abandons the call. The leader of a paused partition refuses this call; its
        metadata of the whole stream is used instead, as it knows where its closed log ends.

        Raises:
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            LiftbridgeError: as `fetch`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        expected = stream in self.snapshot.streams or stream in self._missing
        if self.snapshot.partition(stream, partition) is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.refresh([stream])
            except TimeoutError as error:
                if isinstance(error, LiftbridgeError):
                    raise
                unusable = unusable_error(self._router, stream, partition)
                text = f"no server named the leader within {timeout:.3g} s"
                timed_out = RequestTimeout(text, stream=stream, partition=partition)
                raise unusable or timed_out from error

        def raise_if_paused() -> None:
            info = self.snapshot.partition(stream, partition)
            if info is not None and info.paused:
                raise _Paused(info.leader)

        while True:
            left = max(deadline - loop.time(), 0.0)
            try:
                reply = await call_leader(
                    self._router,
                    FETCH_PARTITION_METADATA,
                    proto.FetchPartitionMetadataRequest(stream=stream, partition=partition),
                    left,
                    led=(stream, partition),
                    refresh=self.refresh,
                    on_refusal=raise_if_paused,
                    expected=expected,
                    stream=stream,
                    partition=partition,
                )
                break
            except StreamNotFound:
                self._missing.discard(stream)
                raise
            except _Paused as paused:
                left = max(deadline - loop.time(), 0.0)
                info = await self._paused_partition(stream, partition, paused.leader, left)
                if info is not None:
                    return info
        info = partition_from_wire(reply.metadata or proto.PartitionMetadata(id=partition))
        self._watermarks.setdefault(stream, {})[partition] = info.high_watermark
        # The leader of a paused partition refuses; v1.9.0 leaves the flag set after a resume.
        return replace(info, paused=False)

    async def _paused_partition(
        self, stream: str, partition: int, leader: str, timeout: float
    ) -> PartitionInfo | None:
        """Fetch a paused partition's state from its leader: other brokers do not know its offsets.

        Returns:
            Its state; None if another broker leads by now.
        """
        response = await call_leader(
            self._router,
            FETCH_METADATA,
            proto.FetchMetadataRequest(streams=[stream]),
            timeout,
            led=(stream, partition),
            refresh=self.refresh,
            attempt_timeouts=self._attempt_timeouts(),
            stream=stream,
            partition=partition,
        )
        answer, _, _ = metadata_from_wire(response)
        self._merge_answer(answer)
        info = answer.partition(stream, partition)
        return info if info is not None and info.leader == leader else None


class _Paused(Exception):
    def __init__(self, leader: str) -> None:
        super().__init__(leader)
        self.leader = leader
