"""A stream of Liftbridge as an end of a bridge."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final

from liftbridge_aio import (
    ALL_PARTITIONS,
    Ack,
    AckPolicy,
    Client,
    ClientOptions,
    Message,
    StartAt,
    StopAt,
    StreamInfo,
    StreamOptions,
)
from liftbridge_aio._subscribe.committed_state import committed_state
from liftbridge_aio.errors import (
    IncorrectOffset,
    LiftbridgeError,
    MessageTooLarge,
    PublishOutcomeUnknown,
    StreamNotFound,
    SubscriptionLost,
)
from liftbridge_aio.model import ACK_HEADER
from liftbridge_aio.options import seconds

from .core.addresses import Address, System
from .core.known_ids import KnownIds, unbroken
from .ends import (
    ID_HEADER,
    MARKER_HEADER,
    MAX_BATCH,
    SOURCE_HEADER,
    TARGET_HEADER,
    TIME_HEADER,
    Copied,
    Record,
    Refuse,
    bridge_headers,
)
from .errors import PositionLost, SourceReset, TargetUnsuitable

_EXACT: Final = StreamOptions(optimistic_concurrency_control=True, auto_pause_time=0)
_MAX_WIDTH: Final = 256
"""Messages of NATS Streaming that may be in flight to the target."""
_CAUTION: Final = 200
"""Messages that go one by one after somebody else has published."""
_WINDOW: Final = 4096
"""Messages at the end of each partition in which repeats of NSQ are recognised."""
_COMMIT_INTERVAL: Final = 0.1
"""Seconds between commits of the position."""
_TICK: Final = 1.0
"""Seconds after which a source without messages says so."""
_TIMEOUTS: Final = (
    "connect_timeout",
    "call_timeout",
    "ack_timeout",
    "publish_timeout",
    "resubscribe_timeout",
)
_NOT_AN_OFFSET: Final = 1 << 40
"""Added to an expected offset, so that servers refuse it if they check it."""


def new_client(address: Address, patience: float) -> Client:
    """Return a client, whose other settings are those of the environment.

    Args:
        address: the stream.
        patience: the longest that a call may take.
    """
    query = f"?{address.query}" if address.query else ""
    url = f"{address.system.value}://{','.join(address.servers)}{query}"
    secure = address.system is System.LIFTBRIDGE_TLS
    options = ClientOptions.from_env(secure=secure)
    bounded: dict[str, Any] = {}
    for name in _TIMEOUTS:
        timeout = getattr(options, name)
        bounded[name] = patience if timeout is None else min(seconds(timeout), patience)
    return Client(url, options=replace(options, **bounded))


async def find_stream(client: Client, stream: str) -> StreamInfo:
    """Fetch the metadata of a stream.

    Raises:
        StreamNotFound: no server knows it.
    """
    found = (await client.fetch_metadata([stream], expected=[stream])).streams.get(stream)
    if found is None:
        text = "no broker knows the stream"
        raise StreamNotFound(text, stream=stream)
    return found


class LiftbridgeSource:
    """Reads all partitions of a stream; a cursor for each says how far it was copied.

    The cursors name the target as its URL does. A further one has the creation time of the stream,
    as one that was deleted and created again has the same name and other messages.

    What the bridge in the other direction has brought is passed over.
    """

    # State, changed only by the task of the bridge: `_positions` have the offset of the last
    # message of each partition that is settled, `_ends` those at which to end.

    def __init__(self, address: Address, target: Address, patience: float, *, once: bool) -> None:
        [self._stream] = address.names
        self._cursor = f"bridge:{target.location}"
        self._other = str(target).encode()
        self._once = once
        self._client = new_client(address, patience)
        self._stack = AsyncExitStack()
        self._batches: AsyncIterator[list[Message]] | None = None
        self._read: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._commit_at = 0.0

    async def open(self, copied: Copied) -> None:  # noqa: ARG002 - it keeps its own positions
        """Connect, and fetch the cursors."""
        client, stream = self._client, self._stream
        await client.connect()
        found = await find_stream(client, stream)
        stored = {
            partition: await client.fetch_cursor(self._cursor, stream, partition)
            for partition in found.partitions
        }
        await self._check_creation(found.creation_timestamp, is_new={*stored.values()} == {None})
        for partition, offset in stored.items():
            state = await client.fetch_partition_metadata(stream, partition)
            if offset is not None and offset > state.newest_offset:
                text = f"the stream was copied up to offset {offset}, which it does not have"
                raise SourceReset(text, stream=stream, partition=partition, offset=offset)
            position = -1 if offset is None else offset
            self._read[partition] = self._committed[partition] = position
            self._positions[partition] = position
            if self._once:
                self._ends[partition] = state.high_watermark

    async def _check_creation(self, created: int, *, is_new: bool) -> None:
        """Refuse a stream that was created again; note the creation of one that is new here."""
        cursor = f"{self._cursor}:created"
        if await self._client.fetch_cursor(cursor, self._stream, 0) == created:
            return
        if not is_new:
            text = "the stream was deleted and created again since it was copied"
            raise SourceReset(text, stream=self._stream)
        await self._client.set_cursor(cursor, self._stream, 0, created)

    async def _subscribe(self) -> AsyncIterator[list[Message]]:
        starts = {
            partition: StartAt.earliest() if read < 0 else StartAt.offset(read + 1)
            for partition, read in self._read.items()
        }
        subscription = self._client.subscribe(self._stream, ALL_PARTITIONS, starts)
        await self._stack.enter_async_context(subscription)
        self._batches = aiter(subscription.batches(MAX_BATCH))
        return self._batches

    async def next_batch(self) -> list[Record] | None:
        """Return the next messages; None at the end, if there is one."""
        if self._once and all(self._read[each] >= end for each, end in self._ends.items()):
            return None
        batches = self._batches or await self._subscribe()
        try:
            async with asyncio.timeout(_TICK):
                messages = await anext(batches)
        except LiftbridgeError:  # some are a TimeoutError as well
            raise
        except TimeoutError:
            await self._commit()
            return []
        except StopAsyncIteration:
            text = "the subscription has ended"
            raise SubscriptionLost(text, stream=self._stream) from None
        records = []
        for message in messages:
            self._read[message.partition] = message.offset
            if not self._is_skipped(message):
                place = f"{message.partition}/{message.offset}".encode()
                records.append(Record(place, message.value, message.timestamp, message))
        if not records:
            self._settle()
        return records

    def _is_skipped(self, message: Message) -> bool:
        headers = bridge_headers(message)
        return (
            headers.get(SOURCE_HEADER) == self._other
            or MARKER_HEADER in headers
            or ACK_HEADER in message.transaction_headers
        )

    def _settle(self) -> None:
        self._positions.update(self._read)

    async def stored(self, records: list[Record]) -> None:  # noqa: ARG002 - all that was read
        """Move the positions, and commit them now and then."""
        self._settle()
        if asyncio.get_running_loop().time() >= self._commit_at:
            await self._commit()

    async def _commit(self) -> None:
        for partition, position in self._positions.items():
            if position > self._committed[partition]:
                await self._client.set_cursor(self._cursor, self._stream, partition, position)
                self._committed[partition] = position
        self._commit_at = asyncio.get_running_loop().time() + _COMMIT_INTERVAL

    async def lag(self) -> int | None:
        """Return how many offsets lie between the positions and the ends of the partitions."""
        ends = [
            (await self._client.fetch_partition_metadata(self._stream, each)).high_watermark
            for each in self._positions
        ]
        return sum(
            max(end - position, 0)
            for end, position in zip(ends, self._positions.values(), strict=True)
        )

    async def aclose(self) -> None:
        """Commit the positions, and disconnect."""
        try:
            await self._stack.aclose()
            if self._positions != self._committed:
                await self._commit()
        finally:
            await self._client.aclose()


class LiftbridgeTarget:
    """Stores what comes from NSQ, and passes over what is among the last messages of the stream.

    A marker takes the place of a message that is refused, so that it is known as well.
    """

    def __init__(self, address: Address, source: Address, refuse: Refuse, patience: float) -> None:
        [self._stream] = address.names
        self._source = str(source).encode()
        self._refuse = refuse
        self._client = new_client(address, patience)
        self._window = KnownIds(_WINDOW)
        self._partitions = 1

    async def open(self) -> Copied:
        """Connect, create the stream if it is missing, and read its end."""
        self._partitions = await self._prepare(None)
        for partition in range(self._partitions):
            await self._committed_end(partition)
            for message in await self._client.last(self._stream, _WINDOW, partition, resume=True):
                identity = self._identity(message)
                if identity is not None:
                    self._window.add(identity)
        return Copied()

    async def _prepare(self, options: StreamOptions | None) -> int:
        client, stream = self._client, self._stream
        await client.connect()
        await client.create_stream(stream, options=options, exist_ok=True)
        return len((await find_stream(client, stream)).partitions)

    async def _committed_end(self, partition: int) -> int:
        """Return the newest offset once everything up to it can be read."""

        async def publish_marker(offset: int) -> None:
            with suppress(PublishOutcomeUnknown):
                await self._client.publish(
                    self._stream,
                    b"",
                    headers={
                        MARKER_HEADER: self._source,
                        TARGET_HEADER: self._stream.encode(),
                    },
                    partition=partition,
                    ack_policy=AckPolicy.ALL,
                    expected_offset=offset,
                )

        state = await committed_state(
            lambda: self._client.fetch_partition_metadata(self._stream, partition), publish_marker
        )
        return state.newest_offset

    def _identity(self, message: Message) -> bytes | None:
        headers = bridge_headers(message)
        return headers.get(ID_HEADER) if headers.get(SOURCE_HEADER) == self._source else None

    async def store(self, records: list[Record]) -> int:
        """Publish messages that the window does not have, and wait for all acks."""
        window = self._window
        new = {record.identity: record for record in records if record.identity not in window}
        futures = [await self._publish(record, self._place(record)) for record in new.values()]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for record, outcome in zip(new.values(), outcomes, strict=True):
            if isinstance(outcome, MessageTooLarge):
                self._replace(record, outcome)
                await (await self._publish(record, self._place(record)))
            elif isinstance(outcome, BaseException):
                raise outcome
        for identity in new:
            window.add(identity)
        return len(records) - len(new)

    def _place(self, record: Record) -> int:
        return zlib.crc32(record.identity) % self._partitions

    def _replace(self, record: Record, error: MessageTooLarge) -> None:
        """Turn a message that is too large into a marker, unless the bridge is to end there."""
        self._refuse(record, error)
        record.is_marker = True

    async def _publish(
        self, record: Record, partition: int, expected: int | None = None
    ) -> asyncio.Future[Ack]:
        headers = {
            SOURCE_HEADER: self._source,
            TARGET_HEADER: self._stream.encode(),
            ID_HEADER: record.identity,
            TIME_HEADER: b"%d" % record.timestamp,
        }
        if record.is_marker:
            headers[MARKER_HEADER] = self._source
        try:
            return await self._client.publish_async(
                self._stream,
                b"" if record.is_marker else record.value,
                headers=headers,
                partition=partition,
                ack_policy=AckPolicy.ALL,
                expected_offset=expected,
            )
        except MessageTooLarge as error:
            self._replace(record, error)
            return await self._publish(record, partition, expected)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._client.aclose()


class ExactTarget(LiftbridgeTarget):
    """Stores what comes from NATS Streaming in partition 0, each message once.

    Every message is published at an expected offset, which the server refuses if anybody has
    published meanwhile: a bridge that was killed and whose last messages arrive late, or a
    publisher that has moved already. Then the end of the stream says what is missing. One message
    is in flight at first, and twice as many after each success, so that at most `_MAX_WIDTH`
    messages have to be read to know which ones are stored. Of several in flight, later ones may
    be stored where an earlier one is refused; so they go one by one for a while after a refusal,
    and one goes ahead where nothing waits behind a batch.

    Args:
        address: the stream.
        source: the channel.
        refuse: is told of messages that are too large.
        patience: the longest that a call may take.
        after: the sequence up to which the channel was copied, if the stream does not say.
    """

    # State, changed only by the task of the bridge: `_next` is the offset of the next message,
    # `_copied` and `_further` say which sequences are stored, `_times` when those at the end of the
    # stream were published, `_width` how many may be in flight, `_one_by_one` how many of the next
    # messages go alone.

    def __init__(
        self, address: Address, source: Address, refuse: Refuse, patience: float, after: int | None
    ) -> None:
        super().__init__(address, source, refuse, patience)
        self._after = after
        self._next = 0
        self._copied = 0
        self._further: frozenset[int] = frozenset()
        self._times: dict[int, int] = {}
        self._width = 1
        self._one_by_one = 0
        self._is_checked = False

    async def open(self) -> Copied:
        """Connect, create the stream if it is missing, and find out how far it was copied."""
        await self._prepare(_EXACT)
        await self._look()
        return Copied(self._copied, self._times.get(self._copied) or None)

    async def store(self, records: list[Record]) -> int:
        """Publish messages that are not stored, in order, and wait for all acks."""
        repeats = 0
        left = records
        if len(records) < MAX_BATCH:
            self._width = 1
        while left:
            new = [each for each in left if not self._is_stored(int(each.identity))]
            repeats += len(left) - len(new)
            if not new:
                break
            if not self._is_checked:
                await self._check(new[0])
            chunk, left = new[: self._width], new[self._width :]
            futures = [
                await self._publish(record, 0, self._next + number)
                for number, record in enumerate(chunk)
            ]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            for record, outcome in zip(chunk, outcomes, strict=True):
                if isinstance(outcome, MessageTooLarge):
                    self._replace(record, outcome)
                elif isinstance(outcome, BaseException) and not isinstance(
                    outcome, IncorrectOffset
                ):
                    raise outcome
            if failed:
                self._width, self._one_by_one = 1, _CAUTION
                await self._catch_up()
                repeats -= len(outcomes) - len(failed)  # these are found there now
                left = chunk + left
            else:
                self._next += len(chunk)
                self._copied = int(chunk[-1].identity)
                self._one_by_one = max(self._one_by_one - len(chunk), 0)
                if not self._one_by_one:
                    self._width = min(2 * self._width, _MAX_WIDTH)
        return repeats

    def _is_stored(self, sequence: int) -> bool:
        return sequence <= self._copied or sequence in self._further

    async def _check(self, record: Record) -> None:
        """Refuse a stream whose servers do not check expected offsets.

        They would store this message, which is not harmful: it is the one that comes next.
        """
        try:
            await (await self._publish(record, 0, self._next + _NOT_AN_OFFSET))
        except IncorrectOffset:
            self._is_checked = True
        except MessageTooLarge as error:
            self._replace(record, error)
            await self._check(record)
        else:
            text = (
                "the stream has no optimistic concurrency control, which showed when it stored the"
                f" message of sequence {record.identity.decode()}"
            )
            raise TargetUnsuitable(text, stream=self._stream)

    async def _look(self) -> None:
        """Read the end of the stream: where it is, and what of the channel is there."""
        newest = await self._committed_end(0)
        self._next = newest + 1
        count = _MAX_WIDTH
        while True:
            messages = (
                [] if newest < 0 else await self._client.last(self._stream, count, resume=True)
            )
            self._times = {
                int(found): int(bridge_headers(each).get(TIME_HEADER, b"0"))
                for each in messages
                if (found := self._identity(each))
            }
            is_all = len(messages) < count
            if len(self._times) >= _MAX_WIDTH or is_all:
                break
            count *= 4
        if self._times:
            self._copied, self._further = unbroken(self._times)
            return
        if self._after is None and newest >= 0 and (not messages or messages[0].offset > 0):
            text = f"retention has removed messages, and none of {self._source.decode()} is left"
            raise PositionLost(text, stream=self._stream)
        self._copied, self._further = max(self._copied, self._after or 0), frozenset()

    async def _catch_up(self) -> None:
        """Read what stands where the next messages were to be."""
        newest = await self._committed_end(0)
        if newest < self._next:
            return
        at = StartAt.offset(self._next), StopAt.offset(newest)
        async with self._client.read(self._stream, *at, resume=True) as messages:
            found = {int(own) async for each in messages if (own := self._identity(each))}
        self._next = newest + 1
        self._copied, self._further = unbroken({self._copied, *self._further, *found})
