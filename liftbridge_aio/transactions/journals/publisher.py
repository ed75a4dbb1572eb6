"""Publish messages to journals, each alone or several in a transaction."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

from liftbridge_aio.transactions.core.framing import framing_for
from liftbridge_aio.transactions.core.mapping import Journal, MappingFunction
from liftbridge_aio.transactions.core.uuid import (
    PRODUCER_BYTES,
    Clock,
    Flags,
    build_uuid,
    producer_id,
)

from .message import Message, Validator

M = TypeVar("M", bound=Message)


class Appender(Protocol):
    """The protocol of an appender to journals."""

    async def append(self, journal: str, frame: Callable[[], bytes]) -> tuple[int, int]:
        """Append a frame, and return the offsets of its begin and end once it is stored.

        Args:
            journal: the name of the journal.
            frame: returns the bytes. It is called when nothing else can be appended before them,
                so that the UUIDs of a producer stand in the journal in the order of their clocks.
                What it raises is raised, and nothing is appended.
        """


class AckIntent(NamedTuple):
    """A frame that commits what was published to a journal, once it is appended to it."""

    journal: str
    intent: bytes


def new_producer_id() -> bytes:
    """Return a producer id that nobody else has: 47 random bits."""
    return producer_id(secrets.token_bytes(PRODUCER_BYTES))


class Publisher:
    """Publishes messages to journals, with UUIDs by which readers know what is committed.

        publisher = Publisher(FileJournals("journals"))
        orders = Journal("orders", JSON_LINES)
        await publisher.publish_committed(lambda _: orders, JsonMessage(item="tea"))

    For a transaction, publish with `publish_uncommitted`, build the ack intents, write them where
    they survive a crash, and append them. After a crash append what was written, all of it again.

    Committed and uncommitted messages have a producer id each, since one that publishes both to a
    journal would discard its open transaction with each committed message.
    """

    def __init__(self, appender: Appender, clock: Clock | None = None) -> None:
        """Publish by an appender.

        Args:
            appender: appends to the journals.
            clock: the clock of the UUIDs, which the caller then updates; without one the
                publisher has its own, by the time of day.
        """
        self._appender = appender
        self._clock = Clock() if clock is None else clock
        self._own_clock = clock is None
        self._outside = new_producer_id()
        self._inside = new_producer_id()
        self._unacked: dict[str, tuple[Journal, Message]] = {}

    async def publish_committed(self, mapping: MappingFunction[M], message: M) -> tuple[int, int]:
        """Publish a message that readers see at once; return the offsets of its begin and end.

        Any number of tasks may publish at the same time. Cancelling abandons the wait: the message
        may be stored or not.

        Args:
            mapping: chooses the journal.
            message: the message, which is given its UUID.

        Raises:
            NoJournals: there is no journal that the message could be mapped to.
            FramingError: no framing is registered for the journal, or it refused the message.
            Exception: raised by the validation, the mapping, or the appender.
        """
        journal = self._place(mapping, message)
        return await self._append(journal, message, self._outside, Flags.OUTSIDE)

    async def publish_uncommitted(self, mapping: MappingFunction[M], message: M) -> tuple[int, int]:
        """Publish a message that committed readers see after its acknowledgement.

        As `publish_committed`, but for a single task at a time.
        """
        journal = self._place(mapping, message)
        if journal.name not in self._unacked:
            self._unacked[journal.name] = journal, message.new_acknowledgement(journal)
        return await self._append(journal, message, self._inside, Flags.CONTINUE)

    def build_ack_intents(self) -> list[AckIntent]:
        """Return what commits all that was published uncommitted since the last call.

        They are in the order in which the journals were first published to. Call it when all
        publishing has returned.

        Raises:
            FramingError: a framing refused an acknowledgement; nothing is forgotten.
        """
        intents = []
        for journal, acknowledgement in self._unacked.values():
            frame = self._frame(journal, acknowledgement, self._inside, Flags.ACK)
            intents.append(AckIntent(journal.name, frame))
        self._unacked.clear()
        return intents

    async def append_intents(self, intents: Iterable[AckIntent]) -> None:
        """Append ack intents, of this publisher or of one that has crashed.

        An intent that is appended twice does no harm. Cancelling leaves the rest unappended.

        Raises:
            Exception: raised by the appender; the rest is not appended.
        """
        for journal, intent in intents:
            await self._appender.append(journal, lambda intent=intent: intent)  # type: ignore[misc]

    def _place(self, mapping: MappingFunction[Any], message: Message) -> Journal:
        if self._own_clock:
            self._clock.update(time.time_ns())
        if isinstance(message, Validator):
            message.validate()
        journal: Journal = mapping(message)
        framing_for(journal.content_type)
        return journal

    async def _append(
        self, journal: Journal, message: Message, producer: bytes, flags: Flags
    ) -> tuple[int, int]:
        return await self._appender.append(
            journal.name, lambda: self._frame(journal, message, producer, flags)
        )

    def _frame(self, journal: Journal, message: Message, producer: bytes, flags: Flags) -> bytes:
        message.set_uuid(build_uuid(producer, self._clock.tick(), flags))
        return framing_for(journal.content_type).encode(message)
