"""The administrative calls of the client: streams, metadata and cursors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    INT64_MAX,
    about,
    check_text,
    check_type,
    check_whole_number,
    names,
)
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import ANY_STREAM, Metadata, PartitionInfo
from liftbridge_aio.options import Duration, StreamOptions

from .base import ClientBase


class ClientAdministration(ClientBase):
    """Calls that change streams, fetch metadata, and store or fetch cursors."""

    async def create_stream(
        self,
        name: str,
        subject: str | None = None,
        partitions: int = 1,
        replication_factor: int = 1,
        group: str | None = None,
        options: StreamOptions | None = None,
        exist_ok: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Create a stream.

        Retried if that is safe; if a try created it whose answer was lost, that counts as success.
        Cancelling may leave it created.

        Args:
            name: unique in the cluster.
            subject: the NATS subject that it stores; None: its name. Partition n > 0 listens on
                `<subject>.<n>`.
            partitions: number of partitions; it cannot be changed later.
            replication_factor: number of servers that store each partition; -1: all.
            group: load-balance group: each message goes to one of the streams in it.
            options: settings; None: the defaults of the server.
            exist_ok: succeed if a stream of this name exists, whatever its settings. Another number
                of partitions is logged as a warning.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            StreamExists: it exists and exist_ok is False.
            InvalidRequest: an argument is invalid.
            LiftbridgeError: it could not be created.
        """
        check_type(options, (StreamOptions, type(None)), "options are StreamOptions")
        await self._living.streams.create(
            name,
            name if subject is None else subject,
            partitions=partitions,
            replication_factor=replication_factor,
            group=group,
            options=options if options is not None else StreamOptions(),
            exist_ok=exist_ok,
            timeout=self._seconds(timeout),
        )

    async def delete_stream(self, stream: str, *, timeout: Duration | None = None) -> None:
        """Delete a stream and its messages. Cancelling may leave it deleted.

        Raises:
            StreamNotFound: the stream does not exist.
            LiftbridgeError: it could not be deleted.
        """
        await self._living.streams.delete(stream, self._seconds(timeout))

    async def pause_stream(
        self,
        stream: str,
        partitions: Sequence[int] | None = None,
        resume_all: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Pause partitions until a message is published to them. Cancelling may leave them paused.

        Args:
            stream: its name.
            partitions: which; None: all. Partitions paused by earlier calls stay paused.
            resume_all: a publish to any partition resumes all of them; the last call decides.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            NotFound: no such stream or partition.
            LiftbridgeError: it could not be done.
        """
        await self._living.streams.pause(
            stream,
            partitions,
            resume_all=resume_all,
            timeout=self._seconds(timeout),
        )

    async def resume_stream(
        self,
        stream: str,
        partitions: Sequence[int] | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Resume paused partitions without publishing; others are not changed.

        Implemented by subscriptions that are closed at once. Cancelling may leave some resumed.

        Args:
            stream: its name.
            partitions: which; None: all.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            NotFound: no such stream or partition.
            LiftbridgeError: it could not be done.
        """
        await self._living.streams.resume(stream, partitions, self._seconds(timeout))

    async def set_stream_readonly(
        self,
        stream: str,
        partitions: Sequence[int] | None = None,
        readonly: bool = True,
        timeout: Duration | None = None,
    ) -> None:
        """Make partitions read-only, or writable again. Cancelling may leave them changed.

        Subscriptions to a read-only partition end once everything was read.

        Args:
            stream: its name.
            partitions: which; None: all.
            readonly: False makes them writable again.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            NotFound: no such stream or partition.
            LiftbridgeError: it could not be done.
        """
        await self._living.streams.set_readonly(
            stream,
            partitions,
            readonly=readonly,
            timeout=self._seconds(timeout),
        )

    @property
    def metadata(self) -> Metadata:
        """The last known metadata of the cluster: an immutable snapshot."""
        return Metadata() if self._parts is None else self._parts.network.metadata.snapshot

    async def fetch_metadata(
        self,
        streams: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        *,
        expected: Collection[str] = (),
        timeout: Duration | None = None,
    ) -> Metadata:
        """Fetch metadata from a server, merge it into `metadata`, and return that.

        The answer is what one server knows at that moment: after a restart it may not know its
        streams yet. Cancelling abandons the call.

        Args:
            streams: names; None: all.
            groups: ids of consumer groups; None: none.
            expected: names of streams that should exist; "*": any stream. If a server does not know
                one, this retries until it does, or until the stream was unknown for
                `not_found_timeout` seconds.
            timeout: seconds for everything; None is the client's call_timeout. It is not sent to
                the server, which would then answer with an error instead of what it knows.

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
            StreamNotFound: an expected stream was unknown, and `timeout` too short to retry.
        """
        wanted = names(expected, "the name of an expected stream")
        if groups is not None:
            groups = names(groups, "the id of a group")
        if streams is not None:
            streams = names(streams, "a stream name")
            if not streams:
                raise InvalidRequest(
                    "an empty list of streams would mean all; leave it out for all"
                )
            added = (name for name in wanted if name != ANY_STREAM)
            streams = list(dict.fromkeys([*streams, *added]))
        return await self._living.network.metadata.fetch(
            streams, groups, self._seconds(timeout), expected=wanted
        )

    async def fetch_partition_metadata(
        self, stream: str, partition: int, *, timeout: Duration | None = None
    ) -> PartitionInfo:
        """Fetch the state of a partition from its leader. Cancelling abandons the call.

        Raises:
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            LiftbridgeError: the leader could not be reached in time.
        """
        limit = self._seconds(timeout)
        with about(stream, partition):
            check_text(stream, "a stream name")
            check_whole_number(partition, "a partition", 0, INT32_MAX)
        return await self._living.network.metadata.partition(stream, partition, limit)

    async def set_cursor(
        self,
        cursor_id: str,
        stream: str,
        partition: int,
        offset: int,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Store a position in the server, by convention the last offset that was processed.

        Of several positions of one cursor that wait to be written, only the newest is. Rewinding is
        unreliable on v1.9.0 servers: after a restart they recover the highest position. Cancelling
        abandons the wait; the position may be stored or not.

        Args:
            cursor_id: the id of the cursor.
            stream: the stream that the position belongs to.
            partition: which of its partitions.
            offset: the position, from 0 up.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument is invalid.
            CursorsUnavailable: the server stores no cursors, or failed to store this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        with about(stream, partition):
            check_whole_number(offset, "an offset", 0, INT64_MAX)
        await self._living.cursors.set(cursor_id, stream, partition, offset, self._seconds(timeout))

    async def fetch_cursor(
        self, cursor_id: str, stream: str, partition: int, *, timeout: Duration | None = None
    ) -> int | None:
        """Return a stored position; None if there is none. Cancelling abandons the call.

        Raises:
            InvalidRequest: an argument is invalid.
            CursorsUnavailable: the server stores no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        return await self._living.cursors.fetch(
            cursor_id, stream, partition, self._seconds(timeout)
        )


def _check_cursor(cursor_id: str, stream: str, partition: int) -> None:
    with about(stream, partition):
        check_text(cursor_id, "the id of a cursor")
        check_text(stream, "a stream name")
        check_whole_number(partition, "a partition", 0, INT32_MAX)
        if not cursor_id or not stream:
            raise InvalidRequest("a cursor needs an id and the name of a stream")
