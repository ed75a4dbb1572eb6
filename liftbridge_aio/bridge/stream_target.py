"""What all targets that are a stream of Liftbridge share."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from liftbridge_aio import Ack, AckPolicy, Message, OutgoingMessage, StreamOptions
from liftbridge_aio._subscribe.committed_state import committed_state
from liftbridge_aio.errors import InvalidRequest, PublishOutcomeUnknown

from .ends import (
    ID_HEADER,
    MARKER_HEADER,
    SOURCE_HEADER,
    TARGET_HEADER,
    TIME_HEADER,
    Origin,
    Plan,
    Record,
    bridge_headers,
)
from .errors import TargetUnsuitable
from .streams import find_stream, log_identity, new_client


class StreamTarget:
    """Publishes to a stream, with headers that say what was copied.

    A marker takes the place of a message that is refused, so that it is known as well.
    """

    # State: `open` learns `identity`, `partitions` and `_source`; nothing changes afterwards.

    def __init__(self, plan: Plan) -> None:
        [self.stream] = plan.target.names
        self.client = new_client(plan.target, plan.patience)
        self.identity = ""
        self.partitions = 1
        self._source = b""
        self._refuse = plan.refuse
        self.name_of = plan.source.system.message_name

    async def prepare(self, origin: Origin, options: StreamOptions | None) -> None:
        """Connect, and create the stream if it is missing.

        Raises:
            InvalidRequest: it is the source.
            TargetUnsuitable: it has fewer partitions than the source.
        """
        client, stream = self.client, self.stream
        await client.connect()
        await client.create_stream(
            stream, partitions=origin.partitions, options=options, exist_ok=True
        )
        found = await find_stream(client, stream)
        self.identity = log_identity(found)
        self.partitions = len(found.partitions)
        self._source = origin.identity.encode()
        if self.identity == origin.identity:
            raise InvalidRequest("source and target are the same stream", stream=stream)
        if self.partitions < origin.partitions:
            raise TargetUnsuitable(
                f"it has {self.partitions} partitions, and the source {origin.partitions}",
                stream=stream,
            )

    async def committed_end(self, partition: int) -> int:
        """Return the newest offset once everything up to it can be read."""

        async def publish_marker(offset: int) -> None:
            marker = {MARKER_HEADER: self._source, TARGET_HEADER: self.stream.encode()}
            with suppress(PublishOutcomeUnknown):
                await self.client.publish(
                    self.stream,
                    b"",
                    headers=marker,
                    partition=partition,
                    ack_policy=AckPolicy.ALL,
                    expected_offset=offset,
                )

        state = await committed_state(
            lambda: self.client.fetch_partition_metadata(self.stream, partition), publish_marker
        )
        return state.newest_offset

    def identity_of(self, message: Message) -> bytes | None:
        """Return the id in the source of a message that was copied from there."""
        headers = bridge_headers(message)
        return headers.get(ID_HEADER) if headers.get(SOURCE_HEADER) == self._source else None

    def replace(self, record: Record, error: InvalidRequest) -> None:
        """Turn a message that is refused into a marker, unless the bridge is to end there."""
        self._refuse(record, error)
        record.is_marker = True

    async def publish(
        self, record: Record, partition: int, expected: int | None = None
    ) -> asyncio.Future[Ack | None]:
        """Publish a message and return the future of its ack."""
        headers = {
            **record.headers,
            SOURCE_HEADER: self._source,
            TARGET_HEADER: self.stream.encode(),
            ID_HEADER: record.identity,
            TIME_HEADER: b"%d" % record.timestamp,
        }
        outgoing = OutgoingMessage(
            *(self.stream, record.value, record.key or None, headers, partition),
            ack_policy=AckPolicy.ALL,
            expected_offset=expected,
            quiet=True,
            own_headers=record.transaction_headers,
        )
        if record.is_marker:
            outgoing.value, outgoing.key, outgoing.own_headers = b"", None, None
            headers[MARKER_HEADER] = self._source
        try:
            # Users cannot publish headers of transactions.
            return await self.client._living.submit(outgoing)  # noqa: SLF001
        except InvalidRequest as error:
            if record.is_marker:
                raise
            self.replace(record, error)
            return await self.publish(record, partition, expected)

    async def aclose(self) -> None:
        """Disconnect."""
        await self.client.aclose()
