"""Those who read during a run: subscriptions, and members of the group."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from chaos.journal import END, Place, sent_at
from chaos.lanes import Lane
from chaos.load import Load
from liftbridge_aio import (
    Client,
    ConsumerGroup,
    LiftbridgeError,
    Message,
    StartAt,
    StreamReset,
    Subscription,
)

EARLIEST: Final = StartAt.earliest()


async def _over(reading: asyncio.Task[Any]) -> None:
    """Wait until a reading is over; it ends with who waits."""
    try:
        await asyncio.wait([reading])
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, LiftbridgeError):
            await reading


def _find_end(load: Load, who: str, error: LiftbridgeError) -> None:
    """Note that a reading ended with an error, which it never should."""
    reset = None
    if isinstance(error, StreamReset) and error.stream and error.partition is not None:
        reset = (error.stream, error.partition)
    load.find(f"{who} ended with {error!r}", reset=reset)


class _Reading:
    """A reading that is begun anew should it end, which it never should.

    Args:
        load: what it belongs to.
        title: who it is in findings.
    """

    def __init__(self, load: Load, title: str) -> None:
        self.ends: set[bytes] = set()
        """The messages delivered to it that were published last."""
        self.ended = asyncio.Event()
        self._load = load
        self._title = title
        self._reopening = False
        self._stopped = False
        self._reading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Read until `stop`."""
        while not self._stopped:
            self._reading = asyncio.create_task(self._read())
            await _over(self._reading)
            if self._reading.cancelled() and not self._given_up:
                self._load.find(f"{self._title} was cancelled by the client", excusable=False)
        self.ended.set()

    async def _read(self) -> None:
        """Read once; end by nothing but a cancellation."""
        raise NotImplementedError

    @property
    def _given_up(self) -> bool:
        """True if the reading was cancelled from here."""
        return self._stopped or self._reopening

    def stop(self) -> None:
        """Leave it in order at the next message, or now."""
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()


class Reader(_Reading):
    """One subscription to one partition, opened anew should it end, which it never should."""

    def __init__(
        self,
        load: Load,
        client: Client,
        place: Place,
        name: str,
        *,
        cursor: str | None = None,
        fragile: bool = False,
        slow: bool = False,
    ) -> None:
        """Make a reader.

        Args:
            load: what it belongs to.
            client: what it reads with.
            place: what it reads.
            name: who it is in histories.
            cursor: what remembers how far it is.
            fragile: whether its bytes are damaged, so that errors are the right answer.
            slow: whether it may lag behind: nobody waits for it before the end.
        """
        self.place = place
        self.name = name
        title = f"{name} of {place}"
        self.lane = Lane(title) if slow else load.lane(title, (place.stream, place.partition))
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        super().__init__(load, title)
        self.last: Message | None = None
        self._client = client
        self.cursor = cursor
        self._fragile = fragile
        self.subscription: Subscription | None = None
        self._next: StartAt = EARLIEST
        self._lives = 1

    def reopen(self, start: StartAt) -> None:
        """Give the subscription up and make another one."""
        self._next = start
        self._reopening = True
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        self._reopening = False
        try:
            subscription = self._client.subscribe(
                self.place.stream,
                self.place.partition,
                self._next,
                resubscribe_timeout=None,
                cursor=self.cursor,
                cursor_interval=1.0,
            )
            async with subscription:
                self.subscription = subscription
                async for message in subscription:
                    self._take(message)
                    await self.may_go_on.wait()
            self._load.find(f"{self.lane.name} ended without an error")
        except LiftbridgeError as error:
            self._load.calls.failed("subscribe", error)
            if not self._fragile:
                _find_end(self._load, self.lane.name, error)
                self._begin_again()
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            if not self._given_up:
                raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._load.find_untyped(self.lane.name, error)
            await asyncio.sleep(0.2)

    def _begin_again(self) -> None:
        """Go on as another reader, which reads everything."""
        self._load.journal.give_up(self.place.stream, self.place.partition, self.name)
        self._lives += 1
        self.name = f"{self.name.partition(' again')[0]} again {self._lives}"
        self.cursor = None
        self.last = None
        self._next = EARLIEST

    def _take(self, message: Message) -> None:
        now = time.monotonic()
        self._load.journal.delivered(self.name, message, now)
        self.last = message
        self._next = StartAt.offset(message.offset + 1)
        began = sent_at(message.value)
        if began is not None:
            self.lane.succeeded(began, now)
        elif message.value.startswith(END):
            self.ends.add(message.value)


class Member(_Reading):
    """One member of the consumer group, which joins again should it be thrown out with an error."""

    def __init__(
        self, load: Load, client: Client, name: str, group: str, streams: list[str]
    ) -> None:
        super().__init__(load, name)
        self.name = name
        self._client = client
        self._group = group
        self._streams = streams

    async def _read(self) -> None:
        try:
            group = self._client.group(
                self._group, self._streams, start=EARLIEST, commit_interval=1.0
            )
            async with group:
                while (message := await self._take_next(group)) is not None:
                    self._take(message)
            if not self._stopped:
                self._load.find(f"{self.name} ended without an error")
                await asyncio.sleep(0.2)
        except LiftbridgeError as error:
            self._load.calls.failed("group", error)
            _find_end(self._load, self.name, error)
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._load.find_untyped(self.name, error)
            await asyncio.sleep(0.2)

    async def _take_next(self, group: ConsumerGroup) -> Message | None:
        """The next message; of a log that was cut, from the beginning. None at the end."""
        while True:
            try:
                return await anext(group, None)
            except StreamReset as error:
                self._load.calls.failed("group", error)
                _find_end(self._load, f"a partition of {self.name}", error)
                if error.stream is None or error.partition is None:
                    raise
                await group.seek(error.stream, error.partition, EARLIEST)

    def _take(self, message: Message) -> None:
        now = time.monotonic()
        self._load.journal.delivered(self.name, message, now)
        began = sent_at(message.value)
        if began is not None:
            place = (message.stream, message.partition)
            lane = self._load.lane(f"group on {message.stream}/{message.partition}", place)
            # What came before to another member shows nothing.
            lane.succeeded(began, now)
        elif message.value.startswith(END):
            self.ends.add(message.value)
