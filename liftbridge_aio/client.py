"""The client: composition root and front door.

What it is made of is imported when it connects, so that importing the package stays cheap.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from .errors import (
    ClientClosed,
    InvalidRequest,
    LiftbridgeError,
    PublishManyFailed,
    RequestTimeout,
)
from .model import (
    Ack,
    AckPolicy,
    Message,
    Metadata,
    Partitioner,
    PartitionInfo,
    Record,
    StartAt,
    StopAt,
    format_address,
    parse_address,
)
from .options import UNSET, ClientOptions, Duration, StreamOptions, Unset, seconds

if TYPE_CHECKING:
    from .cursors import Cursors
    from .net.connection import Connection
    from .publish_retry import PublishArguments, RetryingPublisher
    from .publisher import Publisher, PublisherStatistics
    from .read_budget import ReadBudget
    from .retry import Retry
    from .subscription import Subscription


class ClientStatistics(NamedTuple):
    """Figures of a client."""

    links: tuple[str, ...]
    """The connections that are up."""
    subscriptions: int
    """Subscriptions that are being read."""
    publisher: PublisherStatistics | None
    """None before the client is connected."""


class _Parts(NamedTuple):
    """What exists only while the client is connected."""

    connection: Connection
    publisher: Publisher
    retrying: RetryingPublisher
    cursors: Cursors
    budget: ReadBudget


class Client:
    """An asyncio client of a Liftbridge cluster.

    Use it as an async context manager, or call `connect` and `aclose`. It belongs to the event
    loop in which it was connected; within that, any task may use it and close it.

    Args:
        servers: addresses `host:port` of brokers to begin with; one that answers is enough.
        options: how it behaves.
    """

    def __init__(self, *servers: str, options: ClientOptions | None = None) -> None:
        if not servers:
            raise InvalidRequest("name at least one server, for example Client('127.0.0.1:9292')")
        self._seeds = tuple(format_address(*parse_address(server)) for server in servers)
        self.options = options if options is not None else ClientOptions()
        self._parts: _Parts | None = None
        self._starting: asyncio.Lock | None = None
        self._closed = False

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, options: ClientOptions | None = None
    ) -> Self:
        """Make a client from `LIFTBRIDGE_SERVERS` (comma-separated) and `LIFTBRIDGE_…` options.

        Args:
            environ: where to look; None means the process's environment.
            options: used instead of the variables of options.

        Raises:
            InvalidRequest: a variable makes no sense, or LIFTBRIDGE_SERVERS is not set.
        """
        environ = os.environ if environ is None else environ
        servers = [
            name for name in environ.get("LIFTBRIDGE_SERVERS", "").split(",") if name.strip()
        ]
        if not servers:
            raise InvalidRequest("set LIFTBRIDGE_SERVERS, for example to 127.0.0.1:9292")
        return cls(*servers, options=options or ClientOptions.from_env(environ))

    def __repr__(self) -> str:
        """Show where it leads and how it is."""
        state = "closed" if self._closed else "new" if self._parts is None else "connected"
        text = f"<Client {','.join(self._seeds)} {state}"
        if self._parts is not None and not self._closed:
            figures = self.statistics()
            in_flight = figures.publisher.in_flight if figures.publisher else 0
            text += f" subscriptions={figures.subscriptions} in_flight={in_flight}"
        return f"{text}>"

    # Life

    async def __aenter__(self) -> Self:
        """Connect; see `connect`."""
        await self.connect()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `aclose`."""
        await self.aclose()

    async def connect(self, *, timeout: Duration | None = None) -> None:
        """Connect to the first server that answers and learn the cluster.

        Each address is tried once; use `wait_ready` to wait for servers that are starting. Does
        nothing if connected. Cancelling closes the client.

        Args:
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
            ClientClosed: it was closed before.
        """
        await self._start()
        try:
            await self._connection.metadata.fetch(timeout=self._seconds(timeout), patient=False)
        except BaseException:
            await self.aclose()
            raise

    async def _start(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if self._parts is None:
                self._parts = await self._assemble()

    async def _assemble(self) -> _Parts:
        from .cursors import Cursors
        from .net.connection import Connection
        from .net.metadata import MetadataCache
        from .net.pool import LinkPool
        from .net.reporter import Reporter
        from .net.router import Router
        from .net.supervisor import Supervisor
        from .publish_retry import RetryingPublisher
        from .publisher import Publisher
        from .read_budget import ReadBudget

        options = self.options
        reporter = Reporter(options.hook)
        supervisor = Supervisor("liftbridge_aio")
        budget = ReadBudget(options.max_buffered_bytes)
        metadata = MetadataCache(options, supervisor, reporter)
        pool = LinkPool(supervisor, options, reporter, lambda: budget.share)
        router = Router(self._seeds, options, supervisor, pool, reporter, lambda: metadata.snapshot)
        metadata.attach(router)
        connection = Connection(
            supervisor, reporter, pool, router, metadata, seconds(options.not_found_timeout)
        )
        await supervisor.start()
        publisher = Publisher(connection, options)
        retrying = RetryingPublisher(publisher, connection, self._read_one)
        return _Parts(connection, publisher, retrying, Cursors(connection), budget)

    async def aclose(self) -> None:
        """Close: refuse new publishes, wait for acks, end subscriptions, leave no task behind.

        Acks are awaited for close_timeout seconds; what is unsettled then fails with
        `PublishOutcomeUnknown`, or with `PublishNotSent` if it was never written. Raises nothing
        for them. May be called any number of times and from any task. Cancelling cuts the wait for
        acks short; the rest is done all the same.
        """
        self._closed = True
        parts = self._parts
        if parts is None:
            return
        connection = parts.connection
        try:
            await parts.publisher.close(seconds(self.options.close_timeout))
        finally:
            connection.pool.close()
            await connection.supervisor.stop(seconds(self.options.close_timeout))

    def __del__(self) -> None:
        if getattr(self, "_parts", None) is not None and not self._closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    @property
    def _connection(self) -> Connection:
        return self._living.connection

    @property
    def _living(self) -> _Parts:
        if self._parts is None or self._closed:
            raise ClientClosed("the client is closed" if self._closed else "not connected yet")
        return self._parts

    def _seconds(self, timeout: Duration | None) -> float:
        return seconds(self.options.call_timeout if timeout is None else timeout, "timeout")

    def statistics(self) -> ClientStatistics:
        """Return figures of this moment."""
        parts = self._parts
        if parts is None:
            return ClientStatistics((), 0, None)
        links = tuple(repr(link) for link in parts.connection.pool.links)
        return ClientStatistics(links, parts.budget.subscriptions, parts.publisher.statistics())

    async def ping(self, *, timeout: Duration | None = None) -> float:
        """Ask a server for a sign of life and return how many seconds that took.

        Cancelling abandons the question.

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
        """
        from .net.link import HEALTH_SERVICE
        from .wire import health
        from .wire.rpc import HEALTH_CHECK

        request = health.HealthCheckRequest(service=HEALTH_SERVICE)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._connection.router.call_any(HEALTH_CHECK, request, self._seconds(timeout))
        return loop.time() - began

    async def wait_ready(self, *, timeout: Duration | None = None) -> None:
        """Wait until a server answers and the cluster has a leader, so that it takes changes.

        May be called instead of `connect` while servers are starting. Cancelling abandons the
        wait.

        Args:
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            ConnectionFailed: no server answered in time.
            RequestTimeout: the cluster found no leader in time.
        """
        from .streams import wait_for_metadata_leader

        await self._start()
        limit = self._seconds(timeout)
        began = asyncio.get_running_loop().time()
        await self._connection.metadata.fetch(timeout=limit)
        left = began + limit - asyncio.get_running_loop().time()
        await wait_for_metadata_leader(self._connection, max(left, 0.001))

    # Publishing

    async def publish(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> Ack | None:
        """Publish a message and wait for its ack.

        Cancelling takes the message back if it is not written yet; after that only the wait is
        abandoned.

        Args:
            stream: where to.
            value: the message.
            key: decides the partition if nothing else does, and what compaction keeps.
            headers: anything but `subject` and `reply`, which the server writes itself.
            partition: the partition; beats every partitioner.
            partitioner: chooses the partition; None: the client's, else by key, else 0.
            ack_policy: when the server confirms. With NONE this returns None once the message is
                written; errors that come later reach the hook and `flush`.
            ack_timeout: seconds from the write to the ack; None is the client's value.
            expected_offset: the offset that the message must get, on streams with optimistic
                concurrency control; None: any.
            correlation_id: comes back in the ack; None: made here.
            retry: send again when the outcome is unknown. **This may store the message twice**,
                unless `expected_offset` is given: then what stands there is read and compared.
            timeout: seconds for everything; None is publish_timeout + ack_timeout.

        Returns:
            The ack; None with ack policy NONE.

        Raises:
            InvalidRequest: it cannot be sent like this; nothing was sent.
            PublishOutcomeUnknown: written, but not answered (`AckTimeout`: in time).
            PublishNotSent: not written (`PublishTimeout`: in time).
            IncorrectOffset: the expected offset was not the next one.
            StreamNotFound: no broker knows the stream.
            PartitionReadonly: the partition takes no messages.
            LiftbridgeError: the server refused it.
        """
        return await (
            await self.publish_async(
                stream,
                value,
                key,
                headers,
                partition,
                partitioner,
                ack_policy,
                ack_timeout,
                expected_offset,
                correlation_id,
                retry,
                timeout,
            )
        )

    async def publish_async(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> asyncio.Future[Ack | None]:
        """Publish a message and return the future of its ack, once there is room in the window.

        Arguments and errors are those of `publish`; what goes wrong before the message is
        registered is raised here, the rest by the future. Cancelling this call leaves nothing
        behind; cancelling the future takes the message back if it is not written yet.
        """
        parts = self._living
        arguments: PublishArguments = {
            "key": key,
            "headers": headers,
            "partition": partition,
            "partitioner": partitioner,
            "ack_policy": ack_policy,
            "ack_timeout": ack_timeout,
            "expected_offset": expected_offset,
            "correlation_id": correlation_id,
            "timeout": timeout,
        }
        if retry is None:
            return await parts.publisher.submit(stream, value, **arguments)
        return await parts.retrying.submit(retry, stream, value, **arguments)

    async def publish_many(
        self,
        stream: str,
        records: Iterable[bytes | Record],
        *,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> list[Ack | None]:
        """Publish many messages, in order, and wait for all their acks.

        Cancelling takes back what is not written yet; for the rest only the wait is abandoned.

        Args:
            stream: where to.
            records: values, or records with key, headers and partition.
            partitioner: as for `publish`.
            ack_policy: as for `publish`.
            ack_timeout: as for `publish`.
            retry: as for `publish`.
            timeout: seconds for each message.

        Returns:
            The acks in the order of the records; None for each with ack policy NONE.

        Raises:
            PublishManyFailed: not all were acked; its `outcomes` says which, its cause is the
                first error.
        """
        futures: list[asyncio.Future[Ack | None]] = []
        broken: Exception | None = None
        try:
            for item in records:
                record = item if isinstance(item, Record) else Record(item)
                futures.append(
                    await self.publish_async(
                        stream,
                        record.value,
                        record.key,
                        record.headers,
                        record.partition,
                        partitioner,
                        ack_policy,
                        ack_timeout,
                        retry=retry,
                        timeout=timeout,
                    )
                )
        except LiftbridgeError as error:
            broken = error
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        outcomes: list[Ack | BaseException | None] = list(
            await asyncio.gather(*futures, return_exceptions=True)
        )
        if broken is not None:
            outcomes.append(broken)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            text = f"{len(failed)} of {len(outcomes)} messages were not acked: {failed[0]}"
            summary = PublishManyFailed(text, stream=stream)
            summary.outcomes = outcomes
            raise summary from failed[0]
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    async def flush(self) -> None:
        """Wait until every publish so far is settled.

        With ack policy NONE settled means that the server has taken the message out of the
        connection, not that it is stored. Cancelling abandons the wait.

        Raises:
            LiftbridgeError: the first error since the last flush that nobody has seen.
        """
        parts = self._living
        retrying = parts.retrying.unsettled
        if retrying:
            await asyncio.wait(retrying)
        await parts.publisher.flush()

    async def publish_to_subject(
        self,
        subject: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_inbox: str | None = None,
        correlation_id: str | None = None,
        timeout: Duration | None = None,
    ) -> Ack | None:
        """Publish to a NATS subject, and so to every stream that is attached to it.

        The first ack counts, whichever stream it comes from. Paused partitions do not get the
        message, and streams with optimistic concurrency control refuse it unless they are empty
        (W6, W31). Cancelling abandons the wait.

        Args:
            subject: without wildcards.
            value: the message.
            key: its key.
            headers: anything but `subject` and `reply`.
            ack_policy: when a server confirms; with NONE this returns None.
            ack_inbox: a NATS subject to which acks go too; None: the server's own.
            correlation_id: comes back in the ack.
            timeout: seconds to wait for the ack; None is the client's ack_timeout.

        Raises:
            InvalidRequest: it cannot be sent like this.
            AckTimeout: no ack came in time; perhaps no stream listens.
            PublishOutcomeUnknown: the link broke before the ack.
            IncorrectOffset: a stream with optimistic concurrency control refused it.
        """
        from .streams import publish_to_subject

        return await publish_to_subject(
            self._connection,
            subject,
            value,
            key=key,
            headers=headers,
            ack_policy=ack_policy,
            ack_inbox=ack_inbox,
            correlation_id=correlation_id,
            timeout=seconds(self.options.ack_timeout if timeout is None else timeout, "timeout"),
        )

    # Reading

    def subscribe(
        self,
        stream: str,
        partition: int = 0,
        start: StartAt | None = None,
        stop: StopAt | None = None,
        *,
        resubscribe_timeout: Duration | Unset | None = UNSET,
        resume: bool = False,
        from_isr_replica: bool = False,
        reverse: bool = False,
        timeout: Duration | None = None,
    ) -> Subscription:
        """Read a partition: iterate over what this returns, inside `async with` or without.

        Nothing happens before it is entered or iterated over.

        Args:
            stream: what to read.
            partition: which of its partitions.
            start: where to begin; None is `StartAt.new_only()`.
            stop: where to end; None goes on for ever.
            resubscribe_timeout: seconds to try to resume after a break, None for ever; left out:
                the client's value.
            resume: resume the partition if it is paused.
            from_isr_replica: read from any in-sync replica instead of the leader.
            reverse: read towards lower offsets; needs a server of API 2.0.0.
            timeout: seconds for the first handshake; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            ClientClosed: not connected.
        """
        from .reading_plan import ReadingPlan
        from .subscription import Subscription

        parts = self._living
        plan = ReadingPlan(
            stream=stream,
            partition=partition,
            start=start if start is not None else StartAt.new_only(),
            stop=stop,
            resubscribe_timeout=(
                self.options.resubscribe_timeout
                if isinstance(resubscribe_timeout, Unset)
                else resubscribe_timeout
            ),
            resume=resume,
            from_isr_replica=from_isr_replica,
            reverse=reverse,
            timeout=self._seconds(timeout),
        )
        close_timeout = seconds(self.options.close_timeout)
        return Subscription(plan, parts.connection, parts.budget, close_timeout)

    async def _read_one(self, stream: str, partition: int, offset: int) -> Message | None:
        reading = self.subscribe(stream, partition, StartAt.offset(offset), StopAt.offset(offset))
        async with reading:
            async for message in reading:
                return message
        return None

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

        Positions of one cursor that are set while another is being written are written as one, the
        newest. Rewinding is unreliable on v1.9.0 servers: after a restart they recover the highest
        position. Cancelling abandons the wait; the position may be stored or not.

        Args:
            cursor_id: names the cursor.
            stream: what the position belongs to.
            partition: which of its partitions.
            offset: the position, from 0 up.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument makes no sense.
            CursorsUnavailable: the server keeps no cursors, or failed to store this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        if not 0 <= offset < 2**63:
            text = f"a cursor stores an offset from 0 up, not {offset}"
            raise InvalidRequest(text, stream=stream, partition=partition)
        await self._living.cursors.set(cursor_id, stream, partition, offset, self._seconds(timeout))

    async def fetch_cursor(
        self, cursor_id: str, stream: str, partition: int, *, timeout: Duration | None = None
    ) -> int | None:
        """Read a stored position; None where none was stored. Cancelling abandons the call.

        Raises:
            InvalidRequest: an argument makes no sense.
            CursorsUnavailable: the server keeps no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        return await self._living.cursors.fetch(
            cursor_id, stream, partition, self._seconds(timeout)
        )

    # Administering

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
        from .streams import create_stream

        await create_stream(
            self._connection,
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
        from .streams import delete_stream

        await delete_stream(self._connection, stream, self._seconds(timeout))

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
        from .streams import pause_stream

        await pause_stream(
            self._connection,
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
        from .streams import resume_stream

        await resume_stream(self._connection, stream, partitions, self._seconds(timeout))

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
        from .streams import set_stream_readonly

        await set_stream_readonly(
            self._connection,
            stream,
            partitions,
            readonly=readonly,
            timeout=self._seconds(timeout),
        )

    # Metadata

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
        return await self._connection.metadata.fetch(streams, groups, self._seconds(timeout))

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
        try:
            async with asyncio.timeout(limit):
                return await self._connection.metadata.partition(stream, partition, limit)
        except TimeoutError:
            text = f"the leader did not answer within {limit:g} s"
            raise RequestTimeout(text, stream=stream, partition=partition) from None


def _check_cursor(cursor_id: str, stream: str, partition: int) -> None:
    if not cursor_id or not stream or partition < 0:
        text = "a cursor needs an id, a stream and a partition from 0 up"
        raise InvalidRequest(text, stream=stream or None, partition=partition)
