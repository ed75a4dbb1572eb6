"""What publishers append, with the clocks of Gazette's tests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from liftbridge_aio.transactions.core.uuid import NIL_UUID, Clock, Flags, clock_at, parse_uuid
from liftbridge_aio.transactions.errors import FramingError, NoJournals, UnknownFraming
from liftbridge_aio.transactions.journals import (
    CSV,
    JSON_LINES,
    AckIntent,
    CsvRecord,
    Journal,
    JsonMessage,
    Publisher,
    framing_for,
    modulo_mapping,
    new_producer_id,
)

JOURNAL = Journal("orders", JSON_LINES)


class MemoryJournals:
    """Journals in memory; an append takes a while, and others of its journal wait for it."""

    def __init__(self) -> None:
        self.bytes: dict[str, bytes] = {}
        self.locks: dict[str, asyncio.Lock] = {}

    async def append(self, journal: str, frame: Callable[[], bytes]) -> tuple[int, int]:
        async with self.locks.setdefault(journal, asyncio.Lock()):
            data = frame()
            await asyncio.sleep(0)
            begin = len(self.bytes.get(journal, b""))
            self.bytes[journal] = self.bytes.get(journal, b"") + data
            return begin, begin + len(data)

    def messages(self, journal: str = JOURNAL.name) -> list[tuple[bytes, int, int, Any]]:
        """Producers, clocks, flags and values of the messages of a journal."""
        decoder = framing_for(JSON_LINES).decoder()
        decoder.feed(self.bytes[journal])
        found = []
        while (frame := decoder.next_frame()) is not None:
            decoder.decode(frame, message := JsonMessage())
            found.append((*parse_uuid(message.get_uuid()), message.fields.get("value")))
        return found

    def clocks(self, journal: str = JOURNAL.name) -> list[tuple[int, int]]:
        return [(clock, flags) for _, clock, flags, _ in self.messages(journal)]


def to_orders(_: object) -> Journal:
    return JOURNAL


async def test_committed_messages_are_of_no_transaction_and_in_order() -> None:
    journals = MemoryJournals()
    publisher = Publisher(journals, Clock())
    placed = [
        await publisher.publish_committed(to_orders, JsonMessage(value=number))
        for number in range(3)
    ]
    assert journals.clocks() == [(clock, Flags.OUTSIDE) for clock in (160, 320, 480)]
    assert [value for *_, value in journals.messages()] == [0, 1, 2]
    assert [begin for begin, _ in placed[1:]] == [end for _, end in placed[:-1]]
    assert publisher.build_ack_intents() == []


async def test_uncommitted_messages_are_acknowledged_by_intents() -> None:
    """Two transactions over three journals, the one first published to comes first."""
    journals = MemoryJournals()
    publisher = Publisher(journals, Clock())

    def to(name: str) -> Callable[[object], Journal]:
        return lambda _: Journal(name, JSON_LINES)

    for first, second in (("a", "b"), ("c", "b")):
        await publisher.publish_uncommitted(to(first), JsonMessage(value=1))
        await publisher.publish_uncommitted(to(second), JsonMessage(value=2))
        intents = publisher.build_ack_intents()
        assert [intent.journal for intent in intents] == [first, second]
        await publisher.append_intents(intents)
    cont, ack = Flags.CONTINUE, Flags.ACK
    assert journals.clocks("a") == [(160, cont), (480, ack)]
    assert journals.clocks("b") == [(320, cont), (640, ack), (960, cont), (1280, ack)]
    assert journals.clocks("c") == [(800, cont), (1120, ack)]
    assert publisher.build_ack_intents() == []


async def test_committed_and_uncommitted_messages_are_of_two_producers() -> None:
    journals = MemoryJournals()
    publisher = Publisher(journals)
    await publisher.publish_uncommitted(to_orders, JsonMessage())
    await publisher.publish_committed(to_orders, JsonMessage())
    await publisher.append_intents(publisher.build_ack_intents())
    inside, outside, acker = (producer for producer, *_ in journals.messages())
    assert inside == acker != outside


async def test_uuids_stand_in_a_journal_in_the_order_of_their_clocks() -> None:
    """Though many tasks publish at the same time."""
    journals = MemoryJournals()
    publisher = Publisher(journals)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(publisher.publish_committed(to_orders, JsonMessage(value=number)))
    clocks = [clock for clock, _ in journals.clocks()]
    assert len(clocks) == 20
    assert clocks == sorted(set(clocks))
    assert clocks[0] > clock_at(1_700_000_000 * 10**9)


async def test_a_message_is_validated_before_it_is_mapped() -> None:
    class Checked(JsonMessage):
        def validate(self) -> None:
            assert self.get_uuid() == NIL_UUID
            raise ValueError("not on Sundays")

    def mapping(_: object) -> Journal:
        raise AssertionError

    with pytest.raises(ValueError, match="not on Sundays"):
        await Publisher(MemoryJournals()).publish_committed(mapping, Checked())


async def test_errors_of_mapping_and_framing_leave_nothing_behind() -> None:
    journals = MemoryJournals()
    publisher = Publisher(journals)
    with pytest.raises(NoJournals):
        await publisher.publish_uncommitted(modulo_mapping(repr_key, list), JsonMessage())
    with pytest.raises(UnknownFraming):
        await publisher.publish_uncommitted(lambda _: Journal("a", "x/y"), JsonMessage())

    class Indented(JsonMessage):
        def marshal_json(self) -> bytes:
            return b"{\n}"

    with pytest.raises(FramingError):
        await publisher.publish_committed(to_orders, Indented())
    with pytest.raises(ValueError, match="not JSON compliant"):
        await publisher.publish_committed(to_orders, JsonMessage(value=[math.nan]))
    assert journals.bytes == {}
    assert publisher.build_ack_intents() == []


def repr_key(message: object) -> bytes:
    return repr(message).encode()


async def test_intents_are_frames_of_the_journal() -> None:
    publisher = Publisher(MemoryJournals(), Clock())
    await publisher.publish_uncommitted(lambda _: Journal("rows", CSV), CsvRecord("a", "b"))
    (intent,) = publisher.build_ack_intents()
    assert isinstance(intent, AckIntent)
    uuid, *rest = intent.intent.decode().rstrip("\n").split(",")
    record = CsvRecord()
    record.unmarshal_csv([uuid])
    assert (parse_uuid(record.get_uuid())[1:], rest) == ((320, Flags.ACK), ["", ""])


def test_producer_ids_are_unique() -> None:
    assert len({new_producer_id() for _ in range(1000)}) == 1000
