"""The administrative calls of the client: streams and metadata."""

from __future__ import annotations

from collections.abc import Sequence

from .arguments import INT32_MAX, about, check_text, check_type, check_whole_number
from .client_face import ClientFace
from .errors import InvalidRequest
from .model import Metadata, PartitionInfo
from .options import Duration, StreamOptions


class ClientAdministration(ClientFace):
    """Creating, deleting, pausing and looking at streams."""

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

        Retried where that is safe; a stream that turns out to have been created by a try whose
        answer got lost counts as created. Cancelling may leave it created.

        Args:
            name: unique in the cluster.
            subject: the NATS subject that it stores; None: its name. Partition n > 0 listens on
                `<subject>.<n>`.
            partitions: how many; fixed for ever.
            replication_factor: how many servers keep each partition; -1: all.
            group: load-balance group: of the streams in it, one gets each message.
            options: settings; None leaves all to the server.
            exist_ok: do not mind if a stream of this name exists, whatever its settings.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            StreamExists: it exists and exist_ok is False.
            InvalidRequest: an argument makes no sense.
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
        """Delete a stream with everything in it. Cancelling may leave it deleted.

        Raises:
            StreamNotFound: there is none.
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
        """Pause partitions until somebody publishes to them. Cancelling may leave them paused.

        Args:
            stream: its name.
            partitions: which; None: all. Sets add up over calls.
            resume_all: a publish to any partition resumes all of them; the latest call decides.
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
        """Resume paused partitions without publishing; others are left as they are.

        Done by subscriptions that are left at once. Cancelling may leave some resumed.

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
        """Make partitions read-only, or writable again. Cancelling may leave it done.

        Readers of a read-only partition end when they have read everything.

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
        """What is known of the cluster, without asking: an immutable snapshot."""
        return Metadata() if self._parts is None else self._parts.connection.metadata.snapshot

    async def fetch_metadata(
        self,
        streams: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Metadata:
        """Ask a server about the cluster, take the answer into `metadata` and return that.

        Cancelling abandons the call.

        Args:
            streams: names; None asks for all.
            groups: ids of consumer groups; None asks for none.
            timeout: seconds for everything; None is the client's call_timeout. It is not sent to
                the server, which would then answer with an error instead of what it knows (W28).

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
        """
        for names in (streams, groups):
            check_type(names, (list, tuple, set, frozenset, type(None)), "names come as a list")
        if streams is not None and not streams:
            raise InvalidRequest("an empty list of streams would mean all; leave it out for all")
        return await self._living.connection.metadata.fetch(streams, groups, self._seconds(timeout))

    async def fetch_partition_metadata(
        self, stream: str, partition: int, *, timeout: Duration | None = None
    ) -> PartitionInfo:
        """Ask the leader for the state of a partition. Cancelling abandons the call.

        Raises:
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            LiftbridgeError: the leader could not be reached in time.
        """
        limit = self._seconds(timeout)
        with about(stream, partition):
            check_text(stream, "a stream name")
            check_whole_number(partition, "a partition", 0, INT32_MAX)
        return await self._living.connection.metadata.partition(stream, partition, limit)
