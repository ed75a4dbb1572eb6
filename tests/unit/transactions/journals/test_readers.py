"""Reading journals, all messages or those that are committed, as in Gazette's tests."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from liftbridge_aio._runtime.file_lock import FileLock
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core.framing import FIXED_WORD
from liftbridge_aio.transactions.core.uuid import NIL_UUID, Clock, Flags, build_uuid
from liftbridge_aio.transactions.errors import (
    FramingError,
    JournalLocked,
    MustStartReplay,
    ReplayMismatch,
    TruncatedFrame,
    UnknownFraming,
)
from liftbridge_aio.transactions.journals import (
    CSV,
    FIXED_PROTOBUF,
    JSON_LINES,
    CsvRecord,
    Envelope,
    FileJournals,
    Journal,
    JsonMessage,
    Publisher,
    ReadCommittedIter,
    ReadUncommittedIter,
    Sequencer,
    StreamSource,
    files,
)
from liftbridge_aio.transactions.journals.readers import ByteSource

JOURNAL = Journal("orders", JSON_LINES)


def new_message(_: Journal) -> JsonMessage:
    return JsonMessage()


def to_orders(_: object) -> Journal:
    return JOURNAL


class Pieces(ByteSource):
    """A journal whose bytes come in given pieces, and can be read again."""

    def __init__(self, *pieces: tuple[int, bytes], journal: Journal = JOURNAL) -> None:
        self.journal = journal
        self.pieces = pieces

    async def read(self, begin: int, end: int | None) -> AsyncIterator[tuple[int, bytes]]:
        for at, data in self.pieces:
            stop = len(data) if end is None else min(len(data), end - at)
            if max(begin - at, 0) < stop or not data:
                yield max(at, begin), data[max(begin - at, 0) : stop]


def frame(word: str, value: str = "") -> bytes:
    """`A10c` is a message of producer A with clock 10 that continues a transaction."""
    flags = {"o": Flags.OUTSIDE, "c": Flags.CONTINUE, "a": Flags.ACK}[word[-1]]
    message = JsonMessage(value=value or word)
    message.set_uuid(build_uuid(b"\x01prod" + word[0].encode(), int(word[1:-1]), flags))
    return message.marshal_json() + b"\n"


def source(words: str) -> Pieces:
    return Pieces((0, b"".join(map(frame, words.split()))))


async def values(reading: AsyncIterator[Envelope[JsonMessage]]) -> str:
    return " ".join([str(envelope.message.fields.get("value")) async for envelope in reading])


LOG = "A1c B1c A2c B2c B3a A3c A1c"


async def test_uncommitted_reading_gives_everything() -> None:
    assert await values(ReadUncommittedIter(source(LOG), new_message)) == LOG


async def test_committed_reading_gives_what_is_acknowledged() -> None:
    reading = ReadCommittedIter(source(LOG), new_message, Sequencer())
    assert await values(reading) == "B1c B2c B3a"


async def test_long_transactions_are_read_again() -> None:
    words = "A1c B1c A2c B2c A3c A4c B3c B4a A5a C1o"
    reading = ReadCommittedIter(source(words), new_message, Sequencer(buffer=2))
    assert await values(reading) == "B1c B2c B3c B4a A1c A2c A3c A4c A5a C1o"


async def test_envelopes_tell_where_messages_are() -> None:
    data = frame("A1o") + frame("A2o")
    async for envelope in ReadUncommittedIter(Pieces((0, data)), new_message):
        journal, begin, end, message = envelope
        assert journal is JOURNAL
        assert data[begin:end] == frame(message.fields["value"])


async def test_a_sequencer_goes_on_from_a_checkpoint_at_any_message() -> None:
    """At the message that was handed out last, which may not be processed yet."""
    words = "A1c B1c B2c B3a A2c A3a B4o A2c C1o"
    whole = await values(ReadCommittedIter(source(words), new_message, Sequencer()))
    for stop in range(1, len(whole.split())):
        sequencer: Sequencer[JsonMessage] = Sequencer()
        first = ReadCommittedIter(source(words), new_message, sequencer)
        got = [(await anext(first)).message.fields["value"] for _ in range(stop)]
        offsets, states = sequencer.checkpoint()
        again: Sequencer[JsonMessage] = Sequencer(states, offsets=offsets)
        rest = await values(ReadCommittedIter(source(words), new_message, again))
        assert " ".join([*got[:-1], rest]) == whole


async def test_empty_pieces_are_nothing() -> None:
    data = frame("A1o")
    pieces = [(0, b"")] * 100 + [(0, data), (len(data), b"")]
    assert await values(ReadUncommittedIter(Pieces(*pieces), new_message)) == "A1o"


async def test_a_journal_may_jump_between_frames(caplog: pytest.LogCaptureFixture) -> None:
    data = frame("A1o")
    reading = ReadUncommittedIter(Pieces((0, data), (1000, data)), new_message)
    assert [envelope.begin async for envelope in reading] == [0, 1000]
    assert "jumps from offset" in caplog.text


async def test_a_journal_may_not_jump_within_a_frame() -> None:
    data = frame("A1o")
    with pytest.raises(FramingError, match="jumps from offset 5 to 1000 within a frame"):
        await values(ReadUncommittedIter(Pieces((0, data[:5]), (1000, data)), new_message))


async def test_an_end_within_a_frame() -> None:
    data = frame("A1o") * 2
    reading = ReadUncommittedIter(Pieces((0, data)), new_message, end=len(data) - 1)
    await anext(reading)
    with pytest.raises(TruncatedFrame):
        await anext(reading)


async def test_bytes_that_are_no_frame_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    data = FIXED_WORD + b"\x13\0\0\0" + NIL_UUID + b"foo"
    pieces = Pieces((0, data + b"junk" + data), journal=Journal("j", FIXED_PROTOBUF))
    reading = ReadUncommittedIter(pieces, lambda _: FixedMessage())
    found = [(begin, end, text.value) async for _, begin, end, text in reading]
    assert found == [(0, 27, "foo"), (31, 58, "foo")]
    assert "in j 4 bytes that are no frame were skipped" in caplog.text


async def test_a_malformed_message_says_where_and_is_passed_over() -> None:
    data = b'{"uuid":7}\n' + frame("A1o") + b"[]\n" + b'{"uuid":"x"}\n'
    reading = ReadUncommittedIter(Pieces((0, data)), new_message)
    with pytest.raises(FramingError, match="its uuid is no text: 7") as caught:
        await anext(reading)
    assert caught.value.__notes__ == ["in orders at offset 0"]
    assert (await anext(reading)).message.fields["value"] == "A1o"
    for text in ("expected an object, not list", "badly formed"):
        with pytest.raises(FramingError, match=text):
            await anext(reading)


async def test_a_record_whose_first_field_is_no_uuid() -> None:
    pieces = Pieces((0, b"not a uuid,1\n"), journal=Journal("rows", CSV))
    with pytest.raises(FramingError, match="its first field is no UUID: 'not a uuid'"):
        await anext(ReadUncommittedIter(pieces, lambda _: CsvRecord()))


async def test_errors_at_the_begin() -> None:
    with pytest.raises(UnknownFraming):
        ReadUncommittedIter(Pieces(journal=Journal("j", "")), new_message)

    def refused(journal: Journal) -> JsonMessage:
        raise LookupError(f"nothing is known of {journal.name}")

    with pytest.raises(LookupError, match="nothing is known of orders"):
        await anext(ReadUncommittedIter(source("A1o"), refused))


async def test_the_names_of_the_published_guide() -> None:
    envelopes = [each async for each in ReadUncommittedIter(source("A1c A2c A3c A4a"), new_message)]
    sequencer: Sequencer[JsonMessage] = Sequencer(buffer=2)
    for envelope in envelopes[:3]:
        sequencer.queue_uncommitted(envelope)
        assert await sequencer.deque_committed() is None
    assert sequencer.has_pending
    sequencer.queue_uncommitted(envelopes[3])
    with pytest.raises(MustStartReplay, match="from offset 0 to before"):
        await sequencer.deque_committed()
    with pytest.raises(InvalidRequest, match="committed messages remain"):
        sequencer.producer_states()
    _, begin, end = sequencer.replay_range()
    sequencer.start_replay(ReadUncommittedIter(source("A1c A2c A3c A4a"), new_message, begin, end))
    found = [await sequencer.deque_committed() for _ in range(5)]
    assert [each and each.message.fields["value"] for each in found] == [
        *("A1c", "A2c", "A3c", "A4a"),
        None,
    ]
    (state,) = sequencer.producer_states()
    assert (state.journal, state.last_ack, state.begin) == ("orders", 4, -1)
    with pytest.raises(InvalidRequest, match="no transaction is to be read again"):
        sequencer.start_replay(ReadUncommittedIter(source(""), new_message))


async def test_a_replay_of_something_else_is_refused() -> None:
    sequencer: Sequencer[JsonMessage] = Sequencer(buffer=1)
    async for envelope in ReadUncommittedIter(source("A1c A2c A3a"), new_message):
        sequencer.queue_uncommitted(envelope)
    sequencer.start_replay(ReadUncommittedIter(source("A1c A2c A3a"), new_message))
    for _ in range(2):
        assert await sequencer.deque_committed()
    with pytest.raises(ReplayMismatch):
        await sequencer.deque_committed()


@pytest.mark.parametrize("buffer", [1, 3, 1000])
async def test_publishers_and_readers_of_files(tmp_path: Path, buffer: int) -> None:
    """Transactions of one publisher beside committed messages of another, by one clock."""
    journals, clock = FileJournals(tmp_path / "journals"), Clock()
    publishers = [Publisher(journals, clock), Publisher(journals, clock)]
    chance = random.Random(11)
    expected, open_values = [], list[int]()
    for number in range(120):
        message = JsonMessage(value=number)
        if chance.random() < 0.6:
            await publishers[0].publish_uncommitted(to_orders, message)
            open_values.append(number)
        else:
            await publishers[1].publish_committed(to_orders, message)
            expected.append(number)
        if chance.random() < 0.1:
            intents = publishers[0].build_ack_intents()
            await publishers[0].append_intents(intents * 2)
            expected += open_values
            open_values.clear()
    reading = ReadCommittedIter(journals.source(JOURNAL), new_message, Sequencer(buffer=buffer))
    found = [envelope.message.fields.get("value") async for envelope in reading]
    assert [value for value in found if value is not None] == expected


async def test_a_failed_append_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    journals = FileJournals(tmp_path)

    def frame_of_nothing() -> bytes:
        raise ValueError("no frame")

    with pytest.raises(ValueError, match="no frame"):
        await journals.append("a/b", frame_of_nothing)
    assert await journals.append("a/b", lambda: b"x\n") == (0, 2)
    assert (tmp_path / "a" / "b").read_bytes() == b"x\n"


class FixedMessage:
    """A message of protobuf, as far as framings and publishers know: its UUID and a text."""

    def __init__(self, value: str = "") -> None:
        self.uuid, self.value = NIL_UUID, value

    def get_uuid(self) -> bytes:
        return self.uuid

    def set_uuid(self, uuid: bytes, /) -> None:
        self.uuid = uuid

    def new_acknowledgement(self, _: Journal, /) -> FixedMessage:
        return FixedMessage()

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return self.uuid + self.value.encode()

    def ParseFromString(self, data: bytes, /) -> None:  # noqa: N802 - protobuf's name
        self.uuid, self.value = data[:16], data[16:].decode()


@pytest.mark.parametrize(
    ("content_type", "make", "value_of"),
    [
        (JSON_LINES, lambda text="": JsonMessage(value=text), lambda m: m.fields.get("value")),
        (CSV, lambda text="": CsvRecord(text), lambda m: m.fields[1]),
        (FIXED_PROTOBUF, FixedMessage, lambda m: m.value),
    ],
)
@pytest.mark.parametrize("restarted", [True, False])
async def test_a_torn_frame_is_cut_off_by_the_next_append(
    tmp_path: Path, content_type: str, make: Any, value_of: Any, restarted: bool
) -> None:
    """However little of it is there, also where its text has line feeds."""
    journal = Journal("orders", content_type)
    texts = ['one "and\na half', "two"]

    async def check(folder: Path, torn: int) -> int:
        async def read() -> list[str]:
            reading = ReadCommittedIter(journals.source(journal), lambda _: make(), Sequencer())
            return [value_of(each.message) async for each in reading]

        journals = FileJournals(folder)
        _, end = await Publisher(journals).publish_committed(lambda _: journal, make(texts[0]))
        with (folder / "orders").open("r+b") as file:
            frame = file.read()
            file.write(frame[:torn])
        assert await read() == texts[:1]
        if restarted:
            journals = FileJournals(folder)
        begin, _ = await Publisher(journals).publish_committed(lambda _: journal, make(texts[1]))
        assert begin == end
        assert await read() == texts
        return end

    size = await check(tmp_path / "0", 0)
    for torn in range(1, size):
        await check(tmp_path / str(torn), torn)


async def test_processes_append_to_a_journal_in_turn(tmp_path: Path) -> None:
    """Each has locks of its own here, as each process has."""
    each = [Publisher(FileJournals(tmp_path)) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        for number in range(30):
            message = JsonMessage(value=number)
            group.create_task(each[number % 3].publish_committed(to_orders, message))
    reading = ReadCommittedIter(FileJournals(tmp_path).source(JOURNAL), new_message, Sequencer())
    found = [envelope.message.fields["value"] async for envelope in reading]
    assert sorted(found) == list(range(30))


async def test_an_append_does_not_wait_for_ever_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LOCK_TIMEOUT", 0.05)
    with (
        FileLock(tmp_path / ".orders.lock"),
        pytest.raises(JournalLocked, match="nothing was appended"),
    ):
        await FileJournals(tmp_path).append("orders", lambda: b"{}\n")
    assert not (tmp_path / "orders").exists()


@pytest.mark.parametrize("name", ["", ".", "../orders", "a/../../orders", "/orders", "a\0b"])
async def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    journals = FileJournals(tmp_path / "journals")
    with pytest.raises(InvalidRequest, match="a journal is the path of a file within"):
        await journals.append(name, lambda: b"{}\n")
    with pytest.raises(InvalidRequest):
        journals.source(Journal(name, JSON_LINES))
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - it does not block for long


async def test_a_stream_reader_is_read_once() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"".join(map(frame, ["A1c", "A2a", "B1c", "B2c", "B3c", "B4a"])))
    reader.feed_eof()
    reading = ReadCommittedIter(StreamSource(JOURNAL, reader), new_message, Sequencer(buffer=2))
    found: list[Any] = [(await anext(reading)).message.fields["value"] for _ in range(2)]
    assert found == ["A1c", "A2a"]
    with pytest.raises(InvalidRequest, match="give the sequencer a larger buffer"):
        await anext(reading)
